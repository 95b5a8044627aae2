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

// Batch is the number of matches that a step searches at a time. Batches keep memory small
// for long texts.
const Batch = 256

// Pieces is the reusable output of a Step.
type Pieces struct {
	List   []string
	Budget *budget.Budget
	found  [][2]int // matches; scratch space of Pattern.Split
}

// Finder finds a pattern. Matches appends matches in text[from:] to dst until dst has limit
// matches; a finder may append all. A match is its start and its end, in bytes of text;
// matches ascend and do not overlap. next is the position from which to search on: the end
// of the last match, or the text's length if there are no more matches or the budget is
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

// Pattern splits text at the matches of a pattern. With Invert, matches and the text between
// them change roles.
type Pattern struct {
	Find     Finder
	Behavior Behavior
	Invert   bool
}

// Split implements Step.
func (p *Pattern) Split(text string, from int, to *Pieces) (next int) {
	limit := Batch
	if p.Behavior != Isolated && p.Behavior != Removed {
		limit = math.MaxInt // the last piece of a batch could have to join the first of the next
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

// lastPiece is the last piece of to.List, which the next part of the text may join.
type lastPiece struct {
	text   string // text that is split
	start  int    // offset of the piece in text
	exists bool
	match  bool // the pattern matched the last part of the piece
}

// add appends text[start:end] as a piece or joins it to the last piece. match means that the
// pattern matched it.
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
	if join && last.exists {
		to.List[len(to.List)-1] = last.text[last.start:end]
	} else {
		to.List = append(to.List, last.text[start:end])
		last.start = start
	}
	last.exists = true
	last.match = match
}

// Literal finds a string.
type Literal string

// Matches implements Finder. An empty string has no matches.
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

// Patterns for vocabularies without a tokenizer.json. The step ByteLevel uses GPT-2's too, if
// use_regex is set; Qwen3 uses Qwen2's.
const (
	GPT2  = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	Qwen2 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|` +
		`\s+(?!\S)|\s+`
)

// Regexp finds the matches of a regular expression that matcher does not support.
type Regexp struct {
	*regexp2.Regexp
	Map func(rune) rune // maps the characters of a text before the search; nil keeps them
}

// Compile returns the fastest finder that supports a regular expression in Oniguruma's
// syntax, or an error if none does.
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
	at, offset := 0, 0                  // index and byte offset of a rune
	byteOffset := func(index int) int { // indices must ascend
		for ; at < index; at++ {
			_, n := utf8.DecodeRuneInString(text[offset:])
			offset += n
		}
		return offset
	}
	began := time.Now()
	m, err := r.FindRunesMatch(runes)
	for m != nil && err == nil {
		start := byteOffset(m.Index)
		dst = append(dst, [2]int{start, byteOffset(m.Index + m.Length)})
		now := time.Now()
		if !b.Ran(now.Sub(began)) {
			break
		}
		began = now
		m, err = r.FindNextMatch(m)
	}
	if err != nil { // regexp2 returns no other error than a timeout
		b.Fail("a match of the regular expression %q takes more than %v", r.String(), budget.MatchTimeout)
	}
	return dst, len(text)
}

// SpacePrefix puts a space before text that does not start with one.
type SpacePrefix struct{}

// Split implements Step. text is not empty.
func (SpacePrefix) Split(text string, _ int, to *Pieces) int {
	prefixed := text
	if text[0] != ' ' {
		prefixed = " " + text
	}
	to.List = append(to.List, prefixed)
	return len(text)
}
