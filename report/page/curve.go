package page

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/report"
)

// The size of a curve's drawing area, in SVG units.
const (
	curveWidth  = 320
	curveHeight = 120
	curvePoints = 640 // more are averaged
)

// curve is one number over the steps, ready to be drawn.
type curve struct {
	Name       string
	Points     string // of an SVG polyline
	Low, High  string // the vertical axis
	From, To   string // the horizontal axis
	LastText   string
	DotX, DotY string // where the last value is
}

// draw draws a number that changes over the run.
func draw(name string, xs, ys []float64) curve {
	last := ys[len(ys)-1]
	xs, ys = thin(xs), thin(ys)
	low, high := slices.Min(ys), slices.Max(ys)
	if low == high {
		low, high = low-1, high+1
	}
	from, to := xs[0], xs[len(xs)-1]
	at := func(i int) (x, y string) {
		return coordinate((xs[i] - from) / math.Max(to-from, 1) * curveWidth),
			coordinate((high - ys[i]) / (high - low) * curveHeight)
	}
	var points strings.Builder
	for i := range xs {
		x, y := at(i)
		fmt.Fprintf(&points, "%s,%s ", x, y)
	}
	c := curve{Name: name, Points: strings.TrimSpace(points.String()), Low: report.Number(low), High: report.Number(high),
		From: report.Number(from), To: report.Number(to), LastText: report.Number(last)}
	c.DotX, c.DotY = at(len(xs) - 1)
	return c
}

// thin averages neighbours until at most curvePoints values are left.
func thin(xs []float64) []float64 {
	size := (len(xs) + curvePoints - 1) / curvePoints
	if size <= 1 {
		return xs
	}
	var out []float64
	for part := range slices.Chunk(xs, size) {
		sum := 0.0
		for _, x := range part {
			sum += x / float64(len(part))
		}
		out = append(out, sum)
	}
	return out
}

func coordinate(x float64) string { return strconv.FormatFloat(x, 'f', 1, 64) }
