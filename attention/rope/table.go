package rope

import (
	"github.com/easyrl/easyrl/internal/rounded"
	"github.com/easyrl/easyrl/npu"
)

// Table caches the table of npu.Device.Rope on a device: the cosines and sines of rotary
// embeddings (Su et al. 2021, section 3.2).
type Table struct {
	Theta   float64
	Scaling Scaling
	Dim     int // dimension of a head
	Context int // maximum number of positions of the model

	buf       npu.Buffer // [positions, Dim]
	positions int
}

// Grow makes the table cover positions 0 to last and returns it, valid until the next call.
// Its size doubles, from 512 positions up to Context, unless last needs more.
func (t *Table) Grow(dev npu.Device, last int32) (npu.Buffer, error) {
	if int(last) < t.positions {
		return t.buf, nil
	}
	needed := int(last) + 1
	n := min(max(needed, 2*t.positions, 512), max(t.Context, needed))
	buf, err := dev.Alloc(npu.Float32, n*t.Dim, npu.Activations)
	if err != nil {
		return npu.Buffer{}, err
	}
	dev.Upload(buf, t.values(n))
	t.Free(dev)
	t.buf, t.positions = buf, n
	return buf, nil
}

// values returns the rows of positions 0 to n-1: Dim/2 cosines, then as many sines.
func (t *Table) values(n int) []float32 {
	half := t.Dim / 2
	freq, factor := t.Scaling.Frequencies(t.Theta, t.Dim)
	vals := make([]float32, n*t.Dim)
	for p := range n {
		row := vals[p*t.Dim:]
		for i, f := range freq {
			// transformers computes the angle in float32, so it is rounded here too.
			sin, cos := rounded.Sincos(float64(float32(p) * float32(f)))
			row[i], row[half+i] = float32(cos*factor), float32(sin*factor)
		}
	}
	return vals
}

// Free frees the table.
func (t *Table) Free(dev npu.Device) {
	dev.Free(t.buf)
	t.buf, t.positions = npu.Buffer{}, 0
}
