package cpu

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/internal/check"
)

// softmax holds the statistics of a row of logits. csrc/vocab.h documents the
// formulas.
type softmax struct {
	max, sum, weighted float32
}

// softmaxRow computes the statistics of row x and stores exp(x·invTemp - max) in e.
func softmaxRow(e, x []float32, invTemp float32) softmax {
	r := softmax{max: float32(math.Inf(-1))}
	for _, v := range x {
		if s := float32(v * invTemp); s > r.max {
			r.max = s
		}
	}
	var sum, weighted [16]float32
	for i, v := range x {
		d := float32(v*invTemp) - r.max
		if d < expMin {
			d = expMin
		}
		e[i] = exp32(d)
		sum[i%16] += e[i]
		weighted[i%16] = fma32(e[i], d, weighted[i%16])
	}
	r.sum, r.weighted = foldPartials(&sum), foldPartials(&weighted)
	return r
}

func (r softmax) logp(x, invTemp float32) float32 {
	return float32(float32(x*invTemp)-r.max) - log32(r.sum)
}

// vocabKernels are the kernels over distributions of the vocabulary.
type vocabKernels struct {
	*workers
	failed *failure // of Sample
}

// LogProb implements npu.Device.
func (d vocabKernels) LogProb(logp, entropy, hidden npu.Buffer, w npu.Matrix, targets []int32, invTemp float32) {
	check.LogProb("log prob", hidden, w, targets, matrixLen)
	check.Len("log prob: logp", logp, len(targets), false)
	check.Len("log prob: entropy", entropy, len(targets), false)
	d.parallel(len(targets), func(i int) {
		x, e := make([]float32, w.Rows), make([]float32, w.Rows)
		one := matrixKernels{newWorkers(1)}
		one.linear(x, hidden.Float32s()[i*w.Cols:(i+1)*w.Cols], w, nil, 1, false)
		r := softmaxRow(e, x, invTemp)
		logp.Float32s()[i] = r.logp(x[targets[i]], invTemp)
		entropy.Float32s()[i] = log32(r.sum) - float32(r.weighted/r.sum)
	})
}

// LogProbBackward implements npu.Device.
func (d vocabKernels) LogProbBackward(dHidden npu.Buffer, dW npu.Matrix, dLogp, hidden npu.Buffer, w npu.Matrix, targets []int32, invTemp float32) {
	check.LogProb("log prob backward", hidden, w, targets, matrixLen)
	check.LogProb("log prob backward: gradient", dHidden, dW, targets, matrixLen)
	check.Len("log prob backward: dW", dW.Buffer, w.Len(), false)
	check.Len("log prob backward: dLogp", dLogp, len(targets), false)
	const chunk = 16
	matrices := matrixKernels{d.workers}
	x := make([]float32, chunk*w.Rows)
	for lo := 0; lo < len(targets); lo += chunk {
		n := min(chunk, len(targets)-lo)
		h := hidden.Float32s()[lo*w.Cols : (lo+n)*w.Cols]
		matrices.linear(x, h, w, nil, n, false)
		for i := range n {
			logitsGradient(x[i*w.Rows:(i+1)*w.Rows], int(targets[lo+i]), dLogp.Float32s()[lo+i], invTemp)
		}
		matrices.backwardInput(dHidden.Float32s()[lo*w.Cols:(lo+n)*w.Cols], x, w, n, false)
		matrices.backwardWeight(dW, x, h, n)
	}
}

// logitsGradient turns a row of logits into d loss / d logits.
func logitsGradient(x []float32, target int, dLogp, invTemp float32) {
	r := softmaxRow(x, x, invTemp)
	g, inv := float32(dLogp*invTemp), 1/r.sum
	for j, e := range x {
		onehot := float32(0)
		if j == target {
			onehot = 1
		}
		x[j] = float32(float32(onehot-float32(e*inv)) * g)
	}
}

// Sample implements npu.Device.
func (d vocabKernels) Sample(ids []int32, logp []float32, logits npu.Buffer, vocab int, params []npu.SampleParams) {
	check.Sample(ids, logp, logits, vocab, params)
	d.parallel(len(params), func(i int) {
		ids[i], logp[i] = sampleRow(logits.Float32s()[i*vocab:(i+1)*vocab], params[i])
	})
	for i := range ids {
		if ids[i] < 0 {
			ids[i], logp[i] = 0, float32(math.NaN())
			d.failed.set(fmt.Errorf("sample: logits of row %d are not finite", i))
		}
	}
}

// sampleRow draws from one row. The id is -1 if the logits are not finite.
func sampleRow(x []float32, p npu.SampleParams) (int32, float32) {
	invTemp := float32(1)
	if p.Temperature > 0 {
		invTemp = 1 / p.Temperature
	}
	e := make([]float32, len(x))
	r := softmaxRow(e, x, invTemp)
	if !(r.sum > 0 && r.sum <= math.MaxFloat32) {
		return -1, 0
	}
	id := 0
	if p.Temperature > 0 {
		limit(e, x, invTemp, p)
		id = draw(e, p.Uniform)
	} else {
		for i, v := range x {
			if v > x[id] {
				id = i
			}
		}
	}
	return int32(id), r.logp(x[id], invTemp)
}

// limit zeroes the values of e that top-k, then top-p, then min-p exclude. Ties keep
// the lower ids.
func limit(e, x []float32, invTemp float32, p npu.SampleParams) {
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
		if v < p.MinP && v < 1 {
			e[i] = 0
		}
	}
}

// nucleus returns the length of the shortest prefix of order, at least 1, that holds
// the fraction p of its mass.
func nucleus(e []float32, order []int, p float64) int {
	var mass, sum float64
	for _, i := range order {
		mass += float64(e[i])
	}
	mass = float64(mass * p)
	for n, i := range order {
		sum += float64(e[i])
		if sum >= mass {
			return n + 1
		}
	}
	return len(order)
}

// draw returns the first id at which the running sum exceeds uniform times the total.
func draw(e []float32, uniform float32) int {
	var total, sum float64
	for _, v := range e {
		total += float64(v)
	}
	goal := float64(total * float64(uniform))
	last := 0
	for i, v := range e {
		sum += float64(v)
		if sum > goal {
			return i
		}
		if v > 0 {
			last = i
		}
	}
	return last
}
