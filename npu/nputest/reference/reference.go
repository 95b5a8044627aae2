// Package reference computes npu's kernels from their formulas, in float64 or naively
// in float32.
package reference

import "math"

// Float is the precision of a reference. float64 gives the exact values; float32
// gives the error of naive code in a kernel's own precision.
type Float interface{ float32 | float64 }

// Slope returns the central difference of f along x[i].
func Slope(x []float64, i int, f func() float64) float64 {
	const step = 1e-5
	at := x[i]
	x[i] = at + step
	up := f()
	x[i] = at - step
	down := f()
	x[i] = at
	return (up - down) / (2 * step)
}

// Product returns c + a bᵀ [m, n], with terms added in ascending order. It does not change c. a is [m, k] and
// b [n, k]; the last four arguments are their strides from row to row and from term to term.
func Product[F Float](c, a, b []F, m, n, k, aRow, aTerm, bRow, bTerm int) []F {
	c = append([]F(nil), c...)
	for i := range m {
		for j := range n {
			for e := range k {
				c[i*n+j] += a[i*aRow+e*aTerm] * b[j*bRow+e*bTerm]
			}
		}
	}
	return c
}

// Norm computes the RMS norm of rows of n values.
func Norm[F Float](x, w []F, n int, eps float64) []F {
	y := make([]F, len(x))
	for at := 0; at < len(x); at += n {
		r := inverseRMS(x[at:at+n], eps)
		for i, v := range w {
			y[at+i] = x[at+i] * r * v
		}
	}
	return y
}

// NormBackward computes the derivatives of Σ g·y with respect to x and w, where y is Norm's result.
func NormBackward[F Float](g, x, w []F, n int, eps float64) (dx, dw []F) {
	dx, dw = make([]F, len(x)), make([]F, n)
	for at := 0; at < len(x); at += n {
		r := inverseRMS(x[at:at+n], eps)
		var dot F
		for i, v := range w {
			dot += g[at+i] * v * x[at+i]
			dw[i] += g[at+i] * x[at+i] * r
		}
		for i, v := range w {
			dx[at+i] = r*g[at+i]*v - x[at+i]*r*r*r*dot/F(n)
		}
	}
	return dx, dw
}

// inverseRMS returns 1/sqrt(mean(x²) + eps).
func inverseRMS[F Float](x []F, eps float64) F {
	var sum F
	for _, v := range x {
		sum += v * v
	}
	return F(1 / math.Sqrt(float64(sum/F(len(x))+F(eps))))
}

// Rope rotates x as npu.RowKernels.Rope does: it multiplies each pair, a complex number, by e^(i·angle).
func Rope(x []float64, table []float32, positions []int32, heads, dim int, inverse bool) []float64 {
	y := make([]float64, len(x))
	half := dim / 2
	for at := 0; at < len(x); at += dim {
		row := table[int(positions[at/(heads*dim)])*dim:]
		for i := range half {
			turn := complex(float64(row[i]), float64(row[half+i]))
			if inverse {
				turn = complex(real(turn), -imag(turn))
			}
			z := complex(x[at+i], x[at+half+i]) * turn
			y[at+i], y[at+half+i] = real(z), imag(z)
		}
	}
	return y
}

// SwiGLU computes y = silu(gate)·up and the derivatives of Σ dy·y with respect to gate and up.
func SwiGLU[F Float](gate, up, dy []F) (y, dGate, dUp []F) {
	for i, g := range gate {
		s := 1 / (1 + F(math.Exp(float64(-g))))
		y = append(y, g*s*up[i])
		dUp = append(dUp, dy[i]*g*s)
		dGate = append(dGate, dy[i]*up[i]*(s+g*s*(1-s)))
	}
	return y, dGate, dUp
}
