package engine

import (
	"fmt"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// loop is the variable loop of a for loop. It reads ahead only as far as needed.
type loop struct {
	m          *py.Machine
	items      func() (py.Value, bool)
	ahead      []py.Value // read ahead
	size       int
	known      bool // size is known
	index      int  // from 0
	depth      int
	prev, cur  py.Value
	changed    py.Value // arguments of the last call of changed
	hasChanged bool
	recurse    func(py.Value) py.Value
}

// next moves to the next item.
func (l *loop) next() (py.Value, bool) {
	if !l.peek() {
		return nil, false
	}
	l.prev, l.cur = l.cur, l.ahead[0]
	l.ahead = l.ahead[1:]
	l.index++
	return l.cur, true
}

// peek reads one item ahead.
func (l *loop) peek() bool {
	if len(l.ahead) > 0 {
		return true
	}
	item, ok := l.items()
	if ok {
		l.ahead = append(l.ahead[:0:0], item)
	}
	return ok
}

// Len returns the loop's length. It reads a generator to its end.
func (l *loop) Len() int {
	if !l.known {
		for item, ok := l.items(); ok; item, ok = l.items() {
			l.m.Grow(16)
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

func (l *loop) cycle(args py.Args) py.Value {
	if len(args.Pos) == 0 {
		py.Raise(py.KindType, "no items for cycling given")
	}
	return args.Pos[l.index%len(args.Pos)]
}

func (l *loop) change(args py.Args) py.Value {
	now := &py.Tuple{Items: args.Pos}
	if l.hasChanged && l.m.Equal(l.changed, now) {
		return false
	}
	l.changed, l.hasChanged = now, true
	return true
}

// Call runs a recursive loop over another iterable.
func (l *loop) Call(args py.Args) py.Value {
	if l.recurse == nil {
		py.Raise(py.KindType, "The loop must have the 'recursive' marker to be called recursively.")
	}
	return l.recurse(args.Take("loop", "iterable")[0])
}
