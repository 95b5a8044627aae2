package split

import (
	"unicode/utf8"

	"github.com/easyrl/easyrl/tokenizer/internal/budget"
	"github.com/easyrl/easyrl/tokenizer/internal/ucd"
)

// matcher is a regular expression with look-ahead, matched by backtracking. Only
// single characters are repeated, so the depth of recursion depends on the pattern, not on
// the text.
type matcher struct {
	start *node
	first [256]bool // bytes that may start a match
}

// kind is the kind of a node.
type kind uint8

const (
	finish kind = iota // a match is complete
	repeat             // min to max characters of a set, as many as possible
	choose             // the first of the branches that leads to a match
	look               // continues if body matches or, negated, if it does not
)

// node is a part of a pattern, linked to the part after it. It does not change once built.
type node struct {
	kind kind
	next *node // nil for finish and choose

	// For repeat:
	set        *set
	min, max   int
	possessive bool // never gives characters back

	branches []branch // for choose, in order of preference

	// For look:
	body   *node
	negate bool
}

// branch is one alternative of a choice, with all parts of the pattern after the choice.
type branch struct {
	first *[256]bool // bytes that may start a match
	node  *node
}

// compileMatcher compiles a pattern. ok is false if the pattern is not supported or
// matches the empty text.
func compileMatcher(pattern string) (p *matcher, ok bool) {
	tree, ok := parse(pattern)
	if !ok {
		return nil, false
	}
	p = &matcher{start: tree.build(&node{kind: finish})}
	if empty := p.start.begins(&p.first); empty {
		return nil, false
	}
	return p, true
}

// build returns the nodes of a tree that continue with next.
func (t *tree) build(next *node) *node {
	switch {
	case t.set != nil:
		return &node{kind: repeat, set: t.set, min: t.min, max: t.max, possessive: t.possessive, next: next}
	case t.look:
		return &node{kind: look, body: t.parts[0].build(&node{kind: finish}), negate: t.negate, next: next}
	case t.choice:
		n := &node{kind: choose}
		for _, part := range t.parts {
			b := branch{new([256]bool), part.build(next)}
			if b.node.begins(b.first) {
				*b.first = anyByte()
			}
			n.branches = append(n.branches, b)
		}
		return n
	}
	for i := len(t.parts) - 1; i >= 0; i-- {
		next = t.parts[i].build(next)
	}
	return next
}

// anyByte returns the set of all bytes.
func anyByte() (all [256]bool) {
	for i := range all {
		all[i] = true
	}
	return all
}

// begins marks the bytes that may start a match of n, and reports whether n may
// match the empty text.
func (n *node) begins(first *[256]bool) bool {
	switch n.kind {
	case finish:
		return true
	case repeat:
		for b := range first {
			if b >= utf8.RuneSelf || n.set.ascii[b] { // any non-ASCII byte may start a character of the set
				first[b] = true
			}
		}
		return n.min == 0 && n.next.begins(first)
	case choose:
		empty := false
		for _, b := range n.branches {
			empty = b.node.begins(first) || empty
		}
		return empty
	}
	return n.next.begins(first)
}

// Matches implements Finder. No match starts between the end of the last match that it
// returns and next.
func (p *matcher) Matches(b *budget.Budget, dst [][2]int, text string, from, limit int) (found [][2]int, next int) {
	i := from
	for i < len(text) && len(dst) < limit {
		if b.Err() != nil {
			return dst, len(text)
		}
		if p.first[text[i]] {
			if end := p.start.match(b, text, i); end >= 0 {
				dst = append(dst, [2]int{i, end})
				i = end
				continue
			}
		}
		_, n := utf8.DecodeRuneInString(text[i:])
		i += n
	}
	return dst, i
}

// match returns the end of the match at i, or -1 if there is none or the budget is spent.
func (n *node) match(b *budget.Budget, text string, i int) int {
	for b.Step(1) {
		switch n.kind {
		case finish:
			return i
		case choose:
			for _, branch := range n.branches {
				if i < len(text) && !branch.first[text[i]] {
					continue
				}
				if end := branch.node.match(b, text, i); end >= 0 {
					return end
				}
			}
			return -1
		case look:
			if (n.body.match(b, text, i) >= 0) == n.negate {
				return -1
			}
		case repeat:
			end, count := n.set.run(text, i, n.max)
			b.Step(count)
			if count < n.min {
				return -1
			}
			for ; count > n.min && !n.possessive; count-- {
				if matchEnd := n.next.match(b, text, end); matchEnd >= 0 {
					return matchEnd
				}
				_, size := utf8.DecodeLastRuneInString(text[i:end])
				end -= size
			}
			i = end
		}
		n = n.next
	}
	return -1
}

// set is a set of characters with a fast path for ASCII.
type set struct {
	ascii [utf8.RuneSelf]bool // membership of ASCII characters, as in all
	all   *ucd.Set
}

func newSet(spans []ucd.Span) *set {
	s := &set{all: ucd.NewSet(spans)}
	for c := range s.ascii {
		s.ascii[c] = s.all.Has(rune(c))
	}
	return s
}

// run returns the end and the length, in characters, of the run of characters of the set that
// starts at i. It stops at limit characters.
func (s *set) run(text string, i, limit int) (end, count int) {
	for count < limit && i < len(text) {
		if b := text[i]; b < utf8.RuneSelf {
			if !s.ascii[b] {
				break
			}
			i++
		} else {
			c, n := utf8.DecodeRuneInString(text[i:])
			if !s.all.Has(c) {
				break
			}
			i += n
		}
		count++
	}
	return i, count
}
