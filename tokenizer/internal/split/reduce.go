package split

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/easyrl/easyrl/tokenizer/internal/ucd"
)

// reduced is a pattern in Oniguruma's syntax, rewritten for package regexp2, whose Unicode
// tables and case folding differ from Oniguruma's. The idea: characters that belong to the
// same sets of the pattern are equal for it. So standIn replaces each non-ASCII character of
// the text by the first of its equals, and the sets of the rewritten pattern list only ASCII
// characters and these stand-ins. Case folding is applied to the sets. The pattern expects
// regexp2's multi-line mode.
type reduced struct {
	pattern  string
	starts   []rune // ascending starts of ranges of equal characters, from the first non-ASCII one on
	standIns []rune // stand-in by index in starts
}

// standIn returns the character that replaces c in the text.
func (r *reduced) standIn(c rune) rune {
	if c < utf8.RuneSelf {
		return c
	}
	i, ok := slices.BinarySearch(r.starts, c)
	if !ok {
		i--
	}
	return r.standIns[i]
}

// reducer rewrites a pattern. It uses the parser's methods for classes and escapes, but not
// its trees.
type reducer struct {
	parser
	parts []part
	folds []bool // values of fold outside the open groups, innermost last
}

// part is a part of the rewritten pattern: text, or a set if text is empty.
type part struct {
	text  string
	spans []ucd.Span
}

// reduce rewrites a pattern. It returns an error for a pattern that it does not support.
func reduce(pattern string) (*reduced, error) {
	r := &reducer{parser: parser{rest: pattern, properties: make(map[string][]ucd.Span)}}
	if len(pattern) > maxPattern || !utf8.ValidString(pattern) {
		return nil, fmt.Errorf("is %d bytes, expected valid UTF-8 of at most %d", len(pattern), maxPattern)
	}
	for r.rest != "" {
		before := r.rest
		if err := r.next(); err != nil {
			return nil, err
		}
		if r.bad {
			return nil, fmt.Errorf("%.20q is not supported", before)
		}
	}
	return r.reduced(), nil
}

// text adds text.
func (r *reducer) text(s string) { r.parts = append(r.parts, part{text: s}) }

// set adds a set of characters, to which (?i) applies.
func (r *reducer) set(spans []ucd.Span) {
	if r.fold {
		spans = r.folded(spans)
	}
	r.parts = append(r.parts, part{spans: spans})
}

// next rewrites the next item of the pattern.
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
		last := len(r.folds) - 1
		r.fold = r.folds[last]
		r.folds = r.folds[:last]
		r.text(")")
	case c == '{' && r.take(","):
		r.text("{0,")
	case c == '+' && r.possess(): // possess has added the parts
	case strings.ContainsRune(`.^$|?*+{}`, c), c < utf8.RuneSelf && !r.fold:
		r.text(string(c))
	default:
		r.set([]ucd.Span{{Lo: c, Hi: c}})
	}
	return nil
}

// possess makes the last quantifier possessive, as an atomic group: x*+ becomes (?>x*). It
// reports whether it did: the last part must be a quantifier that repeats a set or a
// character.
func (r *reducer) possess() bool {
	n := len(r.parts)
	if n < 2 || r.parts[n-1].text == "" {
		return false
	}
	quantifier, atom := r.parts[n-1].text, r.parts[n-2].text
	isSet := atom == ""
	isCharacter := len(atom) == 1 && !strings.Contains("?*+})", atom)
	if !strings.Contains("?*+", quantifier) || !isSet && !isCharacter {
		return false
	}
	r.parts = append(r.parts, part{text: ")"})
	r.parts = slices.Insert(r.parts, n-2, part{text: "(?>"})
	return true
}

