package markup

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/easyrl/easyrl/reward/grade/expr"
)

// Span is a piece s[Lo:Hi] of a text.
type Span struct{ Lo, Hi int }

// The bounds on spans: their number, and the bytes of a formula between delimiters.
const (
	maxSpans = 256
	maxSpan  = 1 << 12
)

// Spans returns the formulas and the numbers in a text, left to right: what math
// delimiters enclose, and otherwise runs of numbers, signs and single letters.
func Spans(s string) (found []Span) {
	for at := 0; at < len(s) && len(found) < maxSpans; {
		if lo, hi, next := delimited(s, at); next > 0 {
			found = append(found, Span{lo, hi})
			at = next
			continue
		}
		if n := runAt(s, at); n > 0 {
			found = append(found, Span{at, at + n})
			at += n
			continue
		}
		at += wordAt(s, at)
	}
	return found
}

// delimited returns the bounds of the formula whose delimiter is at at, and the offset after
// it, or 0. A dollar sign before a number may mean money.
func delimited(s string, at int) (lo, hi, next int) {
	for _, pair := range [][2]string{{"$$", "$$"}, {`\[`, `\]`}, {`\(`, `\)`}, {"$", "$"}} {
		if !strings.HasPrefix(s[at:], pair[0]) || at > 0 && s[at-1] == '\\' {
			continue
		}
		lo = at + len(pair[0])
		n := strings.Index(s[lo:min(len(s), lo+maxSpan)], pair[1])
		if n <= 0 {
			return 0, 0, 0
		}
		inside := s[lo : lo+n]
		if pair[0] == "$" && (strings.Contains(inside, "\n\n") || inside[n-1] == ' ' && inside[0] != ' ' &&
			expr.DigitAt(inside, 0) || inside[n-1] == '\\') {
			return 0, 0, 0
		}
		return lo, lo + n, lo + n + len(pair[1])
	}
	return 0, 0, 0
}

// wordAt returns the length of the word, the sign or the white space at at.
func wordAt(s string, at int) int {
	n := 0
	for at+n < len(s) {
		r, size := utf8.DecodeRuneInString(s[at+n:])
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '\'' && r != '’' {
			break
		}
		n += size
	}
	if n > 0 {
		return n
	}
	_, size := utf8.DecodeRuneInString(s[at:])
	return size
}

// runAt returns the length of the run of tokens of mathematics at at, or 0.
func runAt(s string, at int) int {
	end, depth, solid := at, 0, false
	for j := at; j < len(s) && j-at < maxSpan; {
		k := j
		if j == at && s[k] == '$' && expr.DigitAt(s, k+1) { // money
			k++
		}
		for k < len(s) && k-j <= maxFormula && s[k] != ' ' && s[k] != '\n' && s[k] != '$' &&
			!strings.HasPrefix(s[k:], "**") {
			k++
		}
		token := s[j:k]
		open := depth + strings.Count(token, "(") + strings.Count(token, "[") + strings.Count(token, "{") -
			strings.Count(token, ")") - strings.Count(token, "]") - strings.Count(token, "}")
		trimmed := strings.TrimRight(token, ".,;:!?\"*")
		if strings.HasSuffix(token, "!") && trimmed != "" && expr.DigitAt(trimmed, len(trimmed)-1) &&
			strings.HasPrefix(s[k:], " =") {
			trimmed = token
		}
		strong, ok := mathematical(trimmed)
		if !ok || open < 0 && depth == 0 && end == at || k-j > maxFormula {
			break
		}
		solid = solid || strong
		end, depth = j+len(trimmed), open
		if trimmed != token && depth <= 0 || k >= len(s) || s[k] != ' ' {
			break
		}
		j = k + 1
	}
	run := strings.TrimRight(s[at:end], " +-*/=<>×÷^")
	if !solid || !strings.ContainsAny(run, "0123456789\\+*/^=×÷−√∞π") {
		return 0
	}
	return len(run)
}

// mathematical reports whether a token may be part of a formula, and whether it makes one by
// itself: a single letter does not.
func mathematical(token string) (strong, ok bool) {
	if token == "" {
		return false, false
	}
	lo := -1
	ends := func(hi int) bool {
		if lo < 0 {
			return true
		}
		word, before := token[lo:hi], lo
		lo = -1
		switch word {
		case "sqrt", "cbrt", "pi", "sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "inf", "infinity", "infty",
			"oo", "arcsin", "arccos", "arctan":
			return true
		case "a", "I", "A":
			return token != word
		}
		return len(word) == 1 || before > 0 && token[before-1] == '\\' || len(word) == 2 &&
			strings.HasSuffix(word, "pi") ||
			len(word) == 2 && before > 0 && expr.DigitAt(token, before-1) && strings.ToLower(word) == word &&
				strings.IndexByte("aeiou", word[1]) < 0 &&
				!strings.Contains(" cm mm km kg mg ft yd lb oz hr ml st nd rd th ", word)
	}
	for i, r := range token {
		if unicode.IsLetter(r) && r < utf8.RuneSelf {
			if lo < 0 {
				lo = i
			}
			continue
		}
		if !ends(i) {
			return false, false
		}
		switch {
		case unicode.IsDigit(r), r == '\\', strings.ContainsRune("+-*/^=×÷−·√<>≤≥≠π∞⁰¹²³⁴⁵⁶⁷⁸⁹⁻½⅓⅔¼¾", r):
			strong = true
		case strings.ContainsRune("()[]{}.,:%$_!|≈∪∩°θ'\"&~₀₁₂₃₄₅₆₇₈₉", r):
		default:
			return false, false
		}
	}
	return strong, ends(len(token))
}
