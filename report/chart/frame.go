package chart

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/report"
)

// Sizes of a chart and of the area inside its axes, in SVG units.
const (
	frameWidth  = 360
	frameHeight = 202
	frameLeft   = 60
	frameRight  = 344
	frameTop    = 10
	frameBottom = 166
)

// frame is a chart with its axes.
type frame struct {
	Plot
	edges  []float64 // edges of a histogram's bins, ascending; nil for a chart of lines
	across axis      // horizontal; set by scale
	up     axis      // vertical; set by scale
}

// draw returns the figure: its caption, a key for more than one series, and the chart.
// words describes its content for screen readers.
func (f *frame) draw(words string) template.HTML {
	var b strings.Builder
	fmt.Fprintf(&b, `<figure class="chart"><figcaption><b>%s</b>`, escape(f.Title))
	var small []string
	if len(f.Series) == 1 && f.edges == nil {
		s := f.Series[0]
		fmt.Fprintf(&b, `<span>%s</span>`, report.Number(s.Y[len(s.Y)-1]))
		if s.Name != f.Title {
			small = append(small, s.Name)
		}
	}
	if text := f.smoothed(); text != "" {
		small = append(small, text)
	}
	if len(small) > 0 {
		fmt.Fprintf(&b, `<small class="muted">%s</small>`, escape(strings.Join(small, " · ")))
	}
	b.WriteString("</figcaption>")
	if len(f.Series) == 0 {
		return template.HTML(b.String() +
			`<p class="muted">no values</p></figure>`) //nolint:gosec // all text was escaped
	}
	f.key(&b)
	f.scale()
	over := f.X
	if f.Y != "" {
		over = f.Y + " over " + f.X
	}
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s: %s. %s">`,
		frameWidth, frameHeight, escape(f.Title), escape(over), escape(words))
	f.axes(&b)
	for i, s := range f.Series {
		f.line(&b, i, s)
	}
	if f.edges == nil {
		f.hover(&b, f.lineHits())
	} else {
		f.hover(&b, f.binHits(f.edges))
	}
	b.WriteString("</svg></figure>\n")
	return template.HTML(b.String()) //nolint:gosec // all text was escaped
}

// smoothed describes how many values a point of a smoothed line averages. It is empty if no line is
// smoothed.
func (f *frame) smoothed() string {
	smallest, largest := 0, 0 // windows
	for _, s := range f.Series {
		if s.window > 0 {
			smallest = min(cmp.Or(smallest, s.window), s.window)
			largest = max(largest, s.window)
		}
	}
	switch {
	case largest == 0:
		return ""
	case smallest < largest:
		return fmt.Sprintf("means of %d to %d", smallest, largest)
	}
	return fmt.Sprintf("mean of %d", largest)
}

// scale fits the axes to the series.
func (f *frame) scale() {
	left, right := math.Inf(1), math.Inf(-1)
	low, high := left, right
	for _, s := range f.Series {
		left, right = min(left, slices.Min(s.X)), max(right, slices.Max(s.X))
		low, high = min(low, slices.Min(s.Y)), max(high, slices.Max(s.Y))
	}
	if f.edges != nil {
		low = 0
	}
	if f.From < f.To {
		left, right = min(left, f.From), max(right, f.To)
	}
	f.across = newAxis(left, right, frameLeft, frameRight, 5)
	if f.X == "step" && f.across.step > 0 {
		f.across.step = max(f.across.step, 1) // no tick between steps
	}
	f.up = newAxis(low, high, frameBottom, frameTop, 4).widen()
}

// axes draws the axes with their ticks and names.
func (f *frame) axes(b *strings.Builder) {
	for _, y := range f.up.ticks() {
		at := place(f.up.at(y))
		fmt.Fprintf(b, `<path class="grid" d="M%d %sH%d"/><text x="%d" y="%s" dy="3.5" text-anchor="end">%s</text>`,
			frameLeft, at, frameRight, frameLeft-5, at, f.up.tick(y))
	}
	for _, x := range f.across.ticks() {
		at, label, anchor := place(f.across.at(x)), f.across.tick(x), "middle"
		if f.across.at(x)+4*float64(len(label)) > frameWidth {
			anchor = "end"
		}
		fmt.Fprintf(b, `<path class="tick" d="M%s %dv4"/><text x="%s" y="%d" text-anchor="%s">%s</text>`,
			at, frameBottom, at, frameBottom+15, anchor, label)
	}
	fmt.Fprintf(b, `<path class="axis" d="M%d %dV%dH%d"/>`, frameLeft, frameTop, frameBottom, frameRight)
	fmt.Fprintf(b, `<text class="name" x="%d" y="%d" text-anchor="end">%s</text>`,
		frameRight, frameHeight-4, escape(f.X))
	if f.Y != "" {
		middle := (frameTop + frameBottom) / 2
		fmt.Fprintf(b, `<text class="name" x="12" y="%d" text-anchor="middle" transform="rotate(-90 12 %d)">%s</text>`,
			middle, middle, escape(f.Y))
	}
}

