package chart

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/report"
)

// bins is the approximate number of bins in a histogram.
const bins = 24

// Sample is a set of values to draw the distribution of.
type Sample struct {
	Name   string
	Values []float64
}

// Histogram draws the distributions of samples as outlines on shared axes. The chart has the given title,
// and x names the values, such as "tokens".
func Histogram(title, x string, samples []Sample) template.HTML {
	f := &frame{Plot: Plot{Title: title, X: x, Y: "% of values"}}
	low, high := math.Inf(1), math.Inf(-1)
	var kept []Sample
	for _, s := range samples {
		values := slices.Sorted(slices.Values(finite(Series{X: s.Values, Y: s.Values}).X))
		if n := len(values); n > 0 {
			low, high = min(low, values[0]), max(high, values[n-1])
			kept = append(kept, Sample{s.Name, values})
		}
	}
	f.edges = binEdges(low, high)
	var words []string
	for _, s := range kept {
		f.Series = append(f.Series, outline(s, f.edges))
		n := len(s.Values)
		words = append(words, fmt.Sprintf("%s: %d values from %s to %s, median %s", s.Name, n,
			report.Number(s.Values[0]), report.Number(s.Values[n-1]), report.Number(s.Values[(n-1)/2])))
	}
	return f.draw(strings.Join(words, "; "))
}

// binEdges returns round bin edges for values from low to high.
func binEdges(low, high float64) []float64 {
	a := newAxis(low, high, 0, 1, bins).widen()
	if low == high { // only one value: put it in one narrow bin
		return []float64{a.low, low - (a.high-a.low)/20, low + (a.high-a.low)/20, a.high}
	}
	if edges := a.ticks(); len(edges) > 1 {
		return edges
	}
	return []float64{a.low, a.high}
}

// outline returns the outline of a sample's bars over edges, in percent of its values. The values are
// sorted. The last bin includes its upper edge.
func outline(sample Sample, edges []float64) Series {
	s := Series{Name: sample.Name, X: []float64{edges[0]}, Y: []float64{0}}
	sorted := sample.Values
	before := 0 // number of values in earlier bins
	for i := 1; i < len(edges); i++ {
		upTo, _ := slices.BinarySearch(sorted, edges[i]-1e-9*(edges[i]-edges[i-1]))
		if i == len(edges)-1 {
			upTo = len(sorted)
		}
		share := 100 * float64(upTo-before) / float64(len(sorted))
		before = upTo
		s.X = append(s.X, edges[i-1], edges[i])
		s.Y = append(s.Y, share, share)
	}
	s.X = append(s.X, edges[len(edges)-1])
	s.Y = append(s.Y, 0)
	return s
}