// escaped rewrites an escape after its backslash.
func (r *reducer) escaped() error {
	word := part{spans: ucd.Word()}
	switch {
	case r.take("b"): // (?:(?<=\w)(?!\w)|(?<!\w)(?=\w))
		r.parts = append(r.parts, part{text: "(?:(?<="}, word, part{text: ")(?!"}, word, part{text: ")|(?<!"}, word,
			part{text: ")(?="}, word, part{text: "))"})
	case r.take("B"): // (?:(?<=\w)(?=\w)|(?<!\w)(?!\w))
		r.parts = append(r.parts, part{text: "(?:(?<="}, word, part{text: ")(?="}, word, part{text: ")|(?<!"}, word,
			part{text: ")(?!"}, word, part{text: "))"})
	case r.take("R"): // any line break
		r.text(`(?>\r\n|`)
		r.parts = append(r.parts,
			part{spans: []ucd.Span{{Lo: '\n', Hi: '\r'}, {Lo: 0x85, Hi: 0x85}, {Lo: 0x2028, Hi: 0x2029}}})
		r.text(")")
	case r.rest != "" && strings.IndexByte("AzZG", r.rest[0]) >= 0:
		r.text(`\` + r.rest[:1])
		r.rest = r.rest[1:]
	default:
		if spans := r.escape(outBrackets); single(spans) {
			r.set(spans)
		} else {
			r.parts = append(r.parts, part{spans: spans})
		}
	}
	return nil
}

// group rewrites the start of a group after its parenthesis. The flag i becomes part of the
// sets.
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
	// (?i) without a colon applies up to the end of its group. In Oniguruma it then contains
	// the alternatives after it, which here makes no difference if the flag comes first or no
	// alternative follows.
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
	case (first || !strings.Contains(r.rest, "|")) && r.take(")"):
	default:
		return fmt.Errorf("flags before %.10q are not supported, expected (?i: ...)", r.rest)
	}
	r.fold = fold
	return nil
}

// reduced chooses the stand-ins and writes the pattern.
func (r *reducer) reduced() *reduced {
	edges := []rune{utf8.RuneSelf} // starts and ends of all spans: between two, characters are equal
	for _, p := range r.parts {
		for _, s := range p.spans {
			edges = append(edges, s.Lo, s.Hi+1)
		}
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	first, _ := slices.BinarySearch(edges, utf8.RuneSelf)
	out := &reduced{starts: edges[first:]}
	standIn := make(map[string]rune) // by membership in the sets: a byte for each part
	var standIns []rune              // without duplicates
	for _, c := range out.starts {
		membership := make([]byte, len(r.parts))
		for i, p := range r.parts {
			if ucd.Contains(p.spans, c) {
				membership[i] = 1
			}
		}
		if _, ok := standIn[string(membership)]; !ok {
			standIn[string(membership)] = c
			standIns = append(standIns, c)
		}
		out.standIns = append(out.standIns, standIn[string(membership)])
	}
	var b strings.Builder
	for _, p := range r.parts {
		b.WriteString(p.text)
		if p.text == "" {
			writeSet(&b, p.spans, standIns)
		}
	}
	out.pattern = b.String()
	return out
}

// writeSet writes a class of the ASCII characters and the stand-ins in spans.
func writeSet(b *strings.Builder, spans []ucd.Span, standIns []rune) {
	var reduced []ucd.Span
	for _, s := range spans {
		if s.Lo < utf8.RuneSelf {
			reduced = append(reduced, ucd.Span{Lo: s.Lo, Hi: min(s.Hi, utf8.RuneSelf-1)})
		}
	}
	for _, c := range standIns {
		if ucd.Contains(spans, c) {
			reduced = append(reduced, ucd.Span{Lo: c, Hi: c})
		}
	}
	if len(reduced) == 0 {
		b.WriteString("(?!)") // never matches
		return
	}
	b.WriteByte('[')
	for _, s := range reduced {
		fmt.Fprintf(b, `\x{%x}-\x{%x}`, s.Lo, s.Hi)
	}
	b.WriteByte(']')
}
