package chart

import (
	_ "embed"
	"html/template"
)

// rules begins with the colors, for light and then for dark schemes. Text colors are readable on
// --paper and --panel, and line colors are visible on --paper. --rule draws decorative separators, --edge
// the borders of fields and axes. --gone and --come are backgrounds of deleted and inserted text, --q1 to
// --q5 those of likely to unlikely text. Classes l, m and g with a number, at the end of the file, draw
// a line, a marker and a bar of that color or texture.
//
//go:embed style.css
var rules string

// colours is the number of line colors in rules: style.css has a variable --c and classes l and m for each.
const colours = 7

// Style returns a page's style sheet, for light and dark schemes and any width from
// a phone's: type, tables and charts. Its variables are --paper, --panel, --ink,
// --muted, --rule, --edge, --link, --gone, --come, --q1 to --q5 for text, and --c0 to --c6
// for lines.
func Style() template.CSS { return template.CSS(rules) } //nolint:gosec // from this package
