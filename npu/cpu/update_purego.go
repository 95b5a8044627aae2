package cpu

import (
	"math"
	"math/bits"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/internal/check"
)

// updateKernels are the optimizer's kernels.
type updateKernels struct{}

// AdamW implements npu.Device. csrc/update.h documents the order of operations.
func (updateKernels) AdamW(w npu.Buffer, g npu.Sums, m, v npu.Buffer, p npu.AdamWParams) {
	check.AdamW(w, g, m, v)
	ws, gs, ms, vs := w.Float32s(), g.Int64s(), m.Float32s(), v.Float32s()
	rest1, rest2 := 1-p.Beta1, 1-p.Beta2
	correct1, correct2 := adamwCorrect(p.Beta1, p.Step), adamwCorrect(p.Beta2, p.Step)
	keep := float32(1 - float64(float64(p.LR)*float64(p.WeightDecay)))
	for i := range ws {
		grad := float32(fixedValue(gs[i]) * p.GradScale)
		ms[i] = fma32(p.Beta1, ms[i], float32(rest1*grad))
		vs[i] = fma32(p.Beta2, vs[i], float32(rest2*float32(grad*grad)))
		root := float32(math.Sqrt(float64(float32(vs[i]*correct2)))) + p.Eps
		step := float32(ms[i]*correct1) / root
		ws[i] = fma32(-p.LR, step, float32(ws[i]*keep))
	}
}

// adamwCorrect returns 1/(1-beta^step), with the power by repeated squaring.
func adamwCorrect(beta float32, step int) float32 {
	power, square := 1.0, float64(beta)
	for ; step > 0; step >>= 1 {
		if step&1 == 1 {
			power = float64(power * square)
		}
		square = float64(square * square)
	}
	return float32(1 / (1 - power))
}

// SumSquares implements npu.Device.
func (updateKernels) SumSquares(x npu.Buffer) float64 {
	const fold = 4096
	xs := x.Float32s()
	sum := 0.0
	for lo := 0; lo < len(xs); lo += fold {
		var part [16]float32
		for i, v := range xs[lo:min(len(xs), lo+fold)] {
			part[i%16] = fma32(v, v, part[i%16])
		}
		sum += float64(foldPartials(&part))
	}
	return sum
}

// SumSquaresExact implements npu.Device.
func (updateKernels) SumSquaresExact(g npu.Sums) (sum npu.Wide, ok bool) {
	check.Sums("exact sum of squares", g, g.Len(), true)
	for _, x := range g.Int64s() {
		v := uint64(math.Abs(float64(fixedValue(x))))
		hi, lo := bits.Mul64(v, v)
		var carry uint64
		sum[0], carry = bits.Add64(sum[0], lo, 0)
		sum[1], carry = bits.Add64(sum[1], hi, carry)
		sum[2] += carry
	}
	return sum, g.IsNil() || g.Mark.Int64s()[0] == 0
}
