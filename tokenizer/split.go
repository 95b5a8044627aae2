package tokenizer

import (
	"math"
	"strings"
	"unicode/utf8"

	"github.com/dlclark/regexp2"

	"github.com/easyrl/easyrl/tokenizer/internal/scan"
)

// A splitter is one step of a pre-tokenizer: it cuts text into pieces, in order.
// It cuts from a place on, the first time 0, and returns the place up to which it
// did, at the end the text's length. Pieces may be empty.
type splitter interface {
	split(text string, from int, to *pieces) (next int)
}

// batch is how many matches are looked for at a time.
const batch = 256

// pieces is what a splitter made; it may be used again.
type pieces struct {
	list  []string
	found [][2]int // matches
}

// A finder appends matches of a pattern, ascending and not overlapping, each its
// start and its end: of those from a place on, about limit. It returns the end of
// the last, or the text's length where there are no more.
type finder interface {
	Matches(dst [][2]int, text string, from, limit int) (found [][2]int, next int)
}

// behavior says what a split does with what the pattern matched.
type behavior string

const (
	isolated           behavior = "Isolated"
	removed            behavior = "Removed"
	contiguous         behavior = "Contiguous"
	mergedWithPrevious behavior = "MergedWithPrevious"
	mergedWithNext     behavior = "MergedWithNext"
)

// patternSplit cuts at the matches of a pattern, or, inverted, at what is
// between them.
type patternSplit struct {
	find     finder
	behavior behavior
	invert   bool
}

func (p *patternSplit) split(text string, from int, to *pieces) (next int) {
	limit := batch
	if p.behavior != isolated && p.behavior != removed { // pieces may grow
		limit = math.MaxInt
	}
	to.found, next = p.find.Matches(to.found[:0], text, from, limit)
	last := lastPiece{text: text}
	done := from
	for _, m := range to.found {
		if done < m[0] {
			p.add(to, &last, done, m[0], p.invert)
		}
		p.add(to, &last, m[0], m[1], !p.invert)
		done = m[1]
	}
	if done < next {
		p.add(to, &last, done, next, p.invert)
	}
	return next
}

// lastPiece is the piece that a part may be joined to.
type lastPiece struct {
	text         string
	start        int
	there, match bool // match: the pattern matched its last part
}

// add makes a part of the text, which the pattern matched or not, a piece or joins
// it to the last.
func (p *patternSplit) add(to *pieces, last *lastPiece, start, end int, match bool) {
	join := false
	switch p.behavior {
	case removed:
		if match {
			return
		}
	case contiguous:
		join = match == last.match
	case mergedWithPrevious:
		join = match && !last.match
	case mergedWithNext:
		join = !match && last.match
	}
	if join && last.there {
		to.list[len(to.list)-1] = last.text[last.start:end]
	} else {
		to.list = append(to.list, last.text[start:end])
		last.start = start
	}
	last.there, last.match = true, match
}

// literal finds a string.
type literal string

func (l literal) Matches(dst [][2]int, text string, from, limit int) ([][2]int, int) {
	for l != "" && len(dst) < limit {
		i := strings.Index(text[from:], string(l))
		if i < 0 {
			return dst, len(text)
		}
		dst = append(dst, [2]int{from + i, from + i + len(l)})
		from += i + len(l)
	}
	if l == "" {
		from = len(text)
	}
	return dst, from
}

// regex finds what a regular expression matches that package scan does not know.
type regex struct{ re *regexp2.Regexp }

func newFinder(pattern string) (finder, error) {
	if s := scan.New(pattern); s != nil {
		return s, nil
	}
	if p, ok := scan.Compile(pattern); ok {
		return p, nil
	}
	re, err := regexp2.Compile(pattern, regexp2.None)
	if err != nil {
		return nil, err
	}
	return regex{re}, nil
}

func (r regex) Matches(dst [][2]int, text string, _, _ int) ([][2]int, int) { // all of them
	runes := []rune(text)
	at, offset := 0, 0 // a rune's index and its byte
	to := func(index int) int {
		for ; at < index; at++ {
			_, n := utf8.DecodeRuneInString(text[offset:])
			offset += n
		}
		return offset
	}
	m, err := r.re.FindRunesMatch(runes)
	for m != nil && err == nil { // err is the time limit's, and there is none
		start := to(m.Index)
		dst = append(dst, [2]int{start, to(m.Index + m.Length)})
		m, err = r.re.FindNextMatch(m)
	}
	return dst, len(text)
}

// spacePrefix puts a space before text that does not start with one.
type spacePrefix struct{}

func (spacePrefix) split(text string, _ int, to *pieces) int {
	prefixed := text
	if text[0] != ' ' {
		prefixed = " " + text
	}
	to.list = append(to.list, prefixed)
	return len(text)
}
