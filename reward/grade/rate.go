package grade

import (
	"strings"

	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/measure"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// isTimed reports whether a value is a rate per several units: "75 turns every 4 minutes".
func (s surroundings) isTimed() bool {
	near := s.near()
	for i, f := range near {
		if f == "every" && i+1 < len(near) && expr.DigitAt(near[i+1], 0) {
			return !strings.Contains(s.question.Last(), f+" "+near[i+1])
		}
	}
	return false
}

// isShare reports whether a value is a percentage although neither the question nor the
// reference answer has one.
func (s surroundings) isShare() bool {
	return strings.HasPrefix(s.clause(), "percent") && !s.question.Asks("percent", "%") && !words.Contains(s.gold, "%", "percent") && !s.question.AsksShare()
}

// unitSymbol returns the symbol of a unit at the start of s, in lower case, or "".
func unitSymbol(s string) string {
	end := 0
	for end < len(s) && (expr.LetterAt(s, end) || s[end] == '/') {
		end++
	}
	symbol := s[:end]
	for part := range strings.SplitSeq(symbol, "/") {
		if !words.OneOf(part, "j", "kj", "n", "kn", "w", "kw", "hz", "khz", "v", "k", "pa", "kpa", "mol", "l", "ml", "g", "kg", "mg", "m", "km", "cm", "mm", "s", "ms", "h", "min", "rad", "wh", "kwh") {
			return ""
		}
	}
	return symbol
}

// isPerOther reports whether a value is a rate per something that the question does not name:
// "3 seconds per kilometre".
func (s surroundings) isPerOther() bool {
	near := s.near()
	for i, f := range near {
		if f == "per" && i+1 < len(near) {
			of := near[i+1]
			return !s.question.Has(of) && measure.Kind(of) != "time" && of != "month" && of != "year" && !s.question.LastHas(" per ", "rate", "each", "every", "average", "speed") && !strings.Contains(s.gold, of)
		}
	}
	return false
}

// hasOtherSymbol reports whether the symbol of a unit follows a value and the question asks for
// another one: "72 m/h" in km/h, "210 K" for "how many kJ".
func (s surroundings) hasOtherSymbol() bool {
	after := strings.TrimLeft(s.value, "-$0123456789.,") + s.after
	after = strings.TrimLeft(strings.NewReplacer(`\mathrm`, "", `\text`, "", "{", "", "}", "", `\ `, "", `\,`, "").Replace(after), " $*~")
	got := unitSymbol(after)
	if got == "" || strings.HasPrefix(after[len(got):], " per ") {
		return false
	}
	asked := ""
	for _, phrase := range []string{"how many ", " in "} {
		if _, rest, ok := words.CutLast(s.question.Last(), phrase); ok && asked == "" {
			asked = unitSymbol(strings.TrimLeft(rest, " $"))
		}
	}
	return asked != "" && asked != got && (strings.Contains(asked, "/") == strings.Contains(got, "/") || s.question.Has(got))
}
