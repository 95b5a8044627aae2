package cpu

import "github.com/easyrl/easyrl/npu"

// Add implements npu.Device.
func (d *pureGo) Add(y, x npu.Buffer) {
	d.check.Len("add", y, y.Len()) // the type and the memory of y
	d.check.Len("add", x, y.Len())
	ys := y.Float32s()
	for i, v := range x.Float32s() {
		ys[i] += v
	}
}

// GatherRows implements npu.Device.
func (d *pureGo) GatherRows(y, x npu.Buffer, rows npu.Ints, cols int) {
	d.check.Rows("gather rows", y, x, rows, cols)
	ys, xs := y.Float32s(), x.Float32s()
	for i, row := range rows.Int32s() {
		copy(ys[i*cols:(i+1)*cols], xs[int(row)*cols:])
	}
}

// ScatterAddRows implements npu.Device.
func (d *pureGo) ScatterAddRows(y, x npu.Buffer, rows npu.Ints, cols int) {
	d.check.Rows("scatter rows", x, y, rows, cols)
	ys, xs := y.Float32s(), x.Float32s()
	for i, row := range rows.Int32s() {
		dst := ys[int(row)*cols : (int(row)+1)*cols]
		for c, v := range xs[i*cols : (i+1)*cols] {
			dst[c] += v
		}
	}
}

// SetInts implements npu.Device.
func (d *pureGo) SetInts(y npu.Buffer, indices, x npu.Ints) {
	d.check.SetInts(y, indices, x)
	ys, xs := y.Int32s(), x.Int32s()
	for i, index := range indices.Int32s() {
		ys[index] = xs[i]
	}
}

// Rope implements npu.Device. It replaces the pair (a, b), which is rotated by an angle with
// the given cos and sin, by (fma(a, cos, -(b·sin)), fma(b, cos, a·sin)). inverse negates sin.
func (d *pureGo) Rope(x, table npu.Buffer, positions npu.Ints, heads, dim int, inverse bool) {
	d.check.Rope(x, table, positions, heads, dim)
	half := dim / 2
	angles := table.Float32s()
	xs, done := write(x)
	defer done()
	d.parallel(positions.Len(), func(t int) {
		position := int(positions.Int32s()[t])
		row := angles[position*dim : (position+1)*dim] // cos of each pair's angle, then sin
		for head := range heads {
			v := xs[(t*heads+head)*dim : (t*heads+head+1)*dim]
			for i := range half {
				a, b := v[i], v[i+half]
				cos, sin := row[i], row[i+half]
				if inverse {
					sin = -sin
				}
				v[i] = fma32(a, cos, -float32(b*sin))
				v[i+half] = fma32(b, cos, float32(a*sin))
			}
		}
	})
}

// swigluChunk is the number of values per task of the elementwise kernels.
const swigluChunk = 4096

// SwiGLU implements npu.Device: y = (gate/(1+exp(-gate)))·up.
func (d *pureGo) SwiGLU(y, gate, up npu.Buffer) {
	d.check.SwiGLU("swiglu", y.Len(), y, gate, up)
	gs, us := read(gate), read(up)
	ys, done := write(y)
	defer done()
	d.parallel((len(ys)+swigluChunk-1)/swigluChunk, func(task int) {
		for i := task * swigluChunk; i < min(len(ys), (task+1)*swigluChunk); i++ {
			silu := float32(gs[i] / float32(1+exp32(-gs[i])))
			ys[i] = float32(silu * us[i])
		}
	})
}

// SwiGLUBackward implements npu.Device: dUp = dy·(gate/e) and
// dGate = (dy·up)·(σ·fma(gate, 1-σ, 1)), where e = 1+exp(-gate) and σ = 1/e. Each value is read
// before it is written, because the outputs may share memory with gate and up.
func (d *pureGo) SwiGLUBackward(dGate, dUp, dy, gate, up npu.Buffer) {
	d.check.SwiGLU("swiglu backward", dy.Len(), dy, gate, up, dGate, dUp)
	dys, gs, us := read(dy), read(gate), read(up)
	dgs, doneGate := write(dGate)
	defer doneGate()
	dus, doneUp := write(dUp)
	defer doneUp()
	d.parallel((len(dys)+swigluChunk-1)/swigluChunk, func(task int) {
		for i := task * swigluChunk; i < min(len(dys), (task+1)*swigluChunk); i++ {
			g, u := gs[i], us[i]
			e := float32(1 + exp32(-g))
			sigma := float32(1 / e)
			dus[i] = float32(dys[i] * float32(g/e))
			slope := float32(sigma * fma32(g, float32(1-sigma), 1))
			dgs[i] = float32(float32(dys[i]*u) * slope)
		}
	})
}
