package grade

import (
	"strings"
	"unicode"

	"github.com/easyrl/easyrl/reward/grade/answer"
	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/markup"
	"github.com/easyrl/easyrl/reward/grade/sentence"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// readMark returns the readings of the text of a mark: the text, and the value that it means
// if it is a sentence, a commented value or an evaluated expression. A text beyond the bound
// of a mark is only read as a whole.
func readMark(s string) []string {
	if len(s) > maxMark {
		return []string{s}
	}
	for _, end := range []string{" altogether", " in total", " in all", " altogether}", " in total}", " in all}"} {
		if head, ok := strings.CutSuffix(s, end); ok && !words.Begins(strings.TrimLeft(s, " $*"), "×", "÷", "/", "+") {
			return append(readMark(head+strings.TrimLeft(end, " abcdefghijklmnopqrstuvwxyz")), s)
		}
	}
	if len(s) > 9 && s[1:9] == " equals " && expr.LetterAt(s, 0) { // x equals 9
		s = s[:1] + " = " + s[9:]
	}
	if len(s) > 5 && s[1:5] == " is " && expr.LetterAt(s, 0) && strings.IndexByte("-$\\0123456789", s[5]) >= 0 { // x is 9
		s = s[:1] + " = " + s[5:]
	}
	if strings.HasSuffix(strings.TrimSpace(s), " *") || !balanced(s) && strings.IndexFunc(s, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) >= 0 {
		return []string{"?"} // breaks off
	}
	if letter := strings.Trim(words.First(s), ".,*;:"); !others(s) {
		if _, ok := words.Choice(letter); ok && strings.Contains(s, " (") {
			if _, comment, _ := strings.Cut(strings.ToLower(s), " ("); !words.Begins(comment, "not", "or", "no") {
				return []string{s, letter}
			}
		}
	}
	if head, ok := commented(s); ok {
		return []string{s, head}
	}
	for _, mode := range []expr.Mode{{Thousands: true}, {}} {
		if _, ok := expr.Parse(markup.Clean(s), mode); ok {
			if k := strings.TrimRight(s, "kK"); k != s && strings.Trim(k, "$0123456789.,") == "" {
				return append([]string{s}, mainOf(s)...)
			}
			if all := sentence.Split(s); len(all) == 1 { // "They have 25 apples"
				if found := all[0].Values(); len(found) == 1 && words.Prose(s[:found[0].Lo]) {
					return append([]string{s}, all[0].Main()...)
				}
			}
			return []string{s}
		}
	}
	if value, ok := evaluated(s); ok {
		return []string{s, value}
	}
	if strings.ContainsAny(s, "<>≤≥≠") || breaksOff(s) || relates(s) || undecided(s) {
		return []string{s}
	}
	if !words.Prose(markup.Bare(s)) {
		return []string{s}
	}
	return append([]string{s}, mainOf(markup.Bare(s))...)
}

// evaluated returns the value that an integral, a limit or a sum equals in s.
func evaluated(s string) (string, bool) {
	left, value, ok := strings.Cut(s, "=")
	if !ok || strings.Contains(value, "=") {
		return "", false
	}
	left = strings.TrimLeft(left, " $")
	return value, words.Begins(left, `\int`, `\iint`, `\lim`, `\left[`, `\Big[`, `\big[`)
}

// balanced reports whether each bracket of a short bare answer has a counterpart, as the
// ends of an interval have in any combination.
func balanced(s string) bool {
	depth := 0
	for _, c := range s[:min(len(s), maxMark)] {
		switch c {
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		}
		if depth < -1 { // "1) 5" is a label
			return false
		}
	}
	return depth <= 0
}

// commented splits a bare answer from a comment that neither takes it back nor has
// another value: "9 (i.e. 9.0)", "360 seats, all counted".
func commented(s string) (string, bool) {
	s = markup.Bare(s)
	for _, sep := range []string{" (", ", "} {
		head, comment, ok := strings.Cut(s, sep)
		if !ok || !words.HasDigit(head) {
			continue
		}
		if _, parses := expr.Parse(markup.Clean(head), expr.Mode{Thousands: true}); !parses {
			continue
		}
		if words.Hedges(comment) || strings.Contains(strings.ToLower(comment), "or ") && !strings.Contains(comment, "written") {
			return "", false
		}
		same, value := true, answer.NewValue(head)
		for _, part := range sentence.Split(comment) {
			for _, c := range part.Values() {
				same = same && value.Same(c.Text)
			}
		}
		return head, same && words.HasLetter(comment)
	}
	return "", false
}

// relates reports whether s says in LaTeX that a value is bounded or excluded.
func relates(s string) bool {
	return words.Contains(strings.NewReplacer(`\left`, "").Replace(s), `\ne`, `\le`, `\ge`, `\lt`, `\gt`, `\not`, `\nmid`, `\mid`, `\to`, `\vee`, `\lor`, `\oplus`, `\pm`, `\mp`, "~~", `\cancel`)
}

// breaksOff reports whether s ends in an operator.
func breaksOff(s string) bool {
	if strings.HasSuffix(strings.TrimSpace(s), " *") {
		return true
	}
	s = strings.TrimRight(s, " $*\n)]}\\")
	return words.Ends(s, "/.", "+", "-", "=", "×", "÷", "/", "^", "_", `\times`, `\cdot`, `\div`, "−", "·")
}

// undecided reports whether a bare answer that is not an expression has several values.
func undecided(s string) bool {
	var first *answer.Value
	for _, part := range sentence.Split(markup.Bare(s)) {
		for _, c := range part.Meant() {
			switch {
			case c.Aside && first != nil:
			case first == nil:
				first = answer.NewValue(c.Text)
			case !first.Same(c.Text):
				return true
			}
		}
	}
	return false
}

// mainOf returns the readings of what the first sentence of s is about.
func mainOf(s string) []string {
	if all := sentence.Split(s); len(all) > 0 {
		return all[0].Main()
	}
	return nil
}
