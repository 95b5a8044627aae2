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
		updateWeight(&updates[i], p)
	}
}

func updateWeight(u *npu.Update, p npu.AdamWParams) {
	ws, gs, ms, vs := u.W.Float32s(), u.G.Int64s(), u.M.Float32s(), u.V.Float32s()
	rest1, rest2 := 1-p.Beta1, 1-p.Beta2
	correct1, correct2 := adamwCorrect(p.Beta1, p.Step), adamwCorrect(p.Beta2, p.Step)
	keep := float32(1)
	if u.Decay {
		keep = float32(1 - float64(float64(p.LR)*float64(p.WeightDecay)))
	}
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
func (d *pureGo) SumSquares(sums []float64, x []npu.Buffer) error {
	d.check.SumSquares(sums, x)
	for i, b := range x {
		sums[i] = sumSquares(b.Float32s())
	}
	return d.Sync()
}

func sumSquares(x []float32) float64 {
	const fold = 4096
	sum := 0.0
	for lo := 0; lo < len(x); lo += fold {
		var part [16]float32
		for i, v := range x[lo:min(len(x), lo+fold)] {
			part[i%16] = fma32(v, v, part[i%16])
		}
		sum += float64(foldPartials(&part))
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
