// Package chart draws numbers as SVG: lines, histograms, and bars over time. A
// drawing needs Style once in its page, and nothing else: no script and no
// network. What a drawing shows it says in words too, for those who hear it.
package chart

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/report"
)

// Series are the points of one line, X ascending. Points that are not finite are
// left out.
type Series struct {
	Name string
	X, Y []float64
}

// Lines draws series on one pair of axes, told apart by colour, dash and marker.
// title is above the drawing, x and y name the axes; y may be "". Of more points
// than can be seen it draws the mean, and the extremes as a band around it.
func Lines(title, x, y string, series []Series) template.HTML {
	f := newFrame(x, y)
	var words []string
	for _, s := range series {
		s = finite(s)
		if len(s.X) == 0 {
			continue
		}
		f.series = append(f.series, s)
		words = append(words, inWords(s, x))
	}
	return f.draw(title, strings.Join(words, "; "))
}

// finite leaves out what cannot be drawn.
func finite(s Series) Series {
	n := min(len(s.X), len(s.Y))
	s.X, s.Y = s.X[:n], s.Y[:n]
	drawn := func(i int) bool { return math.Abs(s.X[i]) < 1e300 && math.Abs(s.Y[i]) < 1e300 } // so is their difference
	whole := 0
	for whole < n && drawn(whole) {
		whole++
	}
	out := Series{Name: s.Name, X: slices.Clip(s.X[:whole]), Y: slices.Clip(s.Y[:whole])} // a copy only where one is needed
	for i := whole; i < n; i++ {
		if drawn(i) {
			out.X, out.Y = append(out.X, s.X[i]), append(out.Y, s.Y[i])
		}
	}
	return out
}

// inWords says what a line shows.
func inWords(s Series, x string) string {
	low, high, last := 0, 0, len(s.Y)-1
	for i, y := range s.Y {
		if y < s.Y[low] {
			low = i
		}
		if y > s.Y[high] {
			high = i
		}
	}
	at := func(i int) string { return fmt.Sprintf("%s at %s %s", report.Number(s.Y[i]), x, report.Number(s.X[i])) }
	if last == 0 {
		return s.Name + " " + at(0)
	}
	return fmt.Sprintf("%s from %s to %s, lowest %s, highest %s", s.Name, at(0), at(last), at(low), at(high))
}

// escape is s as text of a page.
func escape(s string) string { return template.HTMLEscapeString(s) }
