package answer

import (
	"strings"

	"github.com/easyrl/easyrl/reward/grade/algebra"
	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/markup"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// Canonical returns one text for equal answers, as far as equality is cheap to detect:
// the value of a rational number, otherwise the text in lower case without white space.
// "1/2", "0.50" and "x = \frac{1}{2}" share one; "\sqrt{8}" and "2\sqrt{2}" do not. It
// returns "" if s is not an answer.
func Canonical(s string) string {
	c := markup.Clean(s)
	if c == "" || len(c) > maxAnswer {
		return ""
	}
	if letter, ok := words.Choice(c); ok {
		return string(letter)
	}
	if n, ok := read(c, expr.Mode{Thousands: true}); ok {
		if n = flatten(n); n.Kind == expr.Relation && len(n.Ops) == 1 && n.Ops[0] == "=" && n.Args[0].Kind == expr.Symbol {
			n = n.Args[1]
		}
		if r, ok := algebra.NewComparer(nil).Rational(n); ok {
			return r.RatString()
		}
	}
	return strings.ToLower(markup.Compact(c))
}
