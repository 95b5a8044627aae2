package chart

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// textureCount is the number of textures for work, each a unique pair of color and pattern. One more
// texture, with this index, marks waiting. style.css has a class g for each.
const textureCount = 24

// patterns returns the paths drawn over a bar's color, in a 6-pixel square.
func patterns() []string {
	return []string{
		"",                                 // plain
		"M-1 7L7 -1M-1 1L1 -1M5 7L7 5",     // rising lines
		"M0 3H6",                           // horizontal lines
		"M1.5 1.5h1v1h-1zM4.5 4.5h1v1h-1z", // dots
		"M-1 -1L7 7M5 -1L7 1M-1 5L1 7",     // falling lines
		"M3 0V6",                           // vertical lines
		"M3 0V6M0 3H6",                     // grid
	}
}

// texture returns the index of the texture for a kind of bar. It is the same in all rows.
func (g *gantt) texture(name string) int {
	at, ok := g.kinds[name]
	switch {
	case ok:
		return at
	case name == "wait" || name == "idle" || name == "queue":
		at = textureCount
	default:
		if at = slices.Index(g.usual, name); at < 0 {
			at = g.working
			g.working++
		}
		at %= textureCount
	}
	g.kinds[name] = at
	return at
}

// textures returns the SVG definitions of the fill patterns.
func textures() string {
	var b strings.Builder
	b.WriteString(`<svg width="0" height="0" class="defs" aria-hidden="true"><defs>`)
	all := patterns()
	for i := range textureCount {
		fmt.Fprintf(&b, `<pattern id="t%d" width="6" height="6" patternUnits="userSpaceOnUse"><path class="m%d" `+
			`d="M0 0h6v6h-6z"/><path class="over" d="%s"/></pattern>`,
			i, i%colours, all[(i+i/colours)%len(all)])
	}
	fmt.Fprintf(&b, `<pattern id="t%d" width="6" height="6" patternUnits="userSpaceOnUse"><path class="under" d="M0 `+
		`0h6v6h-6z"/><path class="rest" d="M2 2.5h2v1h-2z"/></pattern></defs></svg>`, textureCount)
	return b.String()
}

// anchor returns the ID of window i in the page.
func anchor(i int) string { return fmt.Sprintf("Workers-%d", i) }

// links returns links to the windows or, if there are many, to some that are evenly spread. It returns ""
// for a few windows, which need none. first is the number of the first window.
func links(windows []Span, first int) string {
	const maxLinks = 8
	if len(windows) < 4 {
		return ""
	}
	var b strings.Builder
	b.WriteString(`<nav class="links" aria-label="jump to">`)
	n := min(len(windows), maxLinks)
	for i := range n {
		at := i * (len(windows) - 1) / (n - 1)
		fmt.Fprintf(&b, `<a href="#%s">%s</a> `, anchor(first+at), escape(windows[at].Name))
	}
	b.WriteString("</nav>")
	return b.String()
}

// key lists the kinds of bars with their textures.
func (g *gantt) key(b *strings.Builder) {
	names := map[int][]string{} // by texture
	for _, name := range slices.Sorted(maps.Keys(g.kinds)) {
		names[g.kinds[name]] = append(names[g.kinds[name]], name)
	}
	b.WriteString(`<ul class="key">`)
	for _, at := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(b,
			`<li><svg width="26" height="15" aria-hidden="true"><path class="g%d" d="M0 7.5h26"/></svg>%s</li>`, at,
			escape(strings.Join(names[at], ", ")))
	}
	b.WriteString("</ul>")
}

// table lists the share of each kind in each row over all windows.
func (g *gantt) table(b *strings.Builder) {
	total := map[string]float64{}
	for _, of := range g.shares {
		for name, seconds := range of {
			total[name] += seconds
		}
	}
	kinds := slices.SortedFunc(maps.Keys(total), func(a, b string) int {
		return cmp.Or(cmp.Compare(total[b], total[a]), strings.Compare(a, b))
	})
	kinds = kinds[:min(len(kinds), 12)]
	b.WriteString(`<details><summary>As a table: how each row spent this time</summary><div class="wide" ` +
		`tabindex="0" role="region" aria-label="shares of time"><table><thead><tr><th scope="col">row</th>`)
	for _, kind := range kinds {
		fmt.Fprintf(b, `<th scope="col">%s</th>`, escape(kind))
	}
	b.WriteString("</tr></thead><tbody>")
	for i, r := range g.rows {
		fmt.Fprintf(b, `<tr><th scope="row">%s</th>`, escape(r.Name))
		for _, kind := range kinds {
			fmt.Fprintf(b, "<td>%.1f%%</td>", 100*g.shares[i][kind]/g.length)
		}
		b.WriteString("</tr>")
	}
	b.WriteString("</tbody></table></div></details>")
}
