package split

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/easyrl/easyrl/tokenizer/internal/ucd"
)

// reduced is a pattern of Oniguruma's for a library that has no tables like
// Oniguruma's. Its sets list a few characters instead of thousands: Map replaces
// every character of the text by one that stands for all that the pattern does
// not distinguish. Case is part of the sets. The pattern expects the library's
// multi-line mode.
type reduced struct {
	pattern string
	starts  []rune // of the ranges from the first non-ASCII character on
	stands  []rune // for the characters of the range
}

// standIn returns the character that stands for c.
func (r *reduced) standIn(c rune) rune {
	if c < utf8.RuneSelf {
		return c
	}
	i, ok := slices.BinarySearch(r.starts, c)
	if !ok {
		i--
	}
	return r.stands[i]
}

// reducer rewrites a pattern. A part of the result is either text or a set.
type reducer struct {
	parser
	parts []part
	folds []bool // of the groups that are open
}

type part struct {
	text  string
	spans []ucd.Span // if text is empty
}

// reduce rewrites a pattern.
func reduce(pattern string) (*reduced, error) {
	r := &reducer{parser: parser{rest: pattern, properties: make(map[string][]ucd.Span)}}
	if len(pattern) > maxPattern || !utf8.ValidString(pattern) {
		return nil, fmt.Errorf("is %d bytes, expected valid UTF-8 of at most %d", len(pattern), maxPattern)
	}
	for r.rest != "" {
		at := r.rest
		if err := r.next(); err != nil {
			return nil, err
		}
		if r.bad {
			return nil, fmt.Errorf("%.20q is not supported", at)
		}
	}
	return r.reduced(), nil
}

func (r *reducer) text(s string) { r.parts = append(r.parts, part{text: s}) }

func (r *reducer) set(spans []ucd.Span) {
	if r.fold {
		spans = r.folded(spans)
	}
	r.parts = append(r.parts, part{spans: spans})
}

func (r *reducer) next() error {
	switch c := r.char(); {
	case c == '[':
		r.set(r.class())
	case c == '\\':
		return r.escaped()
	case c == '(':
		return r.group()
	case c == ')':
		if len(r.folds) == 0 {
			return errors.New("unmatched )")
		}
		r.fold, r.folds = r.folds[len(r.folds)-1], r.folds[:len(r.folds)-1]
		r.text(")")
	case c == '{' && r.take(","):
		r.text("{0,")
	case c == '+' && r.possess():
	case strings.ContainsRune(`.^$|?*+{}`, c), c < utf8.RuneSelf && !r.fold:
		r.text(string(c))
	default:
		r.set([]ucd.Span{{Lo: c, Hi: c}})
	}
	return nil
}

// possess makes the quantifier before possessive, if it repeats a set or one
// character.
func (r *reducer) possess() bool {
	n := len(r.parts)
	if n < 2 || r.parts[n-1].text == "" {
		return false
	}
	quantifier, atom := r.parts[n-1].text, r.parts[n-2].text
	if !strings.Contains("?*+", quantifier) || len(atom) > 1 || atom != "" && strings.Contains("?*+})", atom) {
		return false
	}
	r.parts = append(r.parts, part{text: ")"})
	r.parts = slices.Insert(r.parts, n-2, part{text: "(?>"})
	return true
}

