package answer

import (
	"math/big"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/algebra"
	"github.com/easyrl/easyrl/reward/grade/expr"
)

// maxMeasure bounds the length of a measure, in bytes.
const maxMeasure = 160

// measure is a parsed quantity such as "2 hours and 40 minutes".
type measure struct {
	units []unit   // of its parts, largest first
	total *big.Rat // in the base unit
}

// Measure returns the length of the compound measure at the start of s, such as "2
// hours and 40 minutes", "5 ft 3 in" or "$3 and 25 cents", or 0 if there is none. LaTeX
// and Markdown may surround its words.
func Measure(s string) int {
	if m, n := readMeasure(s); len(m.units) > 1 {
		return n
	}
	return 0
}

// readMeasure reads the measure at the start of s and returns its length.
func readMeasure(s string) (measure, int) {
	s = s[:min(len(s), maxMeasure)]
	m, end := measure{total: new(big.Rat)}, 0
	for at := 0; len(m.units) < 4; {
		value, u, n := m.part(s[at:])
		if n == 0 {
			break
		}
		loose := len(m.units) > 0 && !strings.Contains(s[end:at], "and")
		if rest := strings.TrimLeft(s[at+n:], " $}*"); loose && (strings.HasPrefix(rest, "a ") || strings.HasPrefix(rest, "per ") || strings.HasPrefix(rest, "each") || strings.HasPrefix(rest, "every")) {
			break // 6 weeks, 3 days a week
		}
		m.units = append(m.units, u)
		m.total.Add(m.total, value.Mul(value, big.NewRat(u.num, u.den)))
		end = at + n
		rest := strings.TrimLeft(unwrapped(s[end:]), ".,")
		rest = strings.TrimPrefix(unwrapped(rest), "and ")
		at = len(s) - len(rest)
	}
	if strings.Count(s[:end], "{") > strings.Count(s[:end], "}") && strings.HasPrefix(s[end:], "}") {
		end++
	}
	if strings.Count(s[:end], "$")%2 == 1 && strings.HasPrefix(s[end:], "$") {
		end++
	}
	return m, end
}

// unwrapped returns s without leading space and markup.
func unwrapped(s string) string {
	for {
		t := strings.TrimLeft(s, " *}~\n")
		for _, mark := range []string{`\text{`, `\textbf{`, `\mathrm{`, `\mbox{`, `\,`, `\;`, `\ `, `\!`, `\(`, `\)`, `\quad`} {
			t = strings.TrimPrefix(t, mark)
		}
		if strings.HasPrefix(t, "$") && (len(t) == 1 || t[1] < '0' || t[1] > '9') {
			t = t[1:]
		}
		if t == s {
			return s
		}
		s = t
	}
}

// part reads the next, smaller part of a measure and returns its value, unit and
// length.
func (m measure) part(s string) (*big.Rat, unit, int) {
	rest, money := strings.CutPrefix(strings.TrimPrefix(unwrapped(s), `\$`), "$")
	money = money || strings.HasPrefix(unwrapped(s), `\$`)
	n := len(rest) - len(strings.TrimLeft(rest, "0123456789,."))
	inWords := n == 0 && !money
	if inWords {
		n = len(rest) - len(strings.TrimLeft(rest, "abcdefghijklmnopqrstuvwxyz-"))
	}
	if n == 0 || n > 24 {
		return nil, unit{}, 0
	}
	after := unwrapped(rest[n:])
	name := 0
	for name < len(after) && after[name]|0x20 >= 'a' && after[name]|0x20 <= 'z' {
		name++
	}
	if strings.HasPrefix(after, "'") || strings.HasPrefix(after, `"`) {
		name = 1
	}
	u := m.unit(after[:name])
	if money && u != unitOf("dollar") {
		u, after, name = unitOf("dollar"), rest[n:], 0
	}
	if k := len(m.units); k > 0 && m.units[k-1] == unitOf("foot") && after == "" { // 5'3
		u = unitOf("inch")
	}
	if u.num == 0 {
		return nil, unit{}, 0
	}
	value, ok := new(big.Rat).SetString(strings.Trim(strings.ReplaceAll(rest[:n], ",", ""), "."))
	if inWords {
		value, ok = wordValue(rest[:n])
	}
	if !ok {
		return nil, unit{}, 0
	}
	if k := len(m.units); k > 0 {
		last := m.units[k-1]
		ratio := big.NewRat(last.num*u.den, last.den*u.num)
		if u.dimension != last.dimension || value.Cmp(ratio) >= 0 || ratio.Cmp(big.NewRat(1, 1)) <= 0 {
			return nil, unit{}, 0
		}
	}
	return value, u, len(s) - len(after) + name
}

// wordValue returns the value of a number in one word. An article counts as 1.
func wordValue(word string) (*big.Rat, bool) {
	if word == "a" || word == "an" {
		return big.NewRat(1, 1), true
	}
	digits, ok := Spelled(word)
	if !ok {
		return nil, false
	}
	return new(big.Rat).SetString(strings.TrimSpace(digits))
}

// unit returns the unit of the next part of a measure. Next to another part, it may be
// a single letter.
func (m measure) unit(name string) unit {
	second := len(m.units) > 0
	switch name {
	case "h":
		return unitOf("hour")
	case "m":
		if second && m.units[0].dimension == "time" {
			return unitOf("minute")
		}
	case "s":
		return unitOf("second")
	case "'":
		return unitOf("foot")
	case `"`:
		return unitOf("inch")
	}
	if u := unitOf(name); u.num > 0 {
		return u
	}
	switch strings.TrimSuffix(strings.ToLower(name), "s") {
	case "year", "yr":
		return unit{"calendar", 12, 1}
	case "month":
		return unit{"calendar", 1, 1}
	case "cup":
		return unit{"imperial volume", 1, 2}
	}
	return unit{}
}

// wholeMeasure reads s as a measure with at most two words after it: "5 feet 3 inches
// tall".
func wholeMeasure(s string) (measure, bool) {
	m, n := readMeasure(s)
	rest := s[n:]
	return m, n > 0 && len(strings.Fields(rest)) <= 2 && strings.Trim(strings.ToLower(rest), " .}$abcdefghijklmnopqrstuvwxyz") == ""
}

// measures compares w and g if either is a compound measure; otherwise known is false.
// A bare number counts in the unit that the question asks for, or else in the largest or
// the smallest unit of the response's measure.
func (q *Question) measures(w, g string) (same, known bool) {
	a, okA := wholeMeasure(w)
	b, okB := wholeMeasure(g)
	switch {
	case okA && okB && len(a.units)+len(b.units) > 2:
		return a.units[0].dimension == b.units[0].dimension && a.total.Cmp(b.total) == 0, true
	case okB && len(b.units) > 1:
		n, ok := read(w, expr.Mode{Thousands: true})
		if !ok {
			return false, false
		}
		n, _ = bare(n)
		r, ok := algebra.NewComparer().Rational(n)
		units := []unit{b.units[0], b.units[len(b.units)-1]}
		if asked := q.asked(); asked.dimension == units[0].dimension {
			units = []unit{asked}
		}
		for _, u := range units {
			if ok && new(big.Rat).Mul(r, big.NewRat(u.num, u.den)).Cmp(b.total) == 0 {
				return true, true
			}
		}
		return false, true
	}
	return false, false
}
