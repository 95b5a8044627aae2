package nputest

import (
	"fmt"

	"github.com/easyrl/easyrl/npu"
)

// wrongTypes returns calls in which one operand is float32 instead of a weight or an activation, or the reverse. There
// are none in FP32.
func wrongTypes(d npu.Device) map[string]func(m *memory) {
	if numerics(d) == npu.FP32 {
		return nil
	}
	all := map[string]func(m *memory){}
	for name, c := range typedCalls(d) {
		for wrong := range c.types {
			all[fmt.Sprintf("%s with another type of operand %d", name, wrong)] = func(m *memory) {
				types := append([]npu.DType(nil), c.types...)
				types[wrong] = npu.Float32 + npu.BFloat16 - types[wrong]
				c.call(&operands{m, types})
			}
		}
	}
	one := npu.Heads{Q: 1, KV: 1, Dim: 2}
	const page = 2 * npu.PageSize
	all["a sum of activations, added to"] = func(m *memory) {
		d.Linear(m.nanValues(2), m.nanValues(2), m.weights(ramp(4), 2, 2), npu.Buffer{}, 1, npu.Add)
	}
	all["a sum of activations, continued"] = func(m *memory) {
		d.Linear(m.nanValues(2), m.nanValues(2), m.weights(ramp(4), 2, 2), npu.Buffer{}, 1, npu.Continue)
	}
	all["a gradient of activations, added to"] = func(m *memory) {
		products := []npu.Product{{DY: m.nanValues(2), W: m.weights(ramp(4), 2, 2), Block: 2}}
		d.LinearBackwardInput(m.nanValues(2), products, 1, true)
	}
	all["a gradient of another type than its input"] = func(m *memory) {
		l := m.leaves(&leaves{format(1), []int32{1}})
		d.RMSNormBackward(m.nan(2), m.sums(2), m.nanValues(2), m.nanValues(2), m.nanValues(2), 1, 0, false, l)
	}
	all["a cache of float32"] = func(m *memory) {
		d.CacheWrite(m.nan(page), m.nan(page), m.nanValues(2), m.nanValues(2), m.ints(0), one)
	}
	return all
}

// typedCall is a call of a kernel and the types of its operands.
type typedCall struct {
	types []npu.DType
	call  func(o *operands)
}

// operands allocates the operands of a call, in the order of their types.
type operands struct {
	*memory
	types []npu.DType
}

func (o *operands) next(n int) npu.Buffer {
	o.t.Helper()
	b := o.nanAs(o.types[0], n)
	o.types = o.types[1:]
	return b
}

// matrix returns a matrix [2, 2].
func (o *operands) matrix() npu.Matrix {
	return npu.Matrix{Buffer: o.next(o.d.MatrixLen(2, 2)), Rows: 2, Cols: 2}
}

