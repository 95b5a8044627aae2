package chart

import (
	"math"
	"strconv"

	"github.com/easyrl/easyrl/report"
)

// axis maps values from low to high to places from begin to end, in SVG units.
type axis struct {
	low, high  float64
	begin, end float64
	ticks      []float64
}

// newAxis holds values from low to high, and about n ticks at round values.
func newAxis(low, high, begin, end float64, n int) axis {
	if low == high {
		around := math.Abs(low) / 2
		if low == 0 {
			around = 1
		}
		low, high = low-around, high+around
	}
	return axis{low: low, high: high, begin: begin, end: end, ticks: ticks(low, high, n)}
}

// widen moves the ends of the axis to round values.
func (a axis) widen() axis {
	if len(a.ticks) < 2 {
		return a
	}
	step := a.ticks[1] - a.ticks[0]
	a.low, a.high = math.Floor(a.low/step+1e-9)*step, math.Ceil(a.high/step-1e-9)*step
	a.ticks = ticks(a.low, a.high, len(a.ticks))
	return a
}

func (a axis) at(x float64) float64 { return a.begin + (x-a.low)/(a.high-a.low)*(a.end-a.begin) }

// ticks are the multiples of 1, 2 or 5 times a power of ten from low to high,
// about n of them.
func ticks(low, high float64, n int) []float64 {
	rough := (high - low) / float64(n)
	power := math.Pow(10, math.Floor(math.Log10(rough)))
	step := 10 * power
	for _, factor := range []float64{1, 2, 5} {
		if factor*power >= rough {
			step = factor * power
			break
		}
	}
	if !(step > 0) || math.IsInf(step, 0) { // too small, or too large, to be divided
		return nil
	}
	var all []float64
	for i := math.Ceil(low/step - 1e-9); i*step <= high+step*1e-9 && len(all) < 4*n; i++ {
		all = append(all, i*step)
	}
	return all
}

// tick is x for an axis: short, with the prefixes of the units.
func tick(x float64) string {
	for _, prefix := range []struct {
		size float64
		name string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e4, "k"}} {
		if math.Abs(x) >= prefix.size && math.Abs(x) < 1e15 {
			if prefix.size == 1e4 {
				prefix.size = 1e3
			}
			return report.Number(x/prefix.size) + prefix.name
		}
	}
	return report.Number(x)
}

// place is a coordinate with a decimal where it needs one.
func place(x float64) string { return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64) }
