package cpu

import (
	"math"

	"github.com/easyrl/easyrl/npu"
)

// RMSNorm implements npu.Device: r = 1/sqrt(Σx²/n + eps), y = (x·r)·weight. The sum
// is a fold whose partial sums are chains of fused multiply-adds.
func (d *pureGo) RMSNorm(y, x, weight npu.Buffer, t int, eps float32) {
	n := weight.Len()
	d.check.Norm("rms norm", weight, t, y, x)
	ys, xs, w := y.Float32s(), x.Float32s(), weight.Float32s()
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
		d.Linear(o.Y, norm, o.W, o.Bias, t, false)
	}
}

// RMSNormBackward implements npu.Device. With g = dy·weight and c the fold of g·x: b
// = (((c/n)·r)·r)·r, dx = fma(x, -b, g·r). For each leaf and head, the chain over rows
// of dy and x·r is added to dWeight on its own.
func (d *pureGo) RMSNormBackward(dx npu.Buffer, dWeight npu.Sums, dy, x, weight npu.Buffer, heads int, eps float32,
	add bool, l *npu.Leaves) {
	n := weight.Len()
	d.check.Leaves("rms norm backward", l)
	d.check.Norm("rms norm backward", weight, l.Rows*heads, dx, dy, x)
	d.check.Sums("rms norm backward: dWeight", dWeight, n, false)
	dxs, dys, xs, w := dx.Float32s(), dy.Float32s(), x.Float32s(), weight.Float32s()
	to, start := fixedSums(dWeight, l.FixedPoint), 0
	for _, end := range l.Ends.Int32s() {
		dw := make([]float32, heads*n)
		for i := start * heads; i < int(end)*heads; i++ {
			lo, hi := i*n, (i+1)*n
			normBackwardRow(dxs[lo:hi], dw[i%heads*n:][:n], dys[lo:hi], xs[lo:hi], w, eps, add)
		}
		for i, v := range dw {
			to.add(i%n, v)
		}
		start = int(end)
	}
}

func normBackwardRow(dx, dw, dy, x, w []float32, eps float32, add bool) {
	r := inverseRMS(x, eps)
	var part [16]float32
	for i, v := range x {
		part[i%16] = fma32(float32(dy[i]*w[i]), v, part[i%16])
	}
	b := float32(foldPartials(&part) / float32(len(x)))
	b = float32(float32(float32(b*r)*r) * r)
	for i, v := range x {
		dyi := dy[i]
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
	var part [16]float32
	for i, v := range x {
		part[i%16] = fma32(v, v, part[i%16])
	}
	mean := float32(foldPartials(&part) / float32(len(x)))
	return 1 / float32(math.Sqrt(float64(mean+eps)))
}

// foldPartials adds sixteen partial sums in the order of npu's folds: partial sum i+s
// to partial sum i for s = 8, 4, 2, 1.
func foldPartials(p *[16]float32) float32 {
	for s := 8; s > 0; s /= 2 {
		for i := range s {
			p[i] += p[i+s]
		}
	}
	return p[0]
}
