package markup

import (
	"slices"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/expr"
)

// Respelled returns s with other notations rewritten in the one that package expr parses: ]2, 7[ as
// (2, 7), ℝ⁺ as an interval, 5^o as degrees, 5_{\text{two}} as a base in digits, and the words
// for "and" and "or" in other languages.
func Respelled(s string) string {
	if strings.ContainsAny(s, "[]") {
		s = reversed(s)
	}
	for _, row := range [...][2]string{{`{}^\circ`, `^\circ`}, {`{}^{\circ}`, `^\circ`}, {`^\text{o}`, `^\circ`},
		{`^{\text{o}}`, `^\circ`}, {`^\mathrm{o}`, `^\circ`}, {"℃", "°C"}, {"℉", "°F"}, {"per cent", "percent"},
		{`\mathbf{R}`, `\mathbb{R}`}, {"second squared", "second^2"}, {"meters squared", "meters^2"},
		{"metres squared", "metres^2"}, {"feet squared", "feet^2"}, {"inches squared", "inches^2"},
		{"units squared", "square units"}, {`\therefore`, ""}, {`\text{gcd}`, `\gcd`}, {`\text{lcm}`, `\lcm`},
		{`\mathbb{R} - \{`, `\mathbb{R}\setminus\{`}, {`\mathbb{R}-\{`, `\mathbb{R}\setminus\{`},
		{`\dots`, `\ldots`}} {
		s = strings.ReplaceAll(s, row[0], row[1])
	}
	s = combinations(s)
	if head, modulus, ok := strings.Cut(s, `\mod`); ok && !strings.Contains(s, "=") {
		s = head + `\pmod` + modulus
	}
	for _, about := range []string{" (approximately ", " (approx. ", " (about ", " (≈ ", ` (\approx `,
		" (or approximately "} {
		head, value, ok := strings.Cut(s, about)
		if value, closed := strings.CutSuffix(strings.TrimRight(value, "}"), ")"); ok && closed {
			s = head + strings.Repeat("}", max(0, strings.Count(head, "{")-strings.Count(head, "}"))) +
				` \approx ` + value
		}
	}
	s = halfLines(piped(s))
	for _, o := range []string{"^o", "^{o}", "^0{}", "º"} {
		if head, ok := strings.CutSuffix(strings.TrimRight(s, " $."), o); ok && expr.DigitAt(head, len(head)-1) {
			s = head + `^\circ`
		}
	}
	if head, ok := strings.CutSuffix(strings.TrimRight(s, " "), `\$`); ok &&
		strings.Trim(head, `0123456789.,\ `) == "" { // 23\,\$
		s = `\$` + strings.TrimRight(head, `\, `)
	}
	return conjunctions(numbered(quotients(micro(s))))
}

// combinations writes {}_5C_2 and ^5C_2 at the start of s as a binomial coefficient.
func combinations(s string) string {
	n, rest, ok := strings.Cut(strings.TrimPrefix(strings.TrimLeft(s, " $"), "{}"), "C_")
	n = strings.Trim(n, "_^{} ")
	k := strings.TrimLeft(rest, "{")
	k = k[:len(k)-len(strings.TrimLeft(k, "0123456789"))]
	if !ok || n == "" || k == "" || strings.Trim(n, "0123456789") != "" {
		return s
	}
	return `\binom{` + n + "}{" + k + "}" + strings.TrimLeft(rest, "{}"+k)
}

// piped writes a pair of numbers with a bar between them as a pair: (2 | 7).
func piped(s string) string {
	inside, ok := strings.CutPrefix(strings.Trim(s, " $"), "(")
	inside, closed := strings.CutSuffix(inside, ")")
	x, y, both := strings.Cut(strings.ReplaceAll(inside, `\mid`, "|"), "|")
	if !ok || !closed || !both || x == "" || y == "" || strings.Trim(x+y, "-0123456789./ ") != "" {
		return s
	}
	return "(" + x + "," + y + ")"
}

// conjunctions rewrites "and" and "or" in other languages between two values: 4\text{ oder }5.
func conjunctions(s string) string {
	for _, row := range [...][2]string{{"或者", ","}, {"或", ","}, {"和", ","}, {" или ", " or "}, {" и ", " and "}} {
		s = strings.ReplaceAll(s, row[0], row[1])
	}
	for _, word := range []string{"o", "ou", "oder", "und", "y", "e", "et"} {
		s = strings.ReplaceAll(s, `\text{ `+word+` }`, `\text{ or }`)
	}
	return s
}

// numbered rewrites the words for bases below numbers as digits.
func numbered(s string) string {
	if !strings.Contains(s, `_{\text{`) {
		return s
	}
	for k, word := range expr.Numerals()[2:13] {
		s = strings.ReplaceAll(s, `_{\text{`+word+`}}`, "_{"+strconv.Itoa(k+2)+"}")
	}
	return s
}

