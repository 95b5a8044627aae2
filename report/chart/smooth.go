package chart

// Limits of smoothing.
const (
	minSmoothed = 20 // values of the shortest line that is smoothed
	minWindow   = 5  // values that a mean covers
	smoothTurns = 4  // a line that turns at fewer than one in this many values is already smooth
)

// smooth returns, for each value, the mean of the window of values that ends with it. window is the number
// of values in a full window, about a twentieth of the line. smooth returns nil and 0 for a line that is
// short or already smooth.
func smooth(s Series) (means []float64, window int) {
	if len(s.Y) < minSmoothed || turns(s.Y)*smoothTurns < len(s.Y) {
		return nil, 0
	}
	window = max(minWindow, int(round(float64(len(s.Y))/20)))
	means = make([]float64, len(s.Y))
	sum := 0.0
	for i, y := range s.Y {
		if i%window == 0 { // sum the window again, so that rounding errors do not accumulate
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
