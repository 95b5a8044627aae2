package chart

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/report"
)

// A chart shows each value under the pointer if there are at most maxHits. If there are more, it shows
// the means of hitParts parts. Plot.Parts replaces both numbers.
const (
	maxHits  = 100
	hitParts = 60
)

// hit is a part of the horizontal axis. Its values appear while the pointer is over it.
type hit struct {
	from, to float64 // SVG coordinates
	title    string  // all values, in words
	short    string  // the main values, as SVG text
	marks    []point // points to mark, in SVG coordinates
}

// hover draws the parts of the axis, which style.css shows under the pointer.
func (f *frame) hover(b *strings.Builder, hits []hit) {
	b.WriteString(`<g class="hits">`)
	for _, h := range hits {
		fmt.Fprintf(b, `<g><path d="M%s %dh%sv%dH%sz"/><title>%s</title><g><path d="`, place(h.from), frameTop,
			place(h.to-h.from), frameBottom-frameTop, place(h.from), escape(h.title))
		for _, m := range h.marks {
			fmt.Fprintf(b, "M%s %sh0", place(m.x), place(m.y))
		}
		fmt.Fprintf(b, `"/><text x="%d" y="%d">%s</text></g></g>`, frameLeft, frameHeight-4, h.short)
	}
	b.WriteString("</g>")
}

// lineHits returns the hits of lines: one for each value on the horizontal axis or, if there
// are too many, for each of some parts.
func (f *frame) lineHits() (hits []hit) {
	var xs []float64
	for _, s := range f.Series {
		xs = append(xs, s.X...)
	}
	slices.Sort(xs)
	xs = slices.Compact(xs)
	n := len(xs)
	if n > cmp.Or(f.Parts, maxHits) {
		n = cmp.Or(f.Parts, hitParts)
	}
	from := float64(frameLeft)
	for i := range n {
		part := xs[i*len(xs)/n : (i+1)*len(xs)/n]
		h := hit{from: from, to: frameRight}
		if i < n-1 {
			h.to = (f.across.at(part[len(part)-1]) + f.across.at(xs[(i+1)*len(xs)/n])) / 2
		}
		from = h.to
		f.read(&h, part[0], part[len(part)-1])
		hits = append(hits, h)
	}
	return hits
}

// read sets the texts and marks of h to the values of all series from low to high on the horizontal axis.
func (f *frame) read(h *hit, low, high float64) {
	h.title = f.X + " " + report.Number(low)
	if high > low {
		h.title += " to " + report.Number(high)
	}
	h.short = escape(h.title)
	for i, s := range f.Series {
		begin, _ := slices.BinarySearch(s.X, low)
		end, found := slices.BinarySearch(s.X, high)
		if found {
			end++
		}
		if begin >= end {
			continue
		}
		values := s.Y[begin:end]
		mean := meanOf(values)
		if len(f.Series) > 1 {
			h.title += "\n" + s.Name
		}
		h.title += ": " + report.Number(mean)
		if lowest, highest := slices.Min(values), slices.Max(values); lowest < highest {
			h.title += fmt.Sprintf(" (%s to %s)", report.Number(lowest), report.Number(highest))
		}
		drawn := mean
		if len(s.means) > 0 {
			drawn = s.means[(begin+end-1)/2]
			h.title += fmt.Sprintf(", mean of %d: %s", min(s.window, (begin+end-1)/2+1), report.Number(drawn))
		}
		h.short += fmt.Sprintf(` <tspan class="m%d">%s</tspan>`, i%colours, report.Number(mean))
		h.marks = append(h.marks, point{f.across.at((s.X[begin] + s.X[end-1]) / 2), f.up.at(drawn)})
	}
}

// meanOf returns the mean of values without a sum that could overflow.
func meanOf(values []float64) (mean float64) {
	for i, y := range values {
		mean += (y - mean) / float64(i+1)
	}
	return mean
}

// binHits returns the hits of the bars over edges.
func (f *frame) binHits(edges []float64) (hits []hit) {
	for i := 1; i < len(edges); i++ {
		h := hit{from: f.across.at(edges[i-1]), to: f.across.at(edges[i])}
		h.title = fmt.Sprintf("%s %s to %s", f.X, report.Number(edges[i-1]), report.Number(edges[i]))
		h.short = escape(h.title)
		for k, s := range f.Series {
			share := s.Y[2*i-1]
			h.title += fmt.Sprintf("\n%s: %.1f%%", s.Name, share)
			h.short += fmt.Sprintf(` <tspan class="m%d">%.0f%%</tspan>`, k%colours, share)
			h.marks = append(h.marks, point{(h.from + h.to) / 2, f.up.at(share)})
		}
		hits = append(hits, h)
	}
	return hits
}
