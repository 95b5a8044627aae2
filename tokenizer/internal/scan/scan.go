// Package scan matches the patterns that models split text with: the usual ones
// in one pass, others by backtracking.
package scan

import (
	"unicode/utf8"

	"github.com/easyrl/easyrl/tokenizer/internal/budget"
	"github.com/easyrl/easyrl/tokenizer/internal/ucd"
)

// The patterns that most models split text with. The first is GPT-2's, also that
// of a ByteLevel step with use_regex; then Llama-3's and Qwen2's (also Qwen3's).
const (
	GPT2      = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	GPT2Short = `'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	Llama3    = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	Qwen2     = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// Scanner matches this family of patterns in one pass. Its matches cover the
// text, so each starts at the end of the previous one.
type Scanner struct {
	gpt2   bool // GPT-2's, else Llama-3's or Qwen2's
	digits int  // maximum numerals in a match; ignored for GPT-2's
	wide   *classes
}

// New returns the scanner of a pattern, or nil if there is none.
func New(pattern string) *Scanner {
	switch pattern {
	case GPT2, GPT2Short:
		return &Scanner{gpt2: true, wide: newClasses()}
	case Llama3:
		return &Scanner{digits: 3, wide: newClasses()}
	case Qwen2:
		return &Scanner{digits: 1, wide: newClasses()}
	}
	return nil
}

// class is a character class that the patterns distinguish.
type class uint8

const (
	otherClass class = iota
	letterClass
	numberClass
	spaceClass   // white space without \r and \n
	newlineClass // \r and \n
	noClass      // the end of the text
)

// classAt returns the class and the length of the character at i. A byte that is
// not UTF-8 has otherClass.
func (p *Scanner) classAt(s string, i int) (class, int) {
	if i >= len(s) {
		return noClass, 0
	}
	b := s[i]
	if b >= utf8.RuneSelf {
		return p.wide.at(s[i:])
	}
	switch {
	case b|0x20 >= 'a' && b|0x20 <= 'z':
		return letterClass, 1
	case b == ' ' || b == '\t' || b == '\v' || b == '\f':
		return spaceClass, 1
	case b >= '0' && b <= '9':
		return numberClass, 1
	case b == '\n' || b == '\r':
		return newlineClass, 1
	}
	return otherClass, 1
}

// classes are the classes of non-ASCII characters.
type classes struct {
	plane                  []class // of the characters below planeEnd
	letter, number, spaces *ucd.Set
}

const planeEnd = 1 << 16

func newClasses() *classes {
	all := &classes{plane: make([]class, planeEnd), letter: ucd.Letter(), number: ucd.Number(), spaces: ucd.Space()}
	for c := range all.plane {
		all.plane[c] = all.of(rune(c))
	}
	return all
}

func (k *classes) of(c rune) class {
	switch {
	case k.letter.Has(c):
		return letterClass
	case k.number.Has(c):
		return numberClass
	case k.spaces.Has(c):
		return spaceClass
	}
	return otherClass
}

// at returns the class and the length of the character that s starts with.
func (k *classes) at(s string) (class, int) {
	c, n := utf8.DecodeRuneInString(s)
	if c < planeEnd {
		return k.plane[c], n
	}
	return k.of(c), n
}

// run returns the end of the characters of class c from i on.
func (p *Scanner) run(s string, i int, c class) int {
	for {
		k, n := p.classAt(s, i)
		if k != c {
			return i
		}
		i += n
	}
}

// Matches appends the matches in text from a position on until dst has limit,
// each its start and its end. They cover the text up to next.
func (p *Scanner) Matches(_ *budget.Budget, dst [][2]int, text string, from, limit int) (found [][2]int, next int) {
	for from < len(text) && len(dst) < limit {
		end := p.Match(text, from)
		dst = append(dst, [2]int{from, end})
		from = end
	}
	return dst, from
}

// Match returns the end of the match at i < len(s).
func (p *Scanner) Match(s string, i int) int {
	c, n := p.classAt(s, i)
	if s[i] == '\'' {
		if n := p.contraction(s[i+1:]); n > 0 {
			return i + 1 + n
		}
	}
	next, nextN := noClass, 0
	if c == spaceClass || c == otherClass {
		next, nextN = p.classAt(s, i+n)
	}
	blank := s[i] == ' '
	switch {
	case c == letterClass:
		return p.run(s, i+n, letterClass)
	case next == letterClass && (blank || !p.gpt2):
		return p.run(s, i+n+nextN, letterClass)
	case c == numberClass && p.gpt2:
		return p.run(s, i+n, numberClass)
	case c == numberClass:
		return p.number(s, i+n)
	case next == numberClass && blank && p.gpt2:
		return p.run(s, i+n+nextN, numberClass)
	case c == otherClass, next == otherClass && blank:
		end := p.run(s, i+n, otherClass)
		if !p.gpt2 {
			end = p.run(s, end, newlineClass)
		}
		return end
	}
	return p.space(s, i)
}

// number returns the end of a match that has one numeral before i.
func (p *Scanner) number(s string, i int) int {
	for k := 1; k < p.digits; k++ {
		c, n := p.classAt(s, i)
		if c != numberClass {
			break
		}
		i += n
	}
	return i
}

// space returns the end of a match of white space at i: \s*[\r\n]+ if the pattern
// has it, \s+(?!\S), \s+.
func (p *Scanner) space(s string, i int) int {
	end, last, newline := i, i, -1 // last: start of the last character; newline: end of the last \r or \n
	for {
		c, n := p.classAt(s, end)
		if c != spaceClass && c != newlineClass {
			break
		}
		last = end
		end += n
		if c == newlineClass {
			newline = end
		}
	}
	switch {
	case newline >= 0 && !p.gpt2:
		return newline
	case end < len(s) && last > i: // the last space belongs to the next match
		return last
	}
	return end
}

// contraction returns the length of the contraction among s t re ve m ll d that s
// starts with. All patterns but GPT-2's ignore case by Unicode's folding: U+017F
// is an s.
func (p *Scanner) contraction(s string) int {
	if s == "" {
		return 0
	}
	fold := func(b byte) byte { return b }
	if !p.gpt2 {
		fold = func(b byte) byte {
			if b >= 'A' && b <= 'Z' {
				b |= 0x20
			}
			return b
		}
		if len(s) > 1 && s[:2] == "\u017f" {
			return 2
		}
	}
	a, b := fold(s[0]), byte(0)
	if len(s) > 1 {
		b = fold(s[1])
	}
	switch {
	case a == 's', a == 't', a == 'm', a == 'd':
		return 1
	case a == 'r' && b == 'e', a == 'v' && b == 'e', a == 'l' && b == 'l':
		return 2
	}
	return 0
}
