package cpu

import (
	"math"

	"github.com/easyrl/easyrl/npu"
)

// RMSNorm implements npu.Device: r = 1/sqrt(Σx²/n + eps), y = (x·r)·weight. The sum
// is a fold whose partial sums are chains of fused multiply-adds.
func (d *pureGo) RMSNorm(y, x, weight npu.Buffer, t int, eps float32) {
	n := weight.Len()
	d.check.Norm(y, x, weight, t)
	xs, w := read(x), read(weight)
	ys, done := write(y)
	defer done()
	d.parallel(t, func(row int) {
		xr, yr := xs[row*n:(row+1)*n], ys[row*n:(row+1)*n]
		r := inverseRMS(xr, eps)
		for i, v := range xr {
			yr[i] = float32(float32(v*r) * w[i])
		}
	})
}

// NormLinear implements npu.Device.
func (d *pureGo) NormLinear(outputs []npu.Projection, norm, x, weight npu.Buffer, t int, eps float32) {
	d.check.NormLinear(outputs, norm, x, weight, t)
	d.RMSNorm(norm, x, weight, t, eps)
	for _, o := range outputs {
		d.Linear(o.Y, norm, o.W, o.Bias, t, npu.Fresh)
	}
}

// RMSNormBackward implements npu.Device: dx = fma(x, -b, g·r), where g = dy·weight,
// b = (((c/n)·r)·r)·r, c is the fold of g·x, and r is inverseRMS. For each unit and head, it adds
// a chain of dy·(x·r) over the unit's rows to dWeight.
func (d *pureGo) RMSNormBackward(dx npu.Buffer, dWeight npu.Sums, dy, x, weight npu.Buffer, heads int, eps float32,
	add bool, l *npu.Leaves) {
	n := weight.Len()
	d.check.NormBackward(dx, dWeight, dy, x, weight, heads, l)
	dys, xs, w := read(dy), read(x), read(weight)
	dxs, done := write(dx)
	defer done()
	gradient := fixedSums(dWeight, l.FixedPoint)
	start := 0
	for _, end := range l.Units.Int32s() {
		dw := make([]float32, heads*n) // [heads, n], the unit's gradient for each head
		for i := start * heads; i < int(end)*heads; i++ {
			lo, hi := i*n, (i+1)*n
			head := i % heads
			normBackwardRow(dxs[lo:hi], dw[head*n:][:n], dys[lo:hi], xs[lo:hi], w, eps, add)
		}
		for i, v := range dw {
			gradient.add(i%n, v)
		}
		start = int(end)
	}
}

// normBackwardRow computes dx of one row, or adds to it with add, and adds the row's terms to
// the chains dw.
func normBackwardRow(dx, dw, dy, x, w []float32, eps float32, add bool) {
	r := inverseRMS(x, eps)
	var partial [foldLanes]float32
	for i, v := range x {
		partial[i%foldLanes] = fma32(float32(dy[i]*w[i]), v, partial[i%foldLanes])
	}
	b := float32(foldPartials(&partial) / float32(len(x)))
	b = float32(float32(float32(b*r)*r) * r)
	for i, v := range x {
		dyi := dy[i] // dx may be dy
		dw[i] = fma32(dyi, float32(v*r), dw[i])
		g := fma32(v, -b, float32(float32(dyi*w[i])*r))
		if add {
			g = dx[i] + g
		}
		dx[i] = g
	}
}

// inverseRMS returns 1/sqrt(mean(x²) + eps).
func inverseRMS(x []float32, eps float32) float32 {
	var partial [foldLanes]float32
	for i, v := range x {
		partial[i%foldLanes] = fma32(v, v, partial[i%foldLanes])
	}
	mean := float32(foldPartials(&partial) / float32(len(x)))
	return 1 / float32(math.Sqrt(float64(mean+eps)))
}

// foldPartials adds up the partial sums of a fold in the order that package npu documents. It
// overwrites them.
func foldPartials(p *[foldLanes]float32) float32 {
	for s := foldLanes / 2; s > 0; s /= 2 {
		for i := range s {
			p[i] += p[i+s]
		}
	}
	return p[0]
}
