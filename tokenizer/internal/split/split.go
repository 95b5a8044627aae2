// Package split splits text into words with the steps of a pre-tokenizer.
package split

import (
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2"

	"github.com/easyrl/easyrl/tokenizer/internal/budget"
)

// Step is one step of a pre-tokenizer. Split appends pieces of text[from:] to to,
// in order, and returns the position that it has reached: the length of text when
// it is done. Pieces may be empty.
type Step interface {
	Split(text string, from int, to *Pieces) (next int)
}

// Batch is the number of matches to search at a time.
const Batch = 256

// Pieces is the reusable output of a Step.
type Pieces struct {
	List   []string
	Budget *budget.Budget
	found  [][2]int // matches
}

// Finder finds a pattern. Matches appends about limit matches from a position on,
// ascending and not overlapping, each its start and its end. It returns the end
// of the last match, or the text's length if there are no more or the budget is
// spent.
type Finder interface {
	Matches(b *budget.Budget, dst [][2]int, text string, from, limit int) (found [][2]int, next int)
}

// Behavior determines what a split does with matches.
type Behavior string

// The behaviors, as tokenizer.json spells them.
const (
	Isolated           Behavior = "Isolated"
	Removed            Behavior = "Removed"
	Contiguous         Behavior = "Contiguous"
	MergedWithPrevious Behavior = "MergedWithPrevious"
	MergedWithNext     Behavior = "MergedWithNext"
)

// Pattern splits at the matches of a pattern or, inverted, at the text between
// them.
type Pattern struct {
	Find     Finder
	Behavior Behavior
	Invert   bool
}

// Split implements Step.
func (p *Pattern) Split(text string, from int, to *Pieces) (next int) {
	limit := Batch
	if p.Behavior != Isolated && p.Behavior != Removed { // pieces may grow
		limit = math.MaxInt
	}
	to.found, next = p.Find.Matches(to.Budget, to.found[:0], text, from, limit)
	last := lastPiece{text: text}
	done := from
	for _, m := range to.found {
		if done < m[0] {
			p.add(to, &last, done, m[0], p.Invert)
		}
		p.add(to, &last, m[0], m[1], !p.Invert)
		done = m[1]
	}
	if done < next {
		p.add(to, &last, done, next, p.Invert)
	}
	return next
}

// lastPiece is the piece that the next part may be joined to.
type lastPiece struct {
	text         string
	start        int
	there, match bool // match: the pattern matched its last part
}

// add appends a part of the text as a piece or joins it to the last piece. match
// reports whether the pattern matched the part.
func (p *Pattern) add(to *Pieces, last *lastPiece, start, end int, match bool) {
	join := false
	switch p.Behavior {
	case Removed:
		if match {
			return
		}
	case Contiguous:
		join = match == last.match
	case MergedWithPrevious:
		join = match && !last.match
	case MergedWithNext:
		join = !match && last.match
	}
	if join && last.there {
		to.List[len(to.List)-1] = last.text[last.start:end]
	} else {
		to.List = append(to.List, last.text[start:end])
		last.start = start
	}
	last.there, last.match = true, match
}

// Literal finds a string.
type Literal string

// Matches implements Finder.
func (l Literal) Matches(_ *budget.Budget, dst [][2]int, text string, from, limit int) ([][2]int, int) {
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

// The patterns of vocabularies without a tokenizer.json. GPT-2's is also that of a
// ByteLevel step with use_regex; Qwen2's is also Qwen3's.
const (
	GPT2  = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	Qwen2 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|` +
		`\s+(?!\S)|\s+`
)

// Regexp finds the matches of a regular expression that matcher does not support.
type Regexp struct {
	*regexp2.Regexp
	Map func(rune) rune // from the text's characters to the expression's; nil keeps them
}

// Compile returns the fastest finder that supports a regular expression.
func Compile(pattern string) (Finder, error) {
	if p, ok := compileMatcher(pattern); ok {
		return p, nil
	}
	reduced, err := reduce(pattern)
	if err != nil {
		return nil, err
	}
	re, err := regexp2.Compile(reduced.pattern, regexp2.Multiline)
	if err != nil {
		return nil, err
	}
	re.MatchTimeout = budget.MatchTimeout
	return Regexp{re, reduced.standIn}, nil
}

// Matches implements Finder; it returns all matches at once.
func (r Regexp) Matches(b *budget.Budget, dst [][2]int, text string, _, _ int) ([][2]int, int) {
	runes := []rune(text)
	if r.Map != nil {
		for i, c := range runes {
			runes[i] = r.Map(c)
		}
	}
	at, offset := 0, 0 // a rune's index and byte offset
	to := func(index int) int {
		for ; at < index; at++ {
			_, n := utf8.DecodeRuneInString(text[offset:])
			offset += n
		}
		return offset
	}
	began := time.Now()
	m, err := r.FindRunesMatch(runes)
	for m != nil && err == nil {
		start := to(m.Index)
		dst = append(dst, [2]int{start, to(m.Index + m.Length)})
		now := time.Now()
		if !b.Ran(now.Sub(began)) {
			break
		}
		began = now
		m, err = r.FindNextMatch(m)
	}
	if err != nil { // its time limit
		b.Fail("a match of the regular expression %q takes more than %v", r.String(), budget.MatchTimeout)
	}
	return dst, len(text)
}

// SpacePrefix puts a space before text that does not start with one.
type SpacePrefix struct{}

// Split implements Step.
func (SpacePrefix) Split(text string, _ int, to *Pieces) int {
	prefixed := text
	if text[0] != ' ' {
		prefixed = " " + text
	}
	to.List = append(to.List, prefixed)
	return len(text)
}
