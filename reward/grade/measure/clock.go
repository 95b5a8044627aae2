package measure

import (
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/markup"
)

// clock returns the minutes after midnight of a time such as 20:34 or 8:34 P.M., and
// whether it says which half of the day it means.
func clock(s string) (minutes int, exact, ok bool) {
	s = strings.ToLower(strings.NewReplacer(".", "", " ", "", `\text`, "", "{", "", "}", "", "~", "", `\,`, "").Replace(markup.Bare(s)))
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

// SameTime compares times of the day if both say which half they mean and only one of them
// by am or pm.
func SameTime(w, g string) (same, known bool) {
	a, exactA, okA := clock(w)
	b, exactB, okB := clock(g)
	if !okA || !okB || !exactA || !exactB {
		return false, false
	}
	return a == b, true
}
