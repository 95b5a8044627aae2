package words

import (
	"slices"
	"strings"
	"unicode"

	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/markup"
)

// Of returns the words and numbers of s in lower case, without filler.
func Of(s string) []string {
	fields := strings.FieldsFunc(strings.ToLower(strings.ReplaceAll(s, "'s ", " ")), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '.' && r != '+' && r != '-' && r != '='
	})
	kept := fields[:0]
	for _, f := range fields {
		if f = strings.Trim(f, "."); len(f) < 2 || f[0] != '-' || f[1] < '0' || f[1] > '9' {
			f = strings.TrimLeft(f, ".-")
		}
		f = strings.TrimRight(f, ".-")
		if n := len(f); n > 2 && f[0] >= '0' && f[0] <= '9' && OneOf(f[n-2:], "st", "nd", "rd", "th") {
			f = f[:n-2]
		}
		switch f {
		case "", "the", "a", "an", "is", "are", "it", "be", "would", "will", "its", "so", "that":
			continue
		case "cannot":
			f = "not"
		}
		kept = append(kept, f)
	}
	return kept
}

// EndsInNothing reports whether a sentence ends by stating that something does not exist.
func EndsInNothing(b []string) bool {
	n := len(b)
	return n >= 3 && b[n-1] == "exist" && b[n-2] == "not" && !Negated(strings.Join(b[:n-2], " "), nil)
}

// Uncommented returns an answer without a comment after it, in parentheses or after a
// comma or a semicolon.
func Uncommented(g string) string {
	g, _, _ = strings.Cut(g, " (")
	g, _, _ = strings.Cut(g, "; ")
	for at := 0; ; {
		i := strings.Index(g[at:], ", ")
		if i < 0 {
			return g
		}
		at += i + 2
		word, _, _ := strings.Cut(g[at:], " ")
		switch strings.ToLower(word) {
		case "not", "with", "after", "before", "since", "because", "as", "so", "which", "who", "whose", "the", "a",
			"an", "by", "for", "in", "at", "where", "when", "while", "although",
			"being", "formed", "caused", "known", "that", "it", "this", "he", "she", "they", "rather":
			return g[:at-2]
		}
		if strings.HasSuffix(word, "'s") && strings.Count(g, ",") == 1 { // Bob, Alice's opponent
			return g[:at-2]
		}
	}
}

// Unbracketed returns g without a remark in parentheses at its end.
func Unbracketed(g string) string {
	if at := strings.LastIndex(g, " ("); at > 0 && strings.HasSuffix(strings.TrimRight(g, "."), ")") {
		return g[:at]
	}
	return g
}

// Possessive reports whether text names something of the answer: "Olivia's sister".
func Possessive(a []string, text string) bool {
	return strings.Contains(strings.ToLower(text), a[len(a)-1]+"'s ")
}

// Rival reports whether a word excludes a wanted word because both are of one kind: another weekday, odd
// for even.
func Rival(a []string, word string) bool {
	return slices.ContainsFunc(kinds(), func(kind expr.Names) bool {
		return kind.Has(word) && !slices.Contains(a, word) && slices.ContainsFunc(a, kind.Has)
	})
}

// IsDate reports whether a is a month and a day, in either order.
func IsDate(a []string) bool {
	return len(a) == 2 && HasDigit(a[0]+a[1]) && slices.ContainsFunc(a, months.Has)
}

// The names of days and months.
const (
	days   expr.Names = "monday tuesday wednesday thursday friday saturday sunday"
	months expr.Names = "january february march april may june july august september october november december"
)

// kinds returns lists of answer words of which one excludes the others.
func kinds() []expr.Names {
	return []expr.Names{
		days, months,
		"even odd neither both", "yes no", "true false", "prime composite", "rational irrational",
		"positive negative zero", "increasing decreasing", "increase decrease", "heads tails",
		"east west north south", "left right", "up down", "first last",
		"ellipse parabola hyperbola circle line point", "acute obtuse equilateral isosceles scalene",
		"red green blue yellow black white orange purple pink brown",
	}
}