// line draws series i: its values or their band, its line and a few markers.
func (f *frame) line(b *strings.Builder, i int, s Series) {
	drawn, band := thin(s, f.across)
	if len(band) > 0 {
		fmt.Fprintf(b, `<polygon class="band l%d" points="%s"/>`, i%colours, f.points(band))
	}
	if len(s.means) > 0 {
		if len(band) == 0 {
			fmt.Fprintf(b, `<polyline class="raw l%d" points="%s"/>`, i%colours, f.points(drawn))
		}
		s.Y = s.means
		drawn, _ = thin(s, f.across)
	}
	fmt.Fprintf(b, `<polyline class="l%d" stroke-dasharray="%s" points="%s"/>`, i%colours, dash(i), f.points(drawn))
	if f.edges != nil {
		return
	}
	last := len(s.X) - 1
	marks := []point{{s.X[last], s.Y[last]}}
	if len(f.Series) > 1 {
		for part := range 4 { // offsets differ, so that overlapping lines stay visible
			at := (len(drawn) - 1) * (4*part + i%4) / 16
			marks = append(marks, drawn[at])
		}
	}
	var d strings.Builder
	for _, m := range marks {
		fmt.Fprintf(&d, "M%s %s%s", place(f.across.at(m.x)), place(f.up.at(m.y)), marker(i))
	}
	fmt.Fprintf(b, `<path class="m%d" d="%s"/>`, i%colours, d.String())
}

// points returns the SVG coordinates of points.
func (f *frame) points(points []point) string {
	var b strings.Builder
	for _, p := range points {
		fmt.Fprintf(&b, "%s,%s ", place(f.across.at(p.x)), place(f.up.at(p.y)))
	}
	return strings.TrimSpace(b.String())
}

// key lists the series with their styles and last values.
func (f *frame) key(b *strings.Builder) {
	if len(f.Series) < 2 {
		return
	}
	b.WriteString(`<ul class="key">`)
	for i, s := range f.Series {
		fmt.Fprintf(b, `<li><svg viewBox="0 0 34 12" width="34" height="12" aria-hidden="true"><path class="l%d" `+
			`stroke-dasharray="%s" d="M1 6H33"/>`, i%colours, dash(i))
		if f.edges != nil {
			fmt.Fprintf(b, `</svg>%s</li>`, escape(s.Name))
			continue
		}
		fmt.Fprintf(b, `<path class="m%d" d="M17 6%s"/></svg>%s <b>%s</b></li>`, i%colours, marker(i), escape(s.Name),
			report.Number(s.Y[len(s.Y)-1]))
	}
	b.WriteString("</ul>")
}

// dash returns the dash pattern of series i.
func dash(i int) string {
	all := []string{"none", "6 3", "2 2.5", "9 3 2 3", "12 4", "4 2 1 2 1 2"}
	return all[i%len(all)]
}

// marker returns the marker path of series i, relative to the current point.
func marker(i int) string {
	all := []string{
		"m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z",               // disc
		"m-2.7-2.7h5.4v5.4h-5.4z",                           // square
		"m0-3.6l3.4 6h-6.8z",                                // triangle
		"m0-3.8l3.8 3.8l-3.8 3.8l-3.8-3.8z",                 // diamond
		"m-3.4-2.8h6.8l-3.4 6z",                             // inverted triangle
		"m-1-3.5h2v2.5h2.5v2h-2.5v2.5h-2v-2.5h-2.5v-2h2.5z", // cross
		"m-3.5-1.2h7v2.4h-7z",                               // bar
	}
	return all[i%len(all)]
}
