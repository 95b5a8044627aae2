package sentence

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/measure"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// The bounds on an expression in plain text, in bytes: one token, and the whole
// expression.
const (
	maxToken      = 160
	maxExpression = 240
)

// expressionAt returns the length of the plain-text expression at i, spaces included:
// "2 + 1 = 3", "x^2 - 4x + 1", "(3, π/2)". It returns 0 for a bare number, which
// numberAt reads, and inside a word.
func expressionAt(s string, i int) int {
	if i > 0 && strings.IndexByte(" \n\t*$=:,\"", s[i-1]) < 0 && (s[i-1] != '(' || i > 1 && s[i-2] == '(') {
		return 0
	}
	if strings.IndexByte("+*/=<>", s[i]) >= 0 || words.Begins(s[i:], "- ", "×", "÷") || s[i] == ' ' || s[i] == '\n' {
		return 0
	}
	end, depth, counted := i, 0, operators{}
	operand := false // the last token was a bare number
	for j := i; j < len(s) && j < i+maxExpression; {
		k := j
		for k < len(s) && k-j <= maxToken && s[k] != ' ' && s[k] != '\n' && !strings.HasPrefix(s[k:], "**") {
			k++
		}
		if k-j > maxToken {
			break
		}
		token := s[j:k]
		if token == "=>" || token == "->" {
			break
		}
		trimmed := strings.TrimRight(token, ".,;:!?")
		open := depth + strings.Count(token, "(") + strings.Count(token, "[") - strings.Count(token, ")") - strings.Count(token, "]")
		if trimmed == "" || !counted.add(trimmed) || open < 0 {
			break
		}
		if strings.Contains(token, ",") && (depth > 0 || open > 0 || strings.IndexByte("([", token[0]) >= 0) {
			counted.tuple = true
		}
		depth = open
		isOperator := strings.Trim(trimmed, "+-*/=x×÷−·") == ""
		alone := depth == 0 && strings.Trim(trimmed, "$0123456789.,") == ""
		if alone && operand && len(trimmed) != 3 { // 17 000 is one number
			break
		}
		if operand && token[0] == '(' && depth > 0 && !strings.Contains(token, ",") { // $25 (75 ÷ 3)
			break
		}
		operand = alone
		if !isOperator || end == i && j == i && len(trimmed) == 1 && trimmed == "x" {
			end = j + len(trimmed)
		}
		if depth == 0 && trimmed != token || k >= len(s) || s[k] != ' ' {
			break
		}
		j = k + 1
	}
	if depth != 0 || !counted.enough(s[i:end]) {
		return 0
	}
	return end - i
}

// operators records what an expression contains.
type operators struct{ digit, letter, sign, tuple bool }

