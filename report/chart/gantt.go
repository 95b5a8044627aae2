package chart

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/report"
)

// Sizes of a Gantt chart, in pixels unless another unit is given.
const (
	ganttRow      = 22      // height of a row
	ganttFoot     = 34      // height of the time axis with its labels
	ganttWindow   = 290     // width of a window of median length, so that about three are visible
	ganttMaxWidth = 1200    // max. width of a window
	ganttBytes    = 300_000 // bytes of SVG above which Gantt omits the oldest windows
)

// Span is a named interval of time, in seconds.
type Span struct {
	Name     string
	From, To float64
}

// Row holds the work of one worker as bars, each named by its kind. Bars that a bar encloses
// come after it.
type Row struct {
	Name string
	Bars []Span
}

// Gantt draws the rows of workers in adjacent, scrollable windows on one time scale, and a table of how
// each row spent its time. windows are in time order and not empty. Color, texture and, where they
// fit, names distinguish kinds of bars. The kinds in usual look the same in every chart.
func Gantt(rows []Row, windows []Span, usual ...string) template.HTML {
	g := gantt{rows: rows, scale: scaleOf(windows), kinds: map[string]int{}, working: len(usual), usual: usual}
	for range rows {
		g.shares = append(g.shares, map[string]float64{})
	}
	var drawn []string
	size := 0
	for i, w := range slices.Backward(windows) {
		if size > ganttBytes && len(drawn) >= 3 {
			break
		}
		drawn = append(drawn, g.window(w, anchor(i)))
		size += len(drawn[len(drawn)-1])
	}
	slices.Reverse(drawn)
	first := len(windows) - len(drawn)
	windows = windows[first:]
	title := "Workers"
	if len(windows) > 1 {
		title += ", " + windows[0].Name + " to " + windows[len(windows)-1].Name
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<figure class="chart gantt"><figcaption><b>%s</b></figcaption>%s%s`,
		escape(title), textures(), links(windows, first))
	b.WriteString(`<div class="frame"><ul class="names" aria-hidden="true">`)
	for _, r := range rows {
		fmt.Fprintf(&b, `<li>%s</li>`, escape(r.Name))
	}
	b.WriteString(`</ul>`)
	fmt.Fprintf(&b, `<div class="strip" tabindex="0" role="region" aria-label="%s, scrolls sideways">%s</div></div>`,
		escape(title), strings.Join(drawn, ""))
	g.key(&b)
	g.table(&b)
	b.WriteString("</figure>\n")
	return template.HTML(b.String()) //nolint:gosec // all text was escaped
}

// gantt is a Gantt chart in progress.
type gantt struct {
	rows    []Row
	scale   float64              // pixels per second
	usual   []string             // kinds that have the first textures, in this order
	kinds   map[string]int       // texture by kind of bar
	working int                  // number of textures in use, without the one for waiting
	shares  []map[string]float64 // seconds of each kind, by row
	length  float64              // total length of the windows drawn, in seconds
}

// scaleOf returns the scale that makes the median window ganttWindow wide, reduced so
// that no window exceeds ganttMaxWidth.
func scaleOf(windows []Span) float64 {
	var lengths []float64
	for _, w := range windows {
		lengths = append(lengths, max(w.To-w.From, 1e-6))
	}
	slices.Sort(lengths)
	return min(ganttWindow/lengths[len(lengths)/2], ganttMaxWidth/lengths[len(lengths)-1])
}

// window draws the window w as an SVG element with the given ID, and adds its times to g.shares and
// g.length.
func (g *gantt) window(w Span, id string) string {
	seconds := max(w.To-w.From, 1e-6)
	width := max(int(seconds*g.scale), 40)
	height := len(g.rows)*ganttRow + ganttFoot
	var b strings.Builder
	var words []string
	for i, r := range g.rows {
		pieces := columns(r.Bars, w, width)
		byKind := map[string][]piece{}
		for _, p := range pieces {
			if p.name != "" {
				byKind[p.name] = append(byKind[p.name], p)
			}
		}
		words = append(words, r.Name+": "+g.describe(i, byKind, float64(width), seconds))
		g.row(&b, i, byKind)
	}
	g.length += seconds
	a := newAxis(0, seconds, 0, float64(width), max(width/90, 1))
	var foot strings.Builder
	for _, t := range a.ticks() {
		if at := a.at(t); at < float64(width)-30 && t > 0 {
			fmt.Fprintf(&foot, `<path class="tick" d="M%s %dv4"/><text x="%s" y="%d" text-anchor="middle">%s</text>`,
				place(at), height-ganttFoot, place(at), height-ganttFoot+15, report.Number(t))
		}
	}
	return fmt.Sprintf(`<svg id="%s" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s, %s s. %s">`+
		`<path class="axis" d="M0 0v%dh%d"/>%s%s<text class="name" x="4" y="%d">%s · %s s</text></svg>`,
		id, width, height, width, height, escape(w.Name), report.Number(seconds), escape(strings.Join(words, "; ")),
		height-ganttFoot, width, foot.String(), b.String(), height-4, escape(w.Name), report.Number(seconds))
}

