package cpu

import (
	"math"
	"math/bits"

	"github.com/easyrl/easyrl/npu"
)

// AdamW implements npu.Device. csrc/update.h documents the order of operations.
func (d *pureGo) AdamW(updates []npu.Update, p npu.AdamWParams) {
	d.check.AdamW(updates)
	for i := range updates {
		u := &updates[i]
		updateWeight(u, p)
		if !u.Copy.IsNil() {
			values, done := write(u.Copy)
			copy(values, u.W.Float32s())
			done()
		}
	}
}

// updateWeight updates one weight and its moments.
func updateWeight(u *npu.Update, p npu.AdamWParams) {
	ws, gs, ms, vs := u.W.Float32s(), u.G.Int64s(), u.M.Float32s(), u.V.Float32s()
	complement1, complement2 := 1-p.Beta1, 1-p.Beta2
	correction1, correction2 := biasCorrection(p.Beta1, p.Step), biasCorrection(p.Beta2, p.Step)
	shrink := float32(1) // weight decay multiplies the weight by this
	if u.Decay {
		shrink = float32(1 - float64(float64(p.LR)*float64(p.WeightDecay)))
	}
	for i := range ws {
		grad := float32(fixedValue(gs[i]) * p.GradScale)
		ms[i] = fma32(p.Beta1, ms[i], float32(complement1*grad))
		vs[i] = fma32(p.Beta2, vs[i], float32(complement2*float32(grad*grad)))
		root := float32(math.Sqrt(float64(float32(vs[i]*correction2)))) + p.Eps
		step := float32(ms[i]*correction1) / root
		ws[i] = fma32(-p.LR, step, float32(ws[i]*shrink))
	}
}

// biasCorrection returns 1/(1-beta^step), which corrects the bias of a moment toward its initial
// 0. Repeated squaring computes the power in float64.
func biasCorrection(beta float32, step int) float32 {
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
func (d *pureGo) SumSquares(sums []float64, x []npu.Buffer) error {
	d.check.SumSquares(sums, x)
	for i, b := range x {
		sums[i] = sumSquares(b.Float32s())
	}
	return d.Sync()
}

// sumSquares returns the sum of squares of x: folds of foldValues values each, added in float64.
func sumSquares(x []float32) float64 {
	const foldValues = 4096
	sum := 0.0
	for lo := 0; lo < len(x); lo += foldValues {
		var partial [foldLanes]float32
		for i, v := range x[lo:min(len(x), lo+foldValues)] {
			partial[i%foldLanes] = fma32(v, v, partial[i%foldLanes])
		}
		sum += float64(foldPartials(&partial))
	}
	return sum
}

// SumSquaresExact implements npu.Device.
func (d *pureGo) SumSquaresExact(sums []npu.Squares, g []npu.Sums) error {
	d.check.SumSquaresExact(sums, g)
	for i, s := range g {
		sums[i] = npu.Squares{Sum: sumSquaresExact(s.Int64s())}
		if !s.IsNil() {
			sums[i].Worst = math.Float32frombits(uint32(s.Mark.Int64s()[0]))
		}
	}
	return d.Sync()
}

// sumSquaresExact returns the exact sum of squares of fixedValue of each x, which is an integer
// of magnitude at most 2^63.
func sumSquaresExact(x []int64) (sum npu.Wide) {
	for _, s := range x {
		v := uint64(math.Abs(float64(fixedValue(s))))
		hi, lo := bits.Mul64(v, v)
		var carry uint64
		sum[0], carry = bits.Add64(sum[0], lo, 0)
		sum[1], carry = bits.Add64(sum[1], hi, carry)
		sum[2] += carry
	}
	return sum
}
