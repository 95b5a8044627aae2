package cpu

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/easyrl/easyrl/npu"
)

// expOf returns d = score - max, but at least expMin, and e = exp(d). csrc/vocab.h documents the
// formulas of this file.
func expOf(score, max float32) (e, d float32) {
	d = score - max
	if d < expMin {
		d = expMin
	}
	return exp32(d), d
}

// softmaxMax returns the maximum of x·invTemp. It ignores NaN. Adding 0 turns -0 into +0.
func softmaxMax(x []float32, invTemp float32) float32 {
	m := float32(math.Inf(-1))
	for _, v := range x {
		if s := float32(v * invTemp); s > m {
			m = s
		}
	}
	return m + 0
}

// logProb returns the log-probability of a score, given the maximum and the sum of the
// exponentials.
func logProb(score, max, sum float32) float32 { return float32(score-max) - log32(sum) }

// SoftmaxMax implements npu.Device.
func (d *pureGo) SoftmaxMax(max, logits npu.Buffer, n int, invTemp float32) {
	cols := d.check.SoftmaxMax(max, logits, n)
	d.parallel(n, func(i int) {
		max.Float32s()[i] = softmaxMax(logits.Float32s()[i*cols:(i+1)*cols], invTemp)
	})
}

// Sums over the vocabulary are in units of 1/softmaxScale.
const softmaxScale = 1 << 44

// weight returns x·softmaxScale, rounded to the nearest integer, ties to even.
func weight(x float64) int64 { return int64(math.RoundToEven(float64(x * softmaxScale))) }

// weightSum returns the value of a sum of weights.
func weightSum(sum int64) float32 { return float32(float64(sum)) / softmaxScale }

// SoftmaxSum implements npu.Device.
func (d *pureGo) SoftmaxSum(sums, max, logits npu.Buffer, targets npu.Ints, first int, invTemp float32, add bool) {
	cols := d.check.SoftmaxSum(sums, max, logits, targets, first)
	d.parallel(targets.Len(), func(i int) {
		row := sums.Int64s()[i*npu.SoftmaxSums : (i+1)*npu.SoftmaxSums]
		if !add {
			clear(row)
		}
		bad := int64(0)
		for j, v := range logits.Float32s()[i*cols : (i+1)*cols] {
			score := float32(v * invTemp)
			if first+j == int(targets.Int32s()[i]) {
				row[2] += int64(math.Float32bits(score))
			}
			e, d := expOf(score, max.Float32s()[i])
			if e != e { // NaN
				bad = 1
				continue
			}
			row[0] += weight(float64(e))
			row[1] += weight(float64(float64(e) * float64(d))) // the product is exact
		}
		row[3] += bad
	})
}

// SoftmaxFinish implements npu.Device.
func (d *pureGo) SoftmaxFinish(logp, entropy, stats, sums, max npu.Buffer, n int) {
	d.check.SoftmaxFinish(logp, entropy, stats, sums, max, n)
	d.parallel(n, func(i int) {
		m := max.Float32s()[i]
		row := sums.Int64s()[i*npu.SoftmaxSums : (i+1)*npu.SoftmaxSums]
		z, u := weightSum(row[0]), weightSum(row[1])
		if row[3] > 0 {
			z = float32(math.NaN())
		}
		logp.Float32s()[i] = logProb(math.Float32frombits(uint32(row[2])), m, z)
		entropy.Float32s()[i] = log32(z) - float32(u/z)
		stats.Float32s()[2*i], stats.Float32s()[2*i+1] = m, z
	})
}

// SoftmaxBackward implements npu.Device.
func (d *pureGo) SoftmaxBackward(dLogits, logits, dLogp, stats npu.Buffer, targets npu.Ints, first int,
	invTemp float32) {
	cols := d.check.SoftmaxBackward(dLogits, logits, dLogp, stats, targets, first)
	gradients, done := write(dLogits)
	defer done()
	d.parallel(targets.Len(), func(i int) {
		m, inv := stats.Float32s()[2*i], 1/stats.Float32s()[2*i+1]
		g := float32(dLogp.Float32s()[i] * invTemp)
		dx := gradients[i*cols : (i+1)*cols]
		for j, v := range logits.Float32s()[i*cols : (i+1)*cols] {
			e, _ := expOf(float32(v*invTemp), m)
			onehot := float32(0)
			if first+j == int(targets.Int32s()[i]) {
				onehot = 1
			}
			dx[j] = float32(float32(onehot-float32(e*inv)) * g)
		}
	})
}

