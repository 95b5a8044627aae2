// Package ucd holds the Unicode tables of Hugging Face tokenizers. Each of its components
// follows another version: the regular expressions Unicode 16, normalization Unicode 9, case
// and numerals Unicode 17. So this package does not depend on the Unicode version of Go's
// library.
//
// testdata/python/tables.py of package tokenizer writes tables.txt. Functions parse it at
// each call, so callers should keep the results.
package ucd

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

//go:embed tables.txt
var source string

// line returns the fields of the line "name: fields" of tables.txt, or none if it is missing.
func line(name string) []string {
	_, rest, _ := strings.Cut(source, "\n"+name+": ")
	rest, _, _ = strings.Cut(rest, "\n")
	return strings.Fields(rest)
}

// number parses a hexadecimal number of tables.txt.
func number(text string) rune {
	n, err := strconv.ParseInt(text, 16, 32)
	if err != nil {
		panic(fmt.Sprintf("ucd: table has %q, expected a hexadecimal number", text))
	}
	return rune(n)
}

// parts returns the characters of the wanted classes of a line. The line divides all of
// Unicode, from 0 on, into runs: pairs of a class and a length.
func parts(name string, wanted []string) []Span {
	var all []Span
	next := rune(0)
	for run := range slices.Chunk(line(name), 2) {
		first := next
		next += number(run[1])
		if slices.Contains(wanted, run[0]) {
			all = append(all, Span{first, next - 1})
		}
	}
	return all
}

// members returns the set of a line: pairs of the gap before a span and its length.
func members(name string) []Span {
	var all []Span
	next := rune(0)
	for run := range slices.Chunk(line(name), 2) {
		first := next + number(run[0])
		next = first + number(run[1])
		all = append(all, Span{first, next - 1})
	}
	return all
}

// mapping returns the map of a line. Each row of four numbers (first, count, stride, delta)
// maps count characters, from first on in steps of stride, to themselves plus delta.
func mapping(name string) map[rune]rune {
	all := make(map[rune]rune)
	for row := range slices.Chunk(line(name), 4) {
		c, count, stride, delta := number(row[0]), number(row[1]), number(row[2]), number(row[3])
		for range count {
			all[c] = c + delta
			c += stride
		}
	}
	return all
}

// Space returns the characters of \s, which are the same in all components.
func Space() *Set { return NewSet(union("whitespace")) }

// Word returns the characters of \w outside of brackets, where Oniguruma adds some of
// Latin-1's numerals.
func Word() []Span {
	return Tidy(append(union("word"), Span{'²', '³'}, Span{'¹', '¹'}, Span{'¼', '¾'}))
}

// Numeric returns the characters that the Digits step splits off.
func Numeric() *Set { return NewSet(members("numeric")) }

// Punctuation returns the characters that the Punctuation step splits off.
func Punctuation() *Set { return NewSet(members("punctuationstep")) }

// RegexWord returns the word characters of the Whitespace step and of added
// tokens that are single words.
func RegexWord() *Set { return NewSet(members("regexword")) }

// Accents returns the characters that StripAccents removes.
func Accents() *Set { return NewSet(members("accents")) }

// Newer returns the characters that normalization leaves alone because it follows
// a Unicode older than they are.
func Newer() *Set { return NewSet(members("newer")) }

// Lowercase returns the lower case of the characters that have one, except for
// U+0130, whose lower case is two characters.
func Lowercase() map[rune]rune { return mapping("lowercase") }

// Property returns the characters of a property as \p{…} of Oniguruma names it:
// a general category, a script, or one of a few others. It ignores case, spaces, hyphens
// and underscores in name. It returns false for an unknown name.
func Property(name string) ([]Span, bool) {
	name = strings.ToLower(strings.NewReplacer(" ", "", "-", "", "_", "").Replace(name))
	switch name {
	case "any":
		return []Span{{0, unicode.MaxRune}}, true
	case "ascii":
		return []Span{{0, unicode.MaxASCII}}, true
	case "assigned":
		return Complement(union("cn")), true
	case "graph":
		return Complement(union("whitespace cc cs cn")), true
	case "print":
		return Complement(union("cc cs cn zl zp")), true
	case "blank":
		return Tidy(append(union("zs"), Span{'\t', '\t'})), true
	}
	spans := union(name)
	return spans, len(spans) > 0 || name == "cs" || name == "surrogate" // text has no surrogates
}

// isSet reports whether a line of tables.txt is the set of a property.
func isSet(name string) bool {
	_, table, _ := strings.Cut(source, "\nscripts: ")
	table, _, _ = strings.Cut(table, "\nalias: ")
	return strings.Contains(table, "\n"+name+": ")
}

// alias returns the name of a property in tables.txt.
func alias(name string) string {
	_, full, ok := strings.Cut(source, "\nalias: "+name+" ")
	if !ok {
		return name
	}
	full, _, _ = strings.Cut(full, "\n")
	return full
}

// union returns the characters of the properties in names, which spaces separate.
func union(names string) []Span {
	names = expand(names)
	var all []Span
	var kinds []string // categories and scripts, whose names do not overlap
	for _, name := range strings.Fields(names) {
		if name = alias(name); isSet(name) {
			all = append(all, members(name)...)
		} else {
			kinds = append(kinds, name)
		}
	}
	if len(kinds) > 0 {
		all = append(append(all, parts("categories", kinds)...), parts("scripts", kinds)...)
	}
	return Tidy(all)
}

// expand replaces composite properties by their parts.
func expand(names string) string {
	var all []string
	for _, name := range strings.Fields(names) {
		if parts := partsOf(name); parts != "" {
			name = expand(parts)
		}
		all = append(all, name)
	}
	return strings.Join(all, " ")
}

// partsOf returns the properties that a composite property consists of, or "" for another.
func partsOf(name string) string {
	switch name {
	case "l", "letter":
		return "lu ll lt lm lo"
	case "m", "mark", "combiningmark":
		return "mn mc me"
	case "n", "number":
		return "nd nl no"
	case "p", "punct", "punctuation":
		return "pc pd ps pe pi pf po"
	case "s", "symbol":
		return "sm sc sk so"
	case "z", "separator":
		return "zs zl zp"
	case "c", "other":
		return "cc cf cn co cs"
	case "lc", "casedletter":
		return "lu ll lt"
	case "digit":
		return "nd"
	case "cntrl":
		return "cc"
	case "space":
		return "whitespace"
	case "alpha", "alphabetic":
		return "l nl otheralphabetic"
	case "alnum":
		return "alpha nd"
	case "word":
		return "alpha m nd pc"
	case "lower", "lowercase":
		return "ll otherlowercase"
	case "upper", "uppercase":
		return "lu otheruppercase"
	case "posixpunct":
		return "p s"
	}
	return ""
}