// halfLines rewrites the sets of positive and negative real numbers as intervals.
func halfLines(s string) string {
	s = strings.ReplaceAll(s, "ℝ", `\mathbb{R}`)
	if !strings.Contains(s, `\mathbb`) {
		return s
	}
	for _, set := range []string{`\mathbb{R}`, `\mathbb R`} {
		for _, row := range [][]string{
			{`[0,\infty)`, `^+_0`, `_0^+`, `^{+}_{0}`, `_{0}^{+}`, `_{\ge 0}`, `_{\geq 0}`, `_{\ge0}`, `_{\geq0}`,
				`_{>= 0}`, `_{≥0}`},
			{`(0,\infty)`, `_{>0}`, `_{> 0}`, `^+`, `^{+}`, `_+`, `_{+}`, `⁺`},
			{`(-\infty,0)`, `_{<0}`, `_{< 0}`, `^-`, `^{-}`},
		} {
			for _, sign := range row[1:] {
				s = strings.ReplaceAll(s, set+sign, row[0])
			}
		}
	}
	return s
}

// reversed rewrites open intervals that are written with turned brackets: ]2, 7[ and [2, 7[.
func reversed(s string) string {
	for at, tries := 0, 0; tries < maxBoxes; tries++ {
		i := strings.IndexAny(s[at:], "[]")
		if i < 0 {
			break
		}
		i += at
		at = i + 1
		n := strings.IndexAny(s[at:], "[](){}")
		if n < 0 || !opens(s[:i]) {
			continue
		}
		closing := at + n
		inside := s[at:closing]
		if s[closing] == '(' || s[closing] == '{' || strings.Count(inside, ",")+strings.Count(inside, ";") != 1 {
			continue
		}
		open, end := s[i:i+1], s[closing:closing+1]
		if open != "]" && end != "[" || end == "}" {
			continue
		}
		if open == "]" {
			open = "("
		}
		if end == "[" {
			end = ")"
		}
		s = s[:i] + open + strings.ReplaceAll(inside, ";", ",") + end + s[closing+1:]
		at = closing + 1
	}
	return s
}

// opens reports whether a bracket after s opens an interval: s is empty or ends in an
// operator on sets or a relation.
func opens(s string) bool {
	s = strings.TrimSuffix(strings.TrimRight(s, " $"), `\left`)
	s = strings.TrimRight(s, " $")
	return s == "" || slices.ContainsFunc([]string{`\cup`, "∪", `\in`, "∈", "=", `\cap`, " U"},
		func(sign string) bool { return strings.HasSuffix(s, sign) })
}

// micro rewrites the prefix µ of a unit after a number as "micro": 5 µA becomes 5 \text{ microA}.
func micro(s string) string {
	for _, mu := range []string{"µ", "μ", `\mu`} {
		at := strings.Index(s, mu)
		if at <= 0 {
			continue
		}
		before := strings.TrimRight(strings.NewReplacer(`\,`, " ", `\ `, " ", `\;`, " ", "~", " ", `\mathrm{`, " ",
			`\text{`, " ", `\mathrm`, " ", `\rm`, " ").Replace(s[:at]), " {")
		after := strings.TrimLeft(s[at+len(mu):], " {}")
		for _, name := range []string{`\mathrm`, `\text`, `\rm`} {
			after = strings.TrimLeft(strings.TrimPrefix(after, name), " {")
		}
		unit, rest := after, ""
		if end := strings.IndexFunc(after, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') &&
				r != 'Ω'
		}); end >= 0 {
			unit, rest = after[:end], after[end:]
		}
		if expr.DigitAt(before, len(before)-1) && unit != "" && len(unit) <= 3 {
			s = before + ` \text{ micro` + unit + "}" + strings.TrimLeft(rest, "}")
		}
	}
	return s
}

// quotients writes units with negative powers as quotients: m\,s^{-2} as m/s^2.
func quotients(s string) string {
	if !strings.Contains(s, "^{-") && !strings.Contains(s, "⁻") {
		return s
	}
	s = strings.NewReplacer("⁻¹", "^{-1}", "⁻²", "^{-2}").Replace(s)
	s = strings.NewReplacer("ms^{-1}", "m/s", "ms^{-2}", "m/s^2", "kmh^{-1}", "km/h", "ms}^{-1}", "m/s}", "ms}^{-2}",
		"m/s^2}", "kmh}^{-1}", "km/h}").Replace(s)
	for _, unit := range []string{"h", "s", "min", "m", "kg", "mol", "K"} {
		for _, power := range []string{"1", "2", "3"} {
			above := "^" + power
			if power == "1" {
				above = ""
			}
			for _, space := range []string{`\,`, `\cdot `, `\ `, `\;`, "~", " ", `\cdot`, "·"} {
				s = strings.ReplaceAll(s, space+unit+"^{-"+power+"}", "/"+unit+above)
				for _, name := range []string{`\text`, `\mathrm`} {
					s = strings.ReplaceAll(s, "}"+space+name+"{"+unit+"}^{-"+power+"}", "/"+unit+above+"}")
					s = strings.ReplaceAll(s, "}"+space+name+"{ "+unit+"}^{-"+power+"}", "/"+unit+above+"}")
				}
			}
		}
	}
	return s
}