// Sample implements npu.Device.
func (d *pureGo) Sample(ids, logp, logits npu.Buffer, vocab int, params npu.Params) {
	d.check.Sample(ids, logp, logits, vocab, params)
	tokens, logps := ids.Int32s(), logp.Float32s()
	d.parallel(params.N, func(i int) {
		tokens[i], logps[i] = sampleRow(logits.Float32s()[i*vocab:(i+1)*vocab], sampleParams(params, i))
	})
	for i := range tokens {
		if tokens[i] < 0 {
			tokens[i] = 0
			logps[i] = float32(math.NaN())
			d.fail(fmt.Errorf("sample: logits of row %d are not finite", i))
		}
	}
}

// sampleParams returns the parameters of row i, in the layout of npu.Params.
func sampleParams(p npu.Params, i int) npu.SampleParams {
	row := p.Int32s()[5*i : 5*i+5]
	value := func(word int32) float32 { return math.Float32frombits(uint32(word)) }
	return npu.SampleParams{Temperature: value(row[0]), TopP: value(row[1]), MinP: value(row[2]), TopK: row[3],
		Uniform: value(row[4])}
}

// sampleRow draws a token from one row of logits and returns its id and log-probability. The id
// is -1 if the logits are not finite.
func sampleRow(x []float32, p npu.SampleParams) (id int32, logp float32) {
	invTemp := float32(1)
	if p.Temperature > 0 {
		invTemp = 1 / p.Temperature
	}
	m := softmaxMax(x, invTemp)
	e := make([]float32, len(x)) // exp(score - m)
	sum := int64(0)
	for i, v := range x {
		e[i], _ = expOf(float32(v*invTemp), m)
		if e[i] != e[i] { // NaN
			return -1, 0
		}
		sum += weight(float64(e[i]))
	}
	token := 0
	if p.Temperature > 0 {
		restrict(e, x, invTemp, p)
		token = draw(e, p.Uniform)
	} else {
		for i, v := range x {
			if v > x[token] {
				token = i
			}
		}
	}
	return int32(token), logProb(float32(x[token]*invTemp), m, weightSum(sum))
}

// restrict zeroes the values of e that top-k, then top-p, then min-p exclude. e are the
// exponentials of the logits x, with maximum 1. Among equal logits, the lower ids stay.
func restrict(e, x []float32, invTemp float32, p npu.SampleParams) {
	if (p.TopK > 0 && int(p.TopK) < len(e)) || p.TopP < 1 {
		order := make([]int, len(e))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int {
			return cmp.Compare(float32(x[b]*invTemp), float32(x[a]*invTemp))
		})
		kept := len(order)
		if p.TopK > 0 {
			kept = min(kept, int(p.TopK))
		}
		if p.TopP < 1 {
			kept = nucleus(e, order[:kept], float64(p.TopP))
		}
		for _, i := range order[kept:] {
			e[i] = 0
		}
	}
	for i, v := range e {
		if v < p.MinP && v < 1 { // the likeliest token, 1, always stays
			e[i] = 0
		}
	}
}

// nucleus returns the length of the shortest prefix of order, at least 1, whose weights add up to at least
// the fraction p of those of all of order.
func nucleus(e []float32, order []int, p float64) int {
	var total, sum int64
	for _, i := range order {
		total += weight(float64(e[i]))
	}
	goal := int64(float64(float64(total) * p))
	for n, i := range order {
		sum += weight(float64(e[i]))
		if sum >= goal {
			return n + 1
		}
	}
	return len(order)
}

// draw returns the first id at which the running sum of weights exceeds uniform times their total, which
// is above 0.
func draw(e []float32, uniform float32) int {
	var total, sum int64
	for _, v := range e {
		total += weight(float64(v))
	}
	const bits = 24 // uniform is a multiple of 2^-24
	u := int64(uniform * (1 << bits))
	goal := (total>>bits)*u + ((total&(1<<bits-1))*u)>>bits
	for i, v := range e {
		if sum += weight(float64(v)); sum > goal {
			return i
		}
	}
	panic("cpu: the weights do not exceed their total")
}
