package chart

import "slices"

// buckets is the number of distinguishable parts of the horizontal axis.
const buckets = 200

// point is a point of a line, in values or in SVG coordinates.
type point struct{ x, y float64 }

// thin returns what to draw of s: all points or, if there are too many, the mean of each part of the axis
// and a band between the part's extremes. A band is a closed polygon; without one, band is nil.
func thin(s Series, across axis) (line, band []point) {
	if len(s.X) <= 2*buckets {
		for i := range s.X {
			line = append(line, point{s.X[i], s.Y[i]})
		}
		return line, nil
	}
	type part struct{ x, y, low, high, n float64 }
	var parts [buckets]part
	for i, x := range s.X {
		y := s.Y[i]
		share := (x - across.low) / (across.high - across.low)
		at := 0 // for an axis so long that its length or x's distance is not finite
		if share > 0 && share <= 1 {
			at = min(int(share*buckets), buckets-1)
		}
		p := &parts[at]
		if p.n == 0 {
			p.low, p.high = y, y
		}
		p.n++
		p.x += (x - p.x) / p.n
		p.y += (y - p.y) / p.n
		p.low, p.high = min(p.low, y), max(p.high, y)
	}
	var below []point
	for _, p := range parts {
		if p.n == 0 {
			continue
		}
		line = append(line, point{p.x, p.y})
		band = append(band, point{p.x, p.high})
		below = append(below, point{p.x, p.low})
	}
	slices.Reverse(below)
	return line, append(band, below...)
}
