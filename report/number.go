package report

import (
	"math"
	"strconv"
)

// Finite reports whether x is neither NaN nor infinite.
func Finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// Number formats x for display with about four significant digits.
func Number(x float64) string {
	x += 0 // turns -0 into 0
	switch size := math.Abs(x); {
	case x == math.Trunc(x) && size < 1e6, size >= 1000 && size < 1e9:
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'g', 4, 64)
}
