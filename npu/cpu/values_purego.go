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
	for i, n := range x.BFloat16s() {
		values[i] = n.Float()
	}
	return values
}

// write returns memory for the values of y, of any content: that of y, or memory of its own if y's type is
// BFloat16. Then done rounds the values and writes them to y.
func write(y npu.Buffer) (values []float32, done func()) {
	if y.DType() != npu.BFloat16 {
		return y.Float32s(), func() {}
	}
	values = make([]float32, y.Len())
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
	values, done := write(y)
	copy(values, read(x))
	done()
}