// typedCalls returns a call of each kernel that accepts only one type for each operand, on rows of 2 values.
func typedCalls(d npu.Device) map[string]typedCall {
	const f, v = npu.Float32, npu.BFloat16
	of := func(types ...npu.DType) []npu.DType { return types }
	h := npu.Heads{Q: 1, KV: 1, Dim: 2}
	const page = 2 * npu.PageSize
	row := []npu.Segment{{Len: 1, Parent: -1}}
	return map[string]typedCall{
		"linear": {of(v, v, v), func(o *operands) {
			d.Linear(o.nan(2), o.next(2), o.matrix(), o.next(2), 1, npu.Fresh)
		}},
		"linear backward input": {of(v, v), func(o *operands) {
			d.LinearBackwardInput(o.nan(2), []npu.Product{{DY: o.next(2), W: o.matrix(), Block: 2}}, 1, false)
		}},
		"linear backward weight": {of(v, v), func(o *operands) {
			l := o.leaves(&leaves{format(1), []int32{1}})
			d.LinearBackwardWeight(o.matrixSums(2, 2), npu.Sums{}, o.next(2), o.next(2), l)
		}},
		"embed": {of(f, v), func(o *operands) { d.Embed(o.next(2), o.matrix(), o.ints(0)) }},
		"embed backward": {of(f), func(o *operands) {
			l := &leaves{format(1), []int32{1}}
			d.EmbedBackward(o.matrixSums(2, 2), o.next(2), o.tokens([]int32{1}, l), l.FixedPoint)
		}},
		"rms norm": {of(v, v), func(o *operands) { d.RMSNorm(o.next(2), o.nan(2), o.next(2), 1, 0) }},
		"norm linear": {of(v, v, v, v, f, v), func(o *operands) {
			p := npu.Projection{Y: o.next(2), W: o.matrix(), Bias: o.next(2)}
			d.NormLinear([]npu.Projection{p}, o.next(2), o.next(2), o.next(2), 1, 0)
		}},
		"rms norm backward": {of(f, v, v), func(o *operands) {
			l := o.leaves(&leaves{format(1), []int32{1}})
			d.RMSNormBackward(o.next(2), o.sums(2), o.next(2), o.nan(2), o.next(2), 1, 0, false, l)
		}},
		"rope":   {of(v, f), func(o *operands) { d.Rope(o.next(2), o.next(2), o.ints(0), 1, 2, false) }},
		"swiglu": {of(v, v, v), func(o *operands) { d.SwiGLU(o.next(2), o.next(2), o.next(2)) }},
		"swiglu backward": {of(v, v, v, v, v), func(o *operands) {
			d.SwiGLUBackward(o.next(2), o.next(2), o.next(2), o.next(2), o.next(2))
		}},
		"attention": {of(v, f, v, v, v), func(o *operands) {
			d.Attention(o.next(2), o.next(2), o.next(2), o.next(2), o.next(2), o.segments(row), h)
		}},
		"attention backward": {of(v, v, v, v, v, f, v, v, v), func(o *operands) {
			d.AttentionBackward(o.next(2), o.next(2), o.next(2), o.next(2), o.next(2), o.next(2), o.next(2), o.next(2),
				o.next(2), o.segments(row), h)
		}},
		"cache write": {of(v, v, v, v), func(o *operands) {
			d.CacheWrite(o.next(page), o.next(page), o.next(2), o.next(2), o.ints(0), h)
		}},
		"cached attention": {of(v, v, v, v), func(o *operands) {
			table := o.tables([]int32{0}, 1, []int32{1})
			d.AttentionCached(o.next(2), o.next(2), o.next(page), o.next(page), table, h)
		}},
		"softmax max": {of(f, f), func(o *operands) { d.SoftmaxMax(o.next(1), o.next(2), 1, 1) }},
		"softmax sum": {of(f, f), func(o *operands) {
			d.SoftmaxSum(o.alloc(npu.Int64, npu.SoftmaxSums), o.next(1), o.next(2), o.ints(0), 0, 1, false)
		}},
		"softmax backward": {of(v, f, f, f), func(o *operands) {
			d.SoftmaxBackward(o.next(2), o.next(2), o.next(1), o.next(2), o.ints(0), 0, 1)
		}},
		"sample": {of(f, f), func(o *operands) {
			d.Sample(o.alloc(npu.Int32, 1), o.next(1), o.next(2), 2, o.params(make([]npu.SampleParams, 1)))
		}},
		"adamw": {of(f, v, f, f), func(o *operands) {
			u := npu.Update{W: o.next(2), Copy: o.next(2), G: o.sums(2), M: o.next(2), V: o.next(2)}
			d.AdamW([]npu.Update{u}, updateParams(1))
		}},
		"sum of squares": {of(f), func(o *operands) {
			_ = d.SumSquares(make([]float64, 1), []npu.Buffer{o.next(2)})
		}},
		"sum of panels": {of(f), func(o *operands) {
			_ = d.SumPanels(make([]uint64, 1), []npu.Matrix{o.matrix()})
		}},
		"pack":         {of(f), func(o *operands) { d.PackMatrix(o.matrix(), ramp(4)) }},
		"unpack":       {of(f), func(o *operands) { d.UnpackMatrix(make([]float32, 4), o.matrix()) }},
		"upload":       {of(f), func(o *operands) { d.Upload(o.next(2), ramp(2)) }},
		"download":     {of(f), func(o *operands) { d.Download(make([]float32, 2), o.next(2)) }},
		"add":          {of(f, f), func(o *operands) { d.Add(o.next(2), o.next(2)) }},
		"gather rows":  {of(f, f), func(o *operands) { d.GatherRows(o.next(2), o.next(2), o.ints(0), 2) }},
		"scatter rows": {of(f, f), func(o *operands) { d.ScatterAddRows(o.next(2), o.next(2), o.ints(0), 2) }},
	}
}
