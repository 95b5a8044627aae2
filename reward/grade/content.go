package grade

import (
	"strings"
	"unicode"

	"github.com/easyrl/easyrl/reward/grade/answer"
	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/markup"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// judge returns why the text of a mark is not the task's answer, or "".
func (t *Task) judge(m mark) string {
	s := strings.TrimSpace(markup.Respelled(markup.Undecorated(m.text)))
	s = strings.TrimSpace(strings.ReplaceAll(s, "__", ""))
	if m.box && !strings.Contains(s, "~~") {
		s = strings.TrimSpace(strings.ReplaceAll(s, "~", " ")) // a space in LaTeX
	}
	for _, quote := range []string{"**", "*", "_", "`"} { // Markdown
		if inside, ok := strings.CutPrefix(s, quote); ok && strings.HasSuffix(inside, quote) &&
			!strings.Contains(strings.TrimSuffix(inside, quote), quote) {
			s = strings.TrimSuffix(inside, quote)
		}
	}
	switch {
	case s == "" || hidden(s, t.gold):
		return answer.NoAnswer
	case len(s) <= maxMark && !isWhole(s) && isWhole(t.gold):
		return BrokenOff
	}
	fault := answer.NoAnswer
	for i, got := range readings(s) {
		other := answer.Fault(t.question, t.gold, got)
		if other == "" {
			if t.question.Text == "" {
				return ""
			}
			if t.approximates(s) {
				return answer.Altered
			}
			return t.vet(s, m)
		}
		if i == 0 || fault == answer.OtherValue {
			fault = other
		}
	}
	return fault
}

// isWhole reports whether a short answer is complete: "3 +" lacks a term, "\frac{1}{2" a brace.
func isWhole(s string) bool { return !breaksOff(s) && balanced(s) }

// hidden reports whether s has combining marks or direction controls that the reference answer lacks. They
// change how the text looks, so a reader would see another answer.
func hidden(s, gold string) bool {
	return strings.ContainsFunc(s, func(r rune) bool {
		return (unicode.In(r, unicode.Mn, unicode.Me) || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 ||
			r == 0x200e || r == 0x200f) && !strings.ContainsRune(gold, r)
	})
}

// readings returns the texts to compare with the reference answer. The first is the text of the mark. A
// second follows if s is a sentence with one value ("they have 25 apples"), a value with a comment ("9
// (i.e. 9.0)"), a choice with a comment, a named value ("Ann: 16") or an evaluated expression. A text
// longer than maxMark has only the first.
func readings(s string) []string {
	if len(s) > maxMark {
		return []string{s}
	}
	s = equation(withoutTotal(shares(s)))
	all := []string{s}
	if name, value, ok := strings.Cut(s, ": "); ok && strings.Trim(name,
		alphabet+strings.ToUpper(alphabet)+"{}\\ ") == "" && len(name) <= maxBare*16 {
		all = append(all, value) // "Ann: 16"
	}
	if letter, ok := chosen(s); ok {
		return append(all, letter)
	}
	if head, ok := commented(s); ok {
		return append(all, head)
	}
	if value, ok := evaluated(s); ok {
		return append(all, value)
	}
	if strings.ContainsAny(s, "<>≤≥≠") || relates(s) {
		return all
	}
	bare := markup.Bare(s)
	if digits, ok := words.Spelled(bare); ok && !words.HasDigit(bare) {
		return append(all, digits)
	}
	if fields := strings.Fields(bare); len(fields) > 1 && !words.HasDigit(bare) {
		if digits, ok := words.Spelled(strings.TrimRight(fields[len(fields)-1], ".")); ok { // "she is fifteen."
			return append(all, digits)
		}
	}
	if spans := markup.Spans(bare); len(spans) == 1 && words.Prose(bare) { // "they have 25 apples"
		value, rest := bare[spans[0].Lo:spans[0].Hi], bare[spans[0].Hi:]
		if end := strings.IndexAny(rest, ",;:("); end >= 0 {
			rest = rest[:end]
		}
		if _, after, ok := strings.Cut(value, "="); ok && strings.Count(value, "=") == 1 {
			value = after
		}
		if _, parses := expr.Parse(markup.Clean(value+rest), expr.Mode{Thousands: true}); parses {
			return append(all, value+rest)
		}
		return append(all, value)
	}
	return all
}

const alphabet = "abcdefghijklmnopqrstuvwxyz"

// shares rewrites a share such as "3/4 of 240" as a product: "3/4 * 240".
func shares(s string) string {
	head, rest, ok := strings.Cut(s, " of ")
	head = strings.TrimSuffix(head, "\\")
	if !ok || head == "" || strings.Trim(head, `0123456789./%\fracdt{} `) != "" || !words.HasDigit(head) ||
		!expr.DigitAt(rest, 0) {
		return s
	}
	return head + " * " + rest
}

// withoutTotal strips a closing such as "in total", "altogether" or "each" from s.
func withoutTotal(s string) string {
	for _, end := range []string{" altogether", " in total", " in all", " altogether}", " in total}",
		" in all}", " each",
		" each}"} {
		if head, ok := strings.CutSuffix(s, end); ok {
			return head + strings.TrimLeft(end, " abcdefghijklmnopqrstuvwxyz")
		}
	}
	return s
}

// equation rewrites "x is 9" and "x equals 9" as "x = 9", and a derivative such as dy/dx on the left side
// as y'. It drops a leading "\gcd =" and the like.
func equation(s string) string {
	if head, value, ok := strings.Cut(s, "="); ok && isDerivative(head) {
		s = "y' = " + value
	}
	for _, name := range []string{`\gcd`, `\lcm`, `\max`, `\min`, `\det`, `\dim`, `\deg`} {
		if value, ok := strings.CutPrefix(s, name); ok && strings.HasPrefix(strings.TrimLeft(value, " "), "=") {
			return strings.TrimLeft(value, " =")
		}
	}
	for _, verb := range []string{" equals ", " is "} {
		name, value, ok := strings.Cut(s, verb)
		if plain := strings.Trim(name, "$ "); ok && len(plain) == 1 && expr.LetterAt(plain, 0) && value != "" &&
			strings.IndexByte("-$\\0123456789", value[0]) >= 0 {
			return name + " = " + value
		}
	}
	return s
}

// isDerivative reports whether s is a derivative in Leibniz's notation: \frac{dy}{dx}.
func isDerivative(s string) bool {
	s = strings.NewReplacer(" ", "", "$", "", `\dfrac`, `\frac`, `\mathrm{d}`, "d", "(x)", "", "(t)", "").Replace(s)
	return len(s) == len(`\frac{dy}{dx}`) && strings.HasPrefix(s, `\frac{d`) && s[8:11] == "}{d" && s[12] == '}' ||
		len(s) > len(`\frac{d}{dx}`) && strings.HasPrefix(s, `\frac{d}{d`) && s[11] == '}'
}

// chosen returns the letter of a choice that a comment follows: "C (the third)".
func chosen(s string) (string, bool) {
	letter := strings.Trim(words.First(s), ".,*;:")
	_, comment, ok := strings.Cut(s, " (")
	if _, is := words.Choice(letter); !is || !ok || words.Hedges(comment) ||
		strings.ContainsFunc(comment, func(r rune) bool { return r >= 'A' && r <= 'J' }) {
		return "", false
	}
	return letter, true
}

// evaluated drops each leading integral, limit or antiderivative between bounds, with its equals sign:
// "\int_0^1 x\,dx = 1/2" becomes "1/2". ok reports whether it dropped any.
func evaluated(s string) (value string, ok bool) {
	for {
		left, rest, more := strings.Cut(s, "=")
		start := strings.TrimLeft(left, " $")
		if !more || !words.Begins(start, `\int`, `\iint`, `\left[`, `\Big[`, `\big[`, `\left.`) &&
			(!strings.HasPrefix(start, `\lim`) || ok) && !words.Contains(start, "]_", "|_", `\rvert_`, `\vert_`) {
			return s, ok
		}
		s, ok = rest, true
	}
}

// balanced reports whether the brackets of a short bare answer pair up. A round bracket may pair with a
// square one, as in the interval [0, 1), and one bracket of these may lack its counterpart. Braces must all
// pair up.
func balanced(s string) bool {
	depth, braces := 0, 0
	for i, c := range s {
		switch c {
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		case '{', '}':
			if i > 0 && s[i-1] == '\\' {
				continue
			}
			if braces += int('|' - c); braces < 0 { // { is one below | and } is one above
				return false
			}
		}
		if depth < -1 { // "1) 5" is a label
			return false
		}
	}
	return depth <= 1 && braces == 0
}

// commented splits a bare answer from a comment that neither denies it nor has another value:
// "9 (i.e. 9.0)", "360 seats, all counted".
func commented(s string) (string, bool) {
	s = markup.Bare(s)
	for _, sep := range []string{" (", ", ", "; "} {
		head, comment, ok := strings.Cut(s, sep)
		comment = strings.TrimRight(comment, ")")
		if !ok || !words.HasDigit(head) {
			continue
		}
		if _, parses := expr.Parse(markup.Clean(head), expr.Mode{Thousands: true}); !parses {
			continue
		}
		if rest := strings.Trim(comment, "() $"); sep == " (" && words.Contains(rest, `\ne`, "≠", "!=") {
			return head, true // where it is defined
		}
		if words.Hedges(comment) || words.Contains(comment, "base", "mod") ||
			strings.Contains(strings.ToLower(comment), "or ") && !strings.Contains(comment, "written") {
			return "", false
		}
		var values []string
		for _, span := range markup.Spans(comment) {
			values = append(values, comment[span.Lo:span.Hi])
		}
		return head, (words.HasLetter(comment) || words.HasDigit(comment)) && answer.SameValue(head, values)
	}
	return "", false
}

// relates reports whether s has a LaTeX sign that bounds or excludes a value, or leaves it open as \pm
// does.
func relates(s string) bool {
	return words.Contains(strings.NewReplacer(`\left`, "", `\neg`, "").Replace(s), `\ne`, `\le`, `\ge`, `\lt`, `\gt`,
		`\not`, `\nmid`, `\mid`, `\to`, `\vee`, `\lor`, `\oplus`, `\pm`, `\mp`, "~~", `\cancel`)
}

// breaksOff reports whether s ends in an operator.
func breaksOff(s string) bool {
	if strings.HasSuffix(strings.TrimSpace(s), " *") {
		return true
	}
	s = strings.TrimRight(s, " $*\n)]}\\")
	return words.Ends(s, "/.", "+", "-", "=", "×", "÷", "/", "^", "_", `\times`, `\cdot`, `\div`, "−", "·")
}
