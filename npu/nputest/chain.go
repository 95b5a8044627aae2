package nputest

import (
	"math"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/bf16"
)

// chain continues a chain from sum with the products of a's values and of every stride-th value of b.
func chain(n npu.Numerics, sum float32, a, b []float32, stride int) float32 {
	if n == npu.FP32 {
		for k, x := range a {
			sum = fma(x, b[k*stride], sum)
		}
		return sum
	}
	for lo := 0; lo < len(a); lo += bf16.Step {
		var x, y [bf16.Step]bf16.Number
		for k := range min(bf16.Step, len(a)-lo) {
			x[k], y[k] = number(a[lo+k]), number(b[(lo+k)*stride])
		}
		sum = bf16.Dot(sum, &x, &y)
	}
	return sum
}

// number returns x, a value of bfloat16.
func number(x float32) bf16.Number { return bf16.Number(math.Float32bits(x) >> 16) }

// fma returns a·b + c, rounded once.
func fma(a, b, c float32) float32 {
	product := float64(a) * float64(b) // exact
	sum := float64(product + float64(c))
	if math.IsInf(sum, 0) || sum != sum {
		return float32(sum)
	}
	// The error of the sum (Knuth's two-sum) makes the last bit odd, so that the second rounding cannot err
	// (Boldo and Melquiond 2008).
	t := float64(sum - product)
	e := float64(float64(product-float64(sum-t)) + float64(float64(c)-t))
	if bits := math.Float64bits(sum); e != 0 && bits&1 == 0 {
		if (e > 0) == (sum > 0) {
			bits++
		} else {
			bits--
		}
		sum = math.Float64frombits(bits)
	}
	return float32(sum)
}

// scales returns sizes of values: ordinary ones, and those whose products overflow, are subnormal or are rounded to 0.
func scales(n npu.Numerics) []float64 {
	if n == npu.BF16 {
		return []float64{1, 0x1p70, 0x1p-61}
	}
	return []float64{1, 1e18, 1e-22, 1e-40}
}

// roundingEdges returns values at which bf16.Round changes what it does, with their neighbors.
func roundingEdges() []float32 {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	all := []float32{0, nan, math.Float32frombits(0x7f800001), math.Float32frombits(0x7fffffff), inf, math.MaxFloat32}
	for _, v := range []float32{
		0x1p-62, 0x1.01p-62, 0x1.ffp-63, 1, 1 + 0x1p-8, 1 + 0x1p-7, 1 + 0x3p-8, 2 - 0x1p-8, 3.140625,
		0x1.01p64, 0x1.03p100,
		0x1.fep127, 0x1.ffp127, // the largest number, and the tie above it
	} {
		all = append(all, v, math.Nextafter32(v, 0), math.Nextafter32(v, inf))
	}
	for _, v := range all {
		all = append(all, -v)
	}
	return all
}
