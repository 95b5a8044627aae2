package main

import (
	"bytes"
	"fmt"
	"math"
)

const (
	plotWidth, plotHeight = 460.0, 300.0
	plotLeft, plotBottom  = 70.0, 50.0 // space for axis labels
	plotTop, plotRight    = 40.0, 20.0
)

// plot draws the curves as one SVG: time next to memory, one row per unit, with logarithmic
// axes.
func plot(curves []curve) []byte {
	var units []string
	rows := map[string][]curve{}
	for _, c := range curves {
		if rows[c.Unit] == nil {
			units = append(units, c.Unit)
		}
		rows[c.Unit] = append(rows[c.Unit], c)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%g" height="%g" font-family="sans-serif" font-size="12">`+"\n",
		2*plotWidth, plotHeight*float64(len(units)))
	fmt.Fprintln(&b, `<rect width="100%" height="100%" fill="white"/>`)
	for i, unit := range units {
		y := plotHeight * float64(i)
		panel(&b, 0, y, unit, "seconds a step", rows[unit], func(p curvePoint) float64 { return p.Seconds })
		panel(&b, plotWidth, y, unit, "peak memory, MB", rows[unit],
			func(p curvePoint) float64 { return float64(p.PeakBytes) / 1e6 })
	}
	fmt.Fprintln(&b, `</svg>`)
	return b.Bytes()
}

// panel draws one diagram of value over X, with its top left corner at (left, top).
func panel(b *bytes.Buffer, left, top float64, unit, title string, curves []curve, value func(curvePoint) float64) {
	lowX, highX, lowY, highY := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, c := range curves {
		for _, p := range c.Points {
			x, y := math.Log2(p.X), math.Log2(value(p))
			lowX, highX = min(lowX, x), max(highX, x)
			lowY, highY = min(lowY, math.Floor(y)), max(highY, math.Ceil(y))
		}
	}
	x := func(v float64) float64 {
		return left + plotLeft + (v-lowX)/(highX-lowX)*(plotWidth-plotLeft-plotRight)
	}
	y := func(v float64) float64 {
		return top + plotHeight - plotBottom - (v-lowY)/(highY-lowY)*(plotHeight-plotTop-plotBottom)
	}
	fmt.Fprintf(b, `<text x="%g" y="%g" font-weight="bold">%s</text>`+"\n", left+plotLeft, top+18, title)
	fmt.Fprintf(b, `<text x="%g" y="%g" text-anchor="middle">%s</text>`+"\n", x((lowX+highX)/2),
		top+plotHeight-12, unit)
	for v := lowY; v <= highY; v++ {
		fmt.Fprintf(b, `<path d="M%g %gH%g" stroke="#ddd"/><text x="%g" y="%g" text-anchor="end">%.4g</text>`+"\n",
			x(lowX), y(v), x(highX), x(lowX)-8, y(v)+4, math.Exp2(v))
	}
	for i, c := range curves {
		color := []string{"#1f6fb4", "#c8501e", "#3a8c3a"}[i%3]
		path := ""
		for j, p := range c.Points {
			px, py := x(math.Log2(p.X)), y(math.Log2(value(p)))
			command := "L"
			if j == 0 {
				command = "M"
			}
			path += fmt.Sprintf("%s%.1f %.1f", command, px, py)
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", px, py, color)
			if i == 0 {
				fmt.Fprintf(b, `<text x="%.1f" y="%g" text-anchor="middle">%g</text>`+"\n", px, y(lowY)+18, p.X)
			}
		}
		fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"/><text x="%g" y="%g" fill="%s">%s</text>`+
			"\n",
			path, color, left+plotLeft+6, top+plotTop+14*float64(i)-4, color, c.Name)
	}
}
