package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2"

	"github.com/easyrl/easyrl/tokenizer/internal/scan"
)

// A splitter is one step of a pre-tokenizer: it cuts text into pieces, in order.
// Pieces may be empty.
type splitter interface {
	split(text string, emit func(piece string))
}

// A finder yields the matches of a pattern, ascending and not overlapping.
type finder interface {
	Matches(text string, yield func(start, end int))
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

// span is a part of the text and whether the pattern matched it.
type span struct {
	start, end int
	match      bool
}

func (p *patternSplit) split(text string, emit func(string)) {
	if p.behavior == isolated || p.behavior == removed {
		p.spans(text, func(s span) {
			if p.behavior == isolated || !s.match {
				emit(text[s.start:s.end])
			}
		})
		return
	}
	var pieces []span // match: the last span that went into it
	p.spans(text, func(s span) {
		last := len(pieces) - 1
		before := last >= 0 && pieces[last].match
		join := false
		switch p.behavior {
		case contiguous:
			join = s.match == before
		case mergedWithPrevious:
			join = s.match && !before
		case mergedWithNext:
			join = !s.match && before
		}
		if join && last >= 0 {
			pieces[last].end, pieces[last].match = s.end, s.match
			return
		}
		pieces = append(pieces, s)
	})
	for _, s := range pieces {
		emit(text[s.start:s.end])
	}
}

// spans yields all of text as what matched and what is between.
func (p *patternSplit) spans(text string, yield func(span)) {
	done := 0
	p.find.Matches(text, func(start, end int) {
		if done < start {
			yield(span{done, start, p.invert})
		}
		yield(span{start, end, !p.invert})
		done = end
	})
	if done < len(text) {
		yield(span{done, len(text), p.invert})
	}
}

// literal finds a string.
type literal string

func (l literal) Matches(text string, yield func(int, int)) {
	for from := 0; l != ""; {
		i := strings.Index(text[from:], string(l))
		if i < 0 {
			return
		}
		yield(from+i, from+i+len(l))
		from += i + len(l)
	}
}

// numerals finds single numerals.
type numerals struct{}

func (numerals) Matches(text string, yield func(int, int)) {
	for i := 0; i < len(text); {
		c, n := utf8.DecodeRuneInString(text[i:])
		if unicode.IsNumber(c) {
			yield(i, i+n)
		}
		i += n
	}
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

func (r regex) Matches(text string, yield func(int, int)) {
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
		yield(start, to(m.Index+m.Length))
		m, err = r.re.FindNextMatch(m)
	}
}

// spacePrefix puts a space before text that does not start with one.
type spacePrefix struct{}

func (spacePrefix) split(text string, emit func(string)) {
	if text[0] != ' ' {
		text = " " + text
	}
	emit(text)
}
