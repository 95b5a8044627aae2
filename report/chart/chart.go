// Package chart draws numbers as SVG: lines, histograms, and bars over time. A page includes Style once
// for all its charts. Charts need neither scripts nor network access. Each chart also describes its
// content in words for screen readers.
package chart

import (
	"fmt"
	"html/template"
	"math"
	"strings"

	"github.com/easyrl/easyrl/report"
)

// Series holds the points of one line, with ascending X. Charts skip points that are not finite.
type Series struct {
	Name string
	X, Y []float64

	means  []float64 // smoothed Y; nil if the line is not smoothed
	window int       // number of values that each mean covers
}

// Plot is a chart of lines.
type Plot struct {
	Title  string
	X, Y   string // names of the axes; Y may be empty
	Series []Series
	// From and To are values that the horizontal axis includes, so that several charts can have the same
	// axis. They have no effect unless From < To.
	From, To float64
	// Smooth draws a noisy line faintly, with its running mean on top.
	Smooth bool
	// Parts is the maximum number of parts of the horizontal axis that show their values under the
	// pointer. 0 means one part for each value or, with more than 100 values, 60 parts.
	Parts int
}

// Lines draws the series of p on shared axes. Color, dash and marker distinguish them, and values appear
// under the pointer. For a series with more points than the chart can show, Lines draws means and a
// band between the extremes.
func Lines(p Plot) template.HTML {
	f := &frame{Plot: p}
	f.Series = nil // the loop adds those that can be drawn
	var words []string
	for _, s := range p.Series {
		s = finite(s)
		if len(s.X) == 0 {
			continue
		}
		if p.Smooth {
			s.means, s.window = smooth(s)
		}
		f.Series = append(f.Series, s)
		words = append(words, inWords(s, p.X))
	}
	return f.draw(strings.Join(words, "; "))
}

// finite returns s without the points that cannot be drawn.
func finite(s Series) Series {
	out := Series{Name: s.Name}
	for i := range min(len(s.X), len(s.Y)) {
		if math.Abs(s.X[i]) < 1e300 && math.Abs(s.Y[i]) < 1e300 { // the bound keeps differences finite
			out.X, out.Y = append(out.X, s.X[i]), append(out.Y, s.Y[i])
		}
	}
	return out
}

// inWords describes a line for screen readers. x is the name of the horizontal axis.
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

// escape escapes s as HTML text.
func escape(s string) string { return template.HTMLEscapeString(s) }