// IsVerb reports whether a word after a name may be its verb.
func IsVerb(word string) bool {
	return Ends(word, "s", "ed") || OneOf(word, "has", "had", "will", "can", "did", "won", "got", "sat", "ran")
}

// IsNothing reports whether the words mean that there is no answer.
func IsNothing(a []string) bool {
	switch strings.Join(a, " ") {
	case "none", "no solution", "no solutions", "no real solutions", "no real solution", "no real roots",
		"no integer solutions", "no such", "empty", "empty set",
		"does not exist", "not exist", "dne", "undefined", "not defined", "emptyset", "varnothing", "there no solution",
		"there no solutions", "there no real solutions":
		return true
	}
	return false
}

// StatesNothing reports whether an answer states that there is none.
func StatesNothing(s string) bool {
	switch markup.Compact(s) {
	case `\emptyset`, `\varnothing`, `\{\}`, "∅", "{}":
		return true
	}
	return !strings.ContainsAny(s, "=<>^+*/0123456789") && IsNothing(Of(markup.Bare(s)))
}

// HoldsNothing reports whether s is a set whose element is the empty set.
func HoldsNothing(s string) bool {
	s = strings.NewReplacer(`\left`, "", `\right`, "").Replace(markup.Compact(s))
	return OneOf(s, `\{\emptyset\}`, `\{\varnothing\}`, `\{∅\}`, "{∅}", `\{\{\}\}`)
}

// IsProse reports whether s contains a word rather than mathematics alone.
func IsProse(s string) bool {
	if strings.ContainsAny(s, `=<>^_+*/`) || strings.Contains(s, `\`) {
		return false
	}
	run := 0
	for _, r := range s {
		if unicode.IsLetter(r) {
			if run++; run >= 3 {
				return true
			}
		} else {
			run = 0
		}
	}
	return false
}

// Singular returns a word without the s of a plural. Words of up to 3 letters stay as they are.
func Singular(word string) string {
	if len(word) > 3 {
		return strings.TrimSuffix(word, "s")
	}
	return word
}

// Choice returns the letter that s chooses: C, (C), "(C) 42", "C. Evelyn".
func Choice(s string) (byte, bool) {
	s = strings.TrimSpace(markup.Bare(s))
	for _, word := range []string{"option ", "choice ", "answer "} {
		if len(s) > len(word) && strings.EqualFold(s[:len(word)], word) {
			s = strings.TrimSpace(s[len(word):])
		}
	}
	open := strings.HasPrefix(s, "(")
	s = strings.TrimPrefix(s, "(")
	if s == "" || s[0] < 'A' || s[0] > 'J' {
		return 0, false
	}
	rest := s[1:]
	if at := strings.IndexByte(rest, '('); open && at >= 0 && at+2 < len(rest) && rest[at+1] >= 'A' &&
		rest[at+1] <= 'J' && rest[at+2] == ')' {
		return 0, false // two choices
	}
	switch {
	case open && strings.HasPrefix(rest, ")"), !open && rest == "":
	case !open && rest != "" && (rest[0] == ')' || rest[0] == '.' || rest[0] == ':') &&
		(len(rest) == 1 || rest[1] == ' '):
	default:
		return 0, false
	}
	return s[0], true
}

// Chosen returns the text after the letter of a choice: 42 for "(C) 42".
func Chosen(s string) (string, bool) {
	if _, ok := Choice(s); !ok {
		return "", false
	}
	at := strings.IndexAny(s, ").:")
	if at < 0 {
		return "", false
	}
	rest := s[at+1:]
	for before := ""; rest != before; {
		before = rest
		rest = strings.TrimLeft(rest, " }~\n")
		for _, space := range []string{`\ `, `\,`, `\;`, `\quad`} {
			rest = strings.TrimPrefix(rest, space)
		}
	}
	return rest, rest != ""
}
