package report

import (
	"math"
	"strconv"
)

// Number formats x for display with four significant digits. Two kinds of numbers have all their digits
// before the point and none after it: integers below 1e6, and numbers from 1,000 to below 1e9.
func Number(x float64) string {
	x += 0 // turns -0 into 0
	switch size := math.Abs(x); {
	case x == math.Trunc(x) && size < 1e6, size >= 1000 && size < 1e9:
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'g', 4, 64)
}
