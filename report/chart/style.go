package chart

import (
	_ "embed"
	"fmt"
	"html/template"
	"strings"
)

//go:embed style.css
var rules string

// colours is the number of line colors.
const colours = 7

// color is a named color in the light and dark schemes.
type color struct{ name, light, dark string }

// palette returns the colors of a page, variables of its style sheet. Text colors are
// readable on paper and on panel, and line colors are visible on paper.
func palette() []color {
	return []color{
		{"paper", "#ffffff", "#14171c"},
		{"panel", "#f3f4f6", "#1f242c"},
		{"ink", "#1b1f24", "#e6e8eb"},
		{"muted", "#555d68", "#a6aebb"},
		{"rule", "#d5d9df", "#343b46"}, // separators that carry no meaning
		{"edge", "#7b8490", "#7d8795"}, // borders of fields and axis lines
		{"link", "#1a56b0", "#86b6ff"},
		{"gone", "#fbe3e1", "#4a2423"}, // background of deleted text
		{"come", "#dcf2e3", "#1c4029"}, // background of inserted text
		{"q1", "#fdf0dc", "#2c2820"},   // backgrounds of text, from likely to unlikely
		{"q2", "#fbe0bd", "#40321f"},
		{"q3", "#f9cc97", "#593b1c"},
		{"q4", "#f7b37a", "#74411a"},
		{"q5", "#f59a78", "#8f3d1f"},
		{"c0", "#1f5fbf", "#6ea8ff"},
		{"c1", "#b35900", "#ffb454"},
		{"c2", "#0b7a53", "#4fd1a0"},
		{"c3", "#8c3fa8", "#cf9bff"},
		{"c4", "#c0262d", "#ff8a80"},
		{"c5", "#0f7683", "#5ad1de"},
		{"c6", "#7a5c1e", "#d9bd6c"},
	}
}

// Style returns a page's style sheet, for light and dark schemes and any width from
// a phone's: type, tables and charts. Its variables are --paper, --panel, --ink,
// --muted, --rule, --edge, --link, --gone, --come, --q1 to --q5 for text, and --c0 to --c6
// for lines.
func Style() template.CSS {
	var light, dark, each strings.Builder
	for _, c := range palette() {
		fmt.Fprintf(&light, "--%s:%s;", c.name, c.light)
		fmt.Fprintf(&dark, "--%s:%s;", c.name, c.dark)
	}
	for i := range colours {
		fmt.Fprintf(&each, ".l%d{stroke:var(--c%d)}.band.l%d,.m%d{fill:var(--c%d)}\n", i, i, i, i, i)
	}
	for i := range textureCount + 1 {
		fmt.Fprintf(&each, ".g%d{stroke:url(#t%d)}", i, i)
	}
	return template.CSS(fmt.Sprintf(":root{color-scheme:light dark;%s}\n@media (prefers-color-scheme:dark){:root{%s}}\n%s%s\n", //nolint:gosec // all from this package
		light.String(), dark.String(), rules, each.String()))
}
