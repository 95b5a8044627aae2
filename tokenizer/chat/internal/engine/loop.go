package engine

import (
	"fmt"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// loop is the variable loop of a for loop. It reads ahead only as far as needed: nextitem and
// last need one more item, the length needs all.
type loop struct {
	m       *py.Machine
	items   func() (py.Value, bool)
	ahead   []py.Value // items read from items but not yet returned by next
	size    int        // number of all items, valid if known is set
	known   bool
	index   int      // index of the current item; -1 before the first
	depth   int      // number of enclosing calls of the same recursive loop
	prev    py.Value // previous item
	current py.Value
	changed *py.Tuple               // arguments of the last call of changed; nil before the first
	recurse func(py.Value) py.Value // runs the loop over another iterable; nil unless recursive
}

// next moves to the next item.
func (l *loop) next() (py.Value, bool) {
	if !l.peek() {
		return nil, false
	}
	l.prev, l.current = l.current, l.ahead[0]
	l.ahead = l.ahead[1:]
	l.index++
	return l.current, true
}

// peek makes sure that ahead holds an item, and reports whether there is one.
func (l *loop) peek() bool {
	if len(l.ahead) > 0 {
		return true
	}
	item, ok := l.items()
	if ok {
		l.ahead = []py.Value{item}
	}
	return ok
}

// Len returns the loop's length. It reads a generator to its end.
func (l *loop) Len() int {
	if !l.known {
		for item, ok := l.items(); ok; item, ok = l.items() {
			l.m.Charge(16)
			l.ahead = append(l.ahead, item)
		}
		l.size, l.known = l.index+1+len(l.ahead), true
	}
	return l.size
}

// TypeName returns Python's name of the type.
func (l *loop) TypeName() string { return "LoopContext" }

// Repr returns Python's repr.
func (l *loop) Repr(*py.Machine) string {
	return fmt.Sprintf("<LoopContext %d/%d>", l.index+1, l.Len())
}

// Attr returns loop.index and the like.
func (l *loop) Attr(name string) (py.Value, bool) {
	switch name {
	case "index":
		return int64(l.index + 1), true
	case "index0":
		return int64(l.index), true
	case "revindex":
		return int64(l.Len() - l.index), true
	case "revindex0":
		return int64(l.Len() - l.index - 1), true
	case "first":
		return l.index == 0, true
	case "last":
		return !l.peek(), true
	case "length":
		return int64(l.Len()), true
	case "depth":
		return int64(l.depth + 1), true
	case "depth0":
		return int64(l.depth), true
	case "previtem":
		if l.index == 0 {
			return &py.Undefined{Hint: "there is no previous item"}, true
		}
		return l.prev, true
	case "nextitem":
		if !l.peek() {
			return &py.Undefined{Hint: "there is no next item"}, true
		}
		return l.ahead[0], true
	case "cycle":
		return &py.Func{Name: name, Call: l.cycle}, true
	case "changed":
		return &py.Func{Name: name, Call: l.change}, true
	}
	return nil, false
}

// cycle implements loop.cycle: it returns the argument of the current item's turn.
func (l *loop) cycle(args py.Args) py.Value {
	if len(args.Pos) == 0 {
		py.Raise(py.KindType, "no items for cycling given")
	}
	return args.Pos[l.index%len(args.Pos)]
}

// change implements loop.changed: it reports whether its arguments differ from those of the
// previous call.
func (l *loop) change(args py.Args) py.Value {
	values := &py.Tuple{Items: args.Pos}
	if l.changed != nil && l.m.Equal(l.changed, values) {
		return false
	}
	l.changed = values
	return true
}

// Call runs a recursive loop over another iterable.
func (l *loop) Call(args py.Args) py.Value {
	if l.recurse == nil {
		py.Raise(py.KindType, "The loop must have the 'recursive' marker to be called recursively.")
	}
	return l.recurse(args.Take("loop", "iterable")[0])
}
