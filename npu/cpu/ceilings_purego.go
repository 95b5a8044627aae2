package cpu

// pureGoLoops returns the loops of the pure-Go device, whose multiply-add is fma32.
func pureGoLoops() loops {
	return loops{fma: pureGoFMA, read: pureGoRead, copy: func(dst, src []float32) { copy(dst, src) }}
}

// pureGoFMA runs twelve chains of one lane.
func pureGoFMA(rounds int) float64 {
	var a [12]float32
	for i := range a {
		a[i] = float32(i + 3)
	}
	for range rounds * (fmaRound / len(a)) {
		for i := range a {
			a[i] = fma32(a[i], 0.5, 1)
		}
	}
	sum := 0.0
	for _, x := range a {
		sum += float64(x)
	}
	return sum
}

// pureGoRead sums p in four chains.
func pureGoRead(p []float32) float64 {
	var a, b, c, d float32
	for ; len(p) >= 4; p = p[4:] {
		a += p[0]
		b += p[1]
		c += p[2]
		d += p[3]
	}
	return float64(a) + float64(b) + float64(c) + float64(d)
}
