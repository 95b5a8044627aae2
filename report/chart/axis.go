package chart

import (
	"math"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/report"
)

// axis maps values from low to high to SVG coordinates from begin to end.
type axis struct {
	low, high  float64
	begin, end float64
	step       float64 // distance between ticks; 0 for none
}

// newAxis returns an axis for values from low to high with about n round ticks.
func newAxis(low, high, begin, end float64, n int) axis {
	if low == high {
		around := math.Abs(low) / 2
		if around < 1e-300 { // effectively 0
			around = 1
		}
		low, high = low-around, high+around
	}
	return axis{low: low, high: high, begin: begin, end: end, step: round((high - low) / float64(n))}
}

// widen returns the axis, extended to round values at both ends.
func (a axis) widen() axis {
	if a.step > 0 { // 1e-9 keeps values that are round up to rounding errors
		a.low = math.Floor(a.low/a.step+1e-9) * a.step
		a.high = math.Ceil(a.high/a.step-1e-9) * a.step
	}
	return a
}

// round returns the smallest of 1, 2, 5 or 10 times a power of ten that is at least
// 0.75x, or 0 if there is none.
func round(x float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, factor := range []float64{1, 2, 5, 10} {
		if y := factor * power; y >= .75*x && y > 0 && !math.IsInf(y, 0) {
			return y
		}
	}
	return 0
}

// ticks returns the multiples of the step on the axis.
func (a axis) ticks() (all []float64) {
	if a.step == 0 {
		return nil
	}
	for i := math.Ceil(a.low/a.step - 1e-9); i*a.step <= a.high+a.step*1e-9 && len(all) < 100; i++ {
		all = append(all, i*a.step+0) // turns -0 into 0
	}
	return all
}

// at returns the SVG coordinate of value x.
func (a axis) at(x float64) float64 { return a.begin + (x-a.low)/(a.high-a.low)*(a.end-a.begin) }

// tick formats x as a short label. All labels of an axis use the unit prefix of its
// largest value.
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

// place formats a coordinate with at most one decimal.
func place(x float64) string { return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64) }