// add records a token and reports whether it can be part of an expression.
func (o *operators) add(token string) bool {
	if strings.HasPrefix(token, `\`) || strings.Contains(token, `-\`) || strings.Contains(token, `(\`) {
		token = strings.ReplaceAll(strings.ReplaceAll(token, `\infty`, "infty"), `\pi`, "pi")
	}
	lo := -1 // start of a run of letters
	ends := func(hi int) bool {
		if lo < 0 {
			return true
		}
		word := token[lo:hi]
		before := lo
		lo = -1
		switch word {
		case "sqrt", "pi", "sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "inf", "infinity", "infty", "oo":
			return true
		case "a", "I", "A":
			return token != word
		}
		factors := len(word) == 2 && strings.ToLower(word) == word && !measure.IsUnit(word) && before > 0 && expr.DigitAt(token, before-1)
		return len(word) == 1 || factors || len(word) == 2 && strings.HasSuffix(word, "pi")
	}
	for i, r := range token {
		if unicode.IsLetter(r) && r < utf8.RuneSelf {
			if lo < 0 {
				lo = i
			}
			o.letter = true
			continue
		}
		if !ends(i) {
			return false
		}
		switch {
		case unicode.IsDigit(r):
			o.digit = true
		case strings.ContainsRune("+-*/^=×÷−·√±<>≤≥≠⁰¹²³⁴⁵⁶⁷⁸⁹⁻", r):
			o.sign = true
		case strings.ContainsRune("()[]{}.,:%$_!|≈∪∞π°θ", r):
		default:
			return false
		}
	}
	return ends(len(token))
}

// enough reports whether the recorded parts make text more than a number.
func (o *operators) enough(text string) bool {
	inner := strings.TrimLeft(text, "+-−$([")
	switch {
	case o.tuple, o.digit && strings.Contains(text, ")_"):
		return true
	case o.digit && StartsFunction(inner), o.digit && (strings.Contains(text, "sqrt(") || strings.HasSuffix(inner, "pi") || strings.Contains(text, "π")):
		return true
	case !o.letter && !strings.ContainsAny(inner, " =×÷√π(⁰¹²³⁴⁵⁶⁷⁸⁹") && (!strings.HasPrefix(text, "(") || strings.HasSuffix(text, ")")):
		return false // numberAt reads 3/4 and 2-3
	}
	sign := strings.ContainsAny(inner, "+*/^=×÷−·√±<>≤≥≠⁰¹²³⁴⁵⁶⁷⁸⁹-")
	return o.sign && sign && (o.digit || o.letter) && strings.Trim(inner, "+-*/=x×÷−·. ") != "" && !isMixed(inner)
}

// StartsFunction reports whether s begins with a function, a root or π in plain text.
func StartsFunction(s string) bool {
	return words.Begins(s, "sqrt", "√", "π", "sin", "cos", "tan", "cot", "sec", "csc", "log", "ln")
}

// isMixed reports whether text is a mixed number.
func isMixed(text string) bool {
	whole, fraction, ok := strings.Cut(text, " ")
	return ok && strings.Trim(whole, "0123456789") == "" && strings.Trim(fraction, "0123456789/") == ""
}

// numberAt returns the length of the number or space-free expression at i, or 0.
func numberAt(t string, i int) int {
	j := i
	for j < len(t) && (t[j] == '-' || t[j] == '$' || t[j] == '.' || t[j] == '+') && j < i+3 {
		j++
	}
	if rest, ok := strings.CutPrefix(t[j:], "−"); ok && expr.DigitAt(rest, 0) {
		j += len("−")
	}
	if prev, _ := utf8.DecodeLastRuneInString(t[:i]); expr.DigitAt(t, j) && unicode.Is(unicode.No, prev) {
		return 0 // ⅟108
	}
	if !expr.DigitAt(t, j) || i > 0 && (expr.LetterAt(t, i-1) || expr.DigitAt(t, i-1) || t[i-1] == '^' || strings.HasSuffix(t[:i], "_{")) {
		return 0
	}
	if (t[i] == '-' || t[i] == '+') && i > 0 && t[i-1] != ' ' && t[i-1] != '(' && t[i-1] != '=' && t[i-1] != '*' && t[i-1] != ':' {
		return 0
	}
	for j < len(t) {
		c := t[j]
		switch {
		case expr.DigitAt(t, j), strings.IndexByte("%/^:_", c) >= 0:
			j++
		case (c == '.' || c == ',') && expr.DigitAt(t, j+1), c == ',' && j+1 < len(t) && t[j+1] == '-' && expr.DigitAt(t, j+2):
			j++
		case c == ' ' && (isMixedAt(t, j) || isGroupedAt(t, i, j)):
			j++
		case strings.HasPrefix(t[j:], " : ") && expr.DigitAt(t, j+3): // a ratio
			j += 3
		case (c == '-' || c == '+' || c == '*') && expr.DigitAt(t, j+1):
			j++
		case strings.HasPrefix(t[j:], "°"):
			j += len("°")
		case expr.LetterAt(t, j) && !expr.LetterAt(t, j+1) && strings.IndexByte("mgshlL", c) < 0: // 2k+3
			j++
		default:
			return j - i
		}
	}
	return j - i
}

// isGroupedAt reports whether the space at j is a thousands separator of the number at i,
// as in 1 000.
func isGroupedAt(t string, i, j int) bool {
	head := strings.TrimLeft(t[i:j], "-$")
	return len(head) <= 3 && head != "" && head[0] != '0' && strings.Trim(head, "0123456789") == "" &&
		expr.DigitAt(t, j+1) && expr.DigitAt(t, j+2) && expr.DigitAt(t, j+3) && !expr.DigitAt(t, j+4) && !expr.LetterAt(t, j+4)
}

// isMixedAt reports whether the space at i is part of a mixed number such as 3 1/2.
func isMixedAt(t string, i int) bool {
	j := i + 1
	for expr.DigitAt(t, j) {
		j++
	}
	return expr.DigitAt(t, i-1) && j > i+1 && j < len(t) && t[j] == '/' && expr.DigitAt(t, j+1)
}
