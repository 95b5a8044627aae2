package cpu

import (
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/bf16"
)

// read returns the values of x: its memory, or a copy if its type is BFloat16. Those of the zero Buffer are nil.
func read(x npu.Buffer) []float32 {
	if x.DType() != npu.BFloat16 {
		return x.Float32s()
	}
	values := make([]float32, x.Len())
	load(values, x, 0)
	return values
}

// load copies values of x from value first on, of type Float32 or BFloat16, to dst.
func load(dst []float32, x npu.Buffer, first int) {
	if x.DType() != npu.BFloat16 {
		copy(dst, x.Float32s()[first:])
		return
	}
	for i, n := range x.BFloat16s()[first : first+len(dst)] {
		dst[i] = n.Float()
	}
}

// write returns the values of y, for a kernel to change: its memory, or a copy if y's type is BFloat16. Then done
// rounds the values and writes them to y.
func write(y npu.Buffer) (values []float32, done func()) {
	values = read(y)
	if y.DType() != npu.BFloat16 {
		return values, func() {}
	}
	return values, func() {
		to := y.BFloat16s()
		for i, v := range values {
			to[i] = bf16.Round(v)
		}
	}
}

// Convert implements npu.Device.
func (d *pureGo) Convert(y, x npu.Buffer) {
	d.check.Convert(y, x)
	if y.DType() == x.DType() {
		d.Copy(y, x)
		return
	}
	values, done := write(y)
	copy(values, read(x))
	done()
}
