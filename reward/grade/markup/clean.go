package markup

import (
	"strings"

	"github.com/easyrl/easyrl/reward/grade/expr"
)

// Clean strips what surrounds an answer: white space, Markdown, math delimiters, a box, the steps before a
// last implication arrow and the final period. It rewrites the rest in the notation that package expr
// parses.
func Clean(s string) string {
	s = strings.TrimSpace(s)
	if boxed, _, ok := Boxed(s); ok && !strings.Contains(s, "\\boxed{}") {
		s = boxed
	}
	for _, arrow := range []string{`\implies`, `\Rightarrow`, `\Longrightarrow`, `\iff`, "⇒", "⟹"} {
		if at := strings.LastIndex(s, arrow); at >= 0 && strings.Contains(s[at:], "=") {
			s = strings.TrimSpace(s[at+len(arrow):])
		}
	}
	s = strings.ReplaceAll(s, "^{-1}(", "_{0}(") // the inverse of a function
	if strings.Contains(s, "10^") {
		s = strings.NewReplacer(" x 10^", ` \times 10^`, " × 10^", ` \times 10^`).Replace(s)
	}
	s = ohms(Rows(s))
	if strings.Contains(s, `\begin`) && !strings.Contains(s, `\\begin`) { // rows may begin with brackets
		s = strings.ReplaceAll(s, `\\`, `\\ `)
	}
	if strings.ContainsAny(s, "\\$*`…") || strings.Contains(s, "...") {
		s = strings.NewReplacer(`\\ `, `\\ `, `\(`, " ", `\)`, " ", `\[`, " ", `\]`, " ", `$$`, " ", "**", "", "`", "",
			"...", `\ldots `, "…", `\ldots `).Replace(s)
	}
	s = unwrapDollars(Respelled(s))
	if digits, ok := digitsApart(s); ok {
		return digits
	}
	for range 4 {
		s = strings.TrimSpace(s)
		s = strings.TrimSuffix(strings.TrimRight(s, ".,;:*\" \n"), `\`)
		s = strings.TrimLeft(s, "*\"=: \n")
		if strings.HasPrefix(s, "{") && strings.HasSuffix(s, "}") && strings.Count(s, "{") == 1 {
			s = s[1 : len(s)-1]
		}
	}
	return s
}

// digitsApart returns the number that \underline{2}\,\underline{7} spells digit by
// digit.
func digitsApart(s string) (string, bool) {
	if !strings.Contains(s, `\underline`) || len(s) > 1000 {
		return "", false
	}
	fields := strings.Fields(strings.NewReplacer(`\underline`, " ", `\,`, " ", `\;`, " ", `\!`, " ", `\ `, " ", "{",
		" ", "}", " ").Replace(s))
	for _, f := range fields {
		if len(f) != 1 || f[0] < '0' || f[0] > '9' {
			return "", false
		}
	}
	return strings.Join(fields, ""), len(fields) > 0
}

// unwrapDollars removes paired $ around mathematics and keeps amounts of money.
func unwrapDollars(s string) string {
	count := strings.Count(s, "$") - strings.Count(s, `\$`)
	if count == 0 {
		return s
	}
	if at := strings.IndexByte(s, '$') + 1; count%2 == 1 && (count > 1 || at < len(s) && expr.DigitAt(s, at)) {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		if s[i] == '$' && (i == 0 || s[i-1] != '\\') {
			b.WriteByte(' ')
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// Bare returns s without LaTeX text commands and braces.
func Bare(s string) string {
	if !strings.ContainsAny(s, `\{}~`) {
		return s
	}
	for _, name := range []string{`\text`, `\textbf`, `\textit`, `\textrm`, `\mbox`, `\mathrm`, `\mathbf`,
		`\textnormal`, `\operatorname`} {
		s = strings.ReplaceAll(s, name+"{", "{")
	}
	return strings.NewReplacer("{", "", "}", "", `\left`, "", `\right`, "", `\,`, "", `\!`, "", `\;`, "", `\ `, " ",
		`\quad`, " ", "~", " ",
		`\dfrac`, `\frac`, `\tfrac`, `\frac`).Replace(s)
}

// Compact returns s without white space, for a quick comparison.
func Compact(s string) string {
	if strings.ContainsAny(s, `\~`) {
		s = strings.NewReplacer("~", "", `\!`, "", `\,`, " ", `\;`, " ", `\ `, " ", `\left`, "", `\right`, "", `\dfrac`,
			`\frac`, `\tfrac`, `\frac`).Replace(s)
	}
	for _, name := range []string{`\text`, `\mbox`, `\mathrm`, `\textnormal`} {
		s = strings.ReplaceAll(s, name+"{", "{")
	}
	if !strings.ContainsAny(s, `\^/`) && strings.ContainsAny(s, "{}") { // braces that group nothing
		s = strings.NewReplacer("{", "", "}", "").Replace(s)
	}
	var b strings.Builder
	for _, f := range strings.Fields(s) {
		if text := b.String(); text != "" && expr.DigitAt(text, len(text)-1) && expr.DigitAt(f, 0) {
			b.WriteByte(' ') // 2 1/3 is not 21/3
		}
		b.WriteString(f)
	}
	return b.String()
}

// Spaced returns s with plain spaces for those of LaTeX.
func Spaced(s string) string {
	if !strings.ContainsAny(s, `\~`) {
		return s
	}
	return strings.NewReplacer(`\quad`, " ", `\qquad`, " ", `\ `, " ", `\;`, " ", `\,`, " ", `\:`, " ", "~", " ", `\!`,
		"").Replace(s)
}

// ohms rewrites the sign of ohms after a number as a word: "5 kΩ" becomes "5 kiloohms".
func ohms(s string) string {
	for _, sign := range []string{`\Omega`, "Ω", "\u2126"} {
		at := strings.Index(s, sign)
		if at <= 0 {
			continue
		}
		number := strings.TrimRight(strings.NewReplacer(`\text{`, "", `\mathrm{`, "", `\,`, "", `\ `, "", `\;`, "", "~",
			"").Replace(s[:at]), " $")
		prefix := ""
		for _, p := range [][2]string{{"k", "kilo"}, {"M", "mega"}, {"m", "milli"}} {
			if head, ok := strings.CutSuffix(strings.TrimRight(number, "}"), p[0]); ok && at > 1 {
				number, prefix = strings.TrimRight(head, " $"), p[1]
			}
		}
		if expr.DigitAt(number, len(number)-1) {
			return number + " " + prefix + "ohms" + strings.TrimLeft(s[at+len(sign):], "}")
		}
	}
	return s
}
