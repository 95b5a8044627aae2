package cpu

import (
	"math"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/internal/check"
)

// RMSNorm implements npu.Device: r = 1/sqrt(Σx²/n + eps), y = (x·r)·weight. The sum
// is a fold whose partial sums are chains of fused multiply-adds.
func (d rowKernels) RMSNorm(y, x, weight npu.Buffer, t int, eps float32) {
	n := weight.Len()
	check.Norm("rms norm", weight, t, y, x)
	ys, xs, w := y.Float32s(), x.Float32s(), weight.Float32s()
	d.parallel(t, func(row int) {
		xr, yr := xs[row*n:(row+1)*n], ys[row*n:(row+1)*n]
		r := inverseRMS(xr, eps)
		for i, v := range xr {
			yr[i] = float32(float32(v*r) * w[i])
		}
	})
}

// RMSNormBackward implements npu.Device. With g = dy·weight and c the fold of g·x: b
// = (((c/n)·r)·r)·r, dx = fma(x, -b, g·r), and dWeight is the chain over rows of dy
// and x·r.
func (rowKernels) RMSNormBackward(dx, dWeight, dy, x, weight npu.Buffer, t int, eps float32, add bool) {
	n := weight.Len()
	check.Norm("rms norm backward", weight, t, dx, dy, x)
	check.Len("rms norm backward: dWeight", dWeight, n, false)
	dxs, dys, xs, w, dw := dx.Float32s(), dy.Float32s(), x.Float32s(), weight.Float32s(), dWeight.Float32s()
	for row := range t {
		xr, dyr, dxr := xs[row*n:(row+1)*n], dys[row*n:(row+1)*n], dxs[row*n:(row+1)*n]
		r := inverseRMS(xr, eps)
		var part [16]float32
		for i, v := range xr {
			part[i%16] = fma32(float32(dyr[i]*w[i]), v, part[i%16])
		}
		b := float32(foldPartials(&part) / float32(n))
		b = float32(float32(float32(b*r)*r) * r)
		for i, v := range xr {
			dyi := dyr[i]
			dw[i] = fma32(dyi, float32(v*r), dw[i])
			g := fma32(v, -b, float32(float32(dyi*w[i])*r))
			if add {
				g = dxr[i] + g
			}
			dxr[i] = g
		}
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
