package chart

// Limits of smoothing: fewer values than leastSmoothed are drawn as they are, and so is a
// line that turns at fewer than one in smoothTurns of its values.
const (
	leastSmoothed = 20
	leastWindow   = 5
	smoothTurns   = 4
)

// smooth returns the mean of each value and those before it in a window of values, a
// twentieth of the line. It returns nil for a line that is short or smooth already.
func smooth(s Series) (means []float64, window int) {
	if len(s.Y) < leastSmoothed || turns(s.Y)*smoothTurns < len(s.Y) {
		return nil, 0
	}
	window = max(leastWindow, int(round(float64(len(s.Y))/20)))
	means = make([]float64, len(s.Y))
	sum := 0.0
	for i, y := range s.Y {
		if i%window == 0 { // afresh, so that rounding errors do not add up
			sum = 0
			for _, before := range s.Y[max(i+1-window, 0):i] {
				sum += before
			}
		} else if i >= window {
			sum -= s.Y[i-window]
		}
		sum += y
		means[i] = sum / float64(min(i+1, window))
	}
	return means, window
}

// turns returns how often values change between rising and falling.
func turns(values []float64) (n int) {
	up, down := false, false
	for i := 1; i < len(values); i++ {
		switch {
		case values[i] > values[i-1]:
			if down {
				n++
			}
			up, down = true, false
		case values[i] < values[i-1]:
			if up {
				n++
			}
			up, down = false, true
		}
	}
	return n
}
