package measure

import (
	"math/big"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/markup"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// maxCompound bounds the length of a measure, in bytes.
const maxCompound = 160

// Measure is a parsed quantity such as "2 hours and 40 minutes".
type Measure struct {
	Units []Unit   // one for each part, largest first
	Total *big.Rat // in the base unit
}

// read reads the measure at the start of s and returns its length in bytes, or 0 if there is none.
func read(s string) (Measure, int) {
	s = s[:min(len(s), maxCompound)]
	m, end := Measure{Total: new(big.Rat)}, 0
	for at := 0; len(m.Units) < 4; {
		value, u, n := m.part(s[at:])
		if n == 0 {
			break
		}
		loose := len(m.Units) > 0 && !strings.Contains(s[end:at], "and")
		if rest := strings.TrimLeft(s[at+n:], " $}*"); loose && words.Begins(rest, "a ", "per ", "each", "every") {
			break // 6 weeks, 3 days a week
		}
		m.Units = append(m.Units, u)
		m.Total.Add(m.Total, value.Mul(value, u.Size()))
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
		for _, mark := range []string{`\text{`, `\textbf{`, `\mathrm{`, `\mbox{`, `\,`, `\;`, `\ `, `\!`, `\(`,
			`\)`, `\quad`} {
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

// part reads the next, smaller part of a measure and returns its value, its unit and its length in bytes.
// The length is 0 if there is no such part.
func (m Measure) part(s string) (*big.Rat, Unit, int) {
	rest, money := strings.CutPrefix(strings.TrimPrefix(unwrapped(s), `\$`), "$")
	money = money || strings.HasPrefix(unwrapped(s), `\$`)
	n := len(rest) - len(strings.TrimLeft(rest, "0123456789,."))
	inWords := n == 0 && !money
	if inWords {
		n = len(rest) - len(strings.TrimLeft(rest, "abcdefghijklmnopqrstuvwxyz-"))
	}
	if n == 0 || n > 24 {
		return nil, Unit{}, 0
	}
	after := unwrapped(rest[n:])
	name := 0
	for name < len(after) && after[name]|0x20 >= 'a' && after[name]|0x20 <= 'z' {
		name++
	}
	if words.Begins(after, "'", `"`) {
		name = 1
	}
	u := m.unit(after[:name])
	if money && u != Of("dollar") {
		u, after, name = Of("dollar"), rest[n:], 0
	}
	if k := len(m.Units); k > 0 && m.Units[k-1] == Of("foot") && after == "" { // 5'3
		u = Of("inch")
	}
	if !u.Known() {
		return nil, Unit{}, 0
	}
	value, ok := new(big.Rat).SetString(strings.Trim(strings.ReplaceAll(rest[:n], ",", ""), "."))
	if inWords {
		value, ok = wordValue(rest[:n])
	}
	if !ok {
		return nil, Unit{}, 0
	}
	if k := len(m.Units); k > 0 {
		last := m.Units[k-1]
		ratio := new(big.Rat).Quo(last.Size(), u.Size())
		if u.Dimension != last.Dimension || value.Cmp(ratio) >= 0 || ratio.Cmp(big.NewRat(1, 1)) <= 0 {
			return nil, Unit{}, 0
		}
	}
	return value, u, len(s) - len(after) + name
}

// wordValue returns the value of a number in one word. An article counts as 1.
func wordValue(word string) (*big.Rat, bool) {
	if word == "a" || word == "an" {
		return big.NewRat(1, 1), true
	}
	digits, ok := words.Spelled(word)
	if !ok {
		return nil, false
	}
	return new(big.Rat).SetString(strings.TrimSpace(digits))
}

// unit returns the unit called name. An m after a time stands for minutes, ' for feet and " for inches.
func (m Measure) unit(name string) Unit {
	switch {
	case name == "m" && len(m.Units) > 0 && m.Units[0].Dimension == "s^1":
		return Of("minute")
	case name == "'":
		return Of("foot")
	case name == `"`:
		return Of("inch")
	}
	return Of(name)
}

// Whole reads s as a measure. At most two words may follow it: "5 feet 3 inches tall".
func Whole(s string) (Measure, bool) {
	m, n := read(s)
	rest := s[n:]
	return m, n > 0 && len(rest) <= maxCompound && len(strings.Fields(rest)) <= 2 &&
		strings.Trim(strings.ToLower(rest), " .}$abcdefghijklmnopqrstuvwxyz") == ""
}

// clock returns the minutes after midnight of a time such as 20:34 or 8:34 P.M. exact reports whether the
// time says which half of the day it means. ok is false if s is not a time.
func clock(s string) (minutes int, exact, ok bool) {
	s = strings.ToLower(strings.NewReplacer(".", "", " ", "", `\text`, "", "{", "", "}", "", "~", "", `\,`, "").Replace(
		markup.Bare(s)))
	s, pm := strings.CutSuffix(s, "pm")
	s, am := strings.CutSuffix(s, "am")
	hour, minute, found := strings.Cut(s, ":")
	h, errH := strconv.Atoi(hour)
	m, errM := strconv.Atoi(minute)
	if !found || errH != nil || errM != nil || len(minute) != 2 || h < 0 || h > 24 || m < 0 || m > 59 {
		return 0, false, false
	}
	if am || pm {
		if h < 1 || h > 12 {
			return 0, false, false
		}
		if h %= 12; pm {
			h += 12
		}
	}
	return 60*h + m, am || pm || h > 12 || h == 0, true
}

// SameTime reports whether w and g are the same time of the day. known is false unless both are times that
// say which half of the day they mean.
func SameTime(w, g string) (same, known bool) {
	a, exactA, okA := clock(w)
	b, exactB, okB := clock(g)
	if !okA || !okB || !exactA || !exactB {
		return false, false
	}
	return a == b, true
}