// escaped rewrites the rest after a backslash.
func (r *reducer) escaped() error {
	word := part{spans: ucd.Word()}
	switch {
	case r.take("b"): // between a word character and another
		r.parts = append(r.parts, part{text: "(?:(?<="}, word, part{text: ")(?!"}, word, part{text: ")|(?<!"}, word,
			part{text: ")(?="}, word, part{text: "))"})
	case r.take("B"):
		r.parts = append(r.parts, part{text: "(?:(?<="}, word, part{text: ")(?="}, word, part{text: ")|(?<!"}, word,
			part{text: ")(?!"}, word, part{text: "))"})
	case r.take("R"):
		r.text(`(?>\r\n|`)
		r.parts = append(r.parts,
			part{spans: []ucd.Span{{Lo: '\n', Hi: '\r'}, {Lo: 0x85, Hi: 0x85}, {Lo: 0x2028, Hi: 0x2029}}})
		r.text(")")
	case r.rest != "" && strings.IndexByte("AzZG", r.rest[0]) >= 0:
		r.text(`\` + r.rest[:1])
		r.rest = r.rest[1:]
	default:
		if spans := r.escape(false); single(spans) {
			r.set(spans)
		} else {
			r.parts = append(r.parts, part{spans: spans})
		}
	}
	return nil
}

// group rewrites the rest after a parenthesis: its flags become part of the sets.
func (r *reducer) group() error {
	if !strings.HasPrefix(r.rest, "?") {
		r.folds = append(r.folds, r.fold)
		r.text("(")
		return nil
	}
	for _, kind := range []string{"?:", "?=", "?!", "?>", "?<=", "?<!", "?m:"} {
		if r.take(kind) {
			r.folds = append(r.folds, r.fold)
			r.text("(" + strings.Replace(kind, "m", "s", 1)) // Oniguruma's m is other libraries' s
			return nil
		}
	}
	var fold bool
	first := len(r.parts) == 0 || strings.HasPrefix(r.parts[len(r.parts)-1].text, "(?:")
	switch {
	case r.take("?i"):
		fold = true
	case r.take("?-i"):
		fold = false
	default:
		return fmt.Errorf("group (%.10q is not supported", r.rest)
	}
	switch {
	case r.take(":"):
		r.folds = append(r.folds, r.fold)
		r.text("(?:")
	case (first || !strings.Contains(r.rest, "|")) && r.take(")"): // elsewhere it would hold the alternatives
	default:
		return fmt.Errorf("flags before %.10q are not supported, expected (?i: ...)", r.rest)
	}
	r.fold = fold
	return nil
}

// reduced chooses the characters that stand for others, and writes the pattern.
func (r *reducer) reduced() *reduced {
	edges := []rune{utf8.RuneSelf}
	for _, p := range r.parts {
		for _, s := range p.spans {
			edges = append(edges, s.Lo, s.Hi+1)
		}
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	first, _ := slices.BinarySearch(edges, utf8.RuneSelf)
	out := &reduced{starts: edges[first:]}
	byKind := make(map[string]rune) // by the sets that have a range
	var standing []rune
	for _, c := range out.starts {
		kind := make([]byte, len(r.parts))
		for i, p := range r.parts {
			if ucd.Contains(p.spans, c) {
				kind[i] = 1
			}
		}
		if _, ok := byKind[string(kind)]; !ok {
			byKind[string(kind)] = c
			standing = append(standing, c)
		}
		out.stands = append(out.stands, byKind[string(kind)])
	}
	var b strings.Builder
	for _, p := range r.parts {
		b.WriteString(p.text)
		if p.text == "" {
			writeSet(&b, p.spans, standing)
		}
	}
	out.pattern = b.String()
	return out
}

// writeSet writes the ASCII characters of spans and those that stand for others.
func writeSet(b *strings.Builder, spans []ucd.Span, standing []rune) {
	var few []ucd.Span
	for _, s := range spans {
		if s.Lo < utf8.RuneSelf {
			few = append(few, ucd.Span{Lo: s.Lo, Hi: min(s.Hi, utf8.RuneSelf-1)})
		}
	}
	for _, c := range standing {
		if ucd.Contains(spans, c) {
			few = append(few, ucd.Span{Lo: c, Hi: c})
		}
	}
	if len(few) == 0 {
		b.WriteString("(?!)")
		return
	}
	b.WriteByte('[')
	for _, s := range few {
		fmt.Fprintf(b, `\x{%x}-\x{%x}`, s.Lo, s.Hi)
	}
	b.WriteByte(']')
}