// describe lists the kinds of bars of row i in a window with their shares, longest first, and adds their
// times to g.shares.
func (g *gantt) describe(i int, byKind map[string][]piece, width, seconds float64) string {
	var all []string
	of := map[string]float64{}
	for name, pieces := range byKind {
		for _, p := range pieces {
			of[name] += float64(p.width) / width
		}
		g.shares[i][name] += of[name] * seconds
		all = append(all, name)
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(cmp.Compare(of[b], of[a]), strings.Compare(a, b)) })
	for k, name := range all {
		all[k] = fmt.Sprintf("%s %.0f%%", name, 100*of[name])
	}
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all[:min(len(all), 4)], ", ")
}

// row draws the bars of row i, one path per kind, and the names that fit.
func (g *gantt) row(b *strings.Builder, i int, byKind map[string][]piece) {
	middle := i*ganttRow + ganttRow/2
	var labels strings.Builder
	for _, name := range slices.Sorted(maps.Keys(byKind)) {
		fmt.Fprintf(b, `<path class="g%d" d="`, g.texture(name))
		at := 0
		for k, p := range byKind[name] {
			if k == 0 {
				fmt.Fprintf(b, "M%d %dh%d", p.from, middle, p.width)
			} else {
				fmt.Fprintf(b, "m%d 0h%d", p.from-at, p.width)
			}
			at = p.from + p.width
			if p.width > 7*len(name)+10 {
				fmt.Fprintf(&labels, `<text class="in" x="%d" y="%d" text-anchor="middle">%s</text>`, p.from+p.width/2,
					middle+4, escape(name))
			}
		}
		fmt.Fprintf(b, `"><title>%s</title></path>`, escape(name))
	}
	b.WriteString(labels.String())
}

// piece is a bar in pixels.
type piece struct {
	name        string // kind of bar; empty for a gap
	from, width int
}

// columns divides the window w into pixel columns. A column takes the name of the last bar that covers at
// least half of it, so that an enclosed bar hides the one around it. If there is none, it takes the
// name of the first bar that covers any of it. Adjacent columns with the same name form one piece.
func columns(bars []Span, w Span, width int) []piece {
	names := make([]string, width)
	scale := float64(width) / max(w.To-w.From, 1e-6)
	for _, bar := range bars {
		if bar.To < w.From || bar.From > w.To {
			continue
		}
		begin, end := max((bar.From-w.From)*scale, 0), min((bar.To-w.From)*scale, float64(width))
		for c := int(begin); c < min(int(end)+1, width); c++ {
			covered := min(end, float64(c+1)) - max(begin, float64(c))
			if covered >= .5 || covered > 0 && names[c] == "" {
				names[c] = bar.Name
			}
		}
	}
	var out []piece
	for c, name := range names {
		if last := len(out) - 1; last >= 0 && out[last].name == name {
			out[last].width++
			continue
		}
		out = append(out, piece{name: name, from: c, width: 1})
	}
	return out
}
