package chart

import (
	"math"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/report"
)

// axis maps values from low to high to places from begin to end, in SVG units.
type axis struct {
	low, high  float64
	begin, end float64
	step       float64 // between ticks
}

// newAxis holds values from low to high, and about n ticks at round values.
func newAxis(low, high, begin, end float64, n int) axis {
	if low == high {
		around := math.Abs(low) / 2
		if around < 1e-300 { // as good as 0
			around = 1
		}
		low, high = low-around, high+around
	}
	return axis{low: low, high: high, begin: begin, end: end, step: round((high - low) / float64(n))}
}

// widen moves the ends of the axis to the next round values.
func (a axis) widen() axis {
	if a.step > 0 {
		a.low, a.high = math.Floor(a.low/a.step+1e-9)*a.step, math.Ceil(a.high/a.step-1e-9)*a.step
	}
	return a
}

// round is the multiple of 1, 2 or 5 and a power of ten that is x or, at most a
// quarter below it, more; 0 where there is none.
func round(x float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, factor := range []float64{1, 2, 5, 10} {
		if y := factor * power; y >= .75*x && y > 0 && !math.IsInf(y, 0) {
			return y
		}
	}
	return 0
}

// ticks are the multiples of the step.
func (a axis) ticks() (all []float64) {
	if a.step == 0 {
		return nil
	}
	for i := math.Ceil(a.low/a.step - 1e-9); i*a.step <= a.high+a.step*1e-9 && len(all) < 100; i++ {
		all = append(all, i*a.step+0) // and no -0
	}
	return all
}

func (a axis) at(x float64) float64 { return a.begin + (x-a.low)/(a.high-a.low)*(a.end-a.begin) }

// tick is x for the axis: short, with the prefix of the units that its largest
// value has.
func (a axis) tick(x float64) string {
	largest := max(math.Abs(a.low), math.Abs(a.high))
	for _, prefix := range []struct {
		from, size float64
		name       string
	}{{1e12, 1e12, "T"}, {1e9, 1e9, "G"}, {1e6, 1e6, "M"}, {1e4, 1e3, "k"}} {
		if largest >= prefix.from && largest < 1e15 && x != 0 {
			return report.Number(x/prefix.size) + prefix.name
		}
	}
	return strings.Replace(report.Number(x), "e-0", "e-", 1)
}

// place is a coordinate with a decimal where it needs one.
func place(x float64) string { return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64) }
