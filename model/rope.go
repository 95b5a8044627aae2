package model

import (
	"math"

	"github.com/easyrl/easyrl/npu"
)

// ropeTable caches the table of npu.Device.Rope on a device: the cosines and sines of
// rotary embeddings (Su et al. 2021, section 3.2).
type ropeTable struct {
	buf       npu.Buffer
	positions int
}

// grow makes the table cover positions 0 to last and returns it, valid until the next
// call. Its size doubles, from 512 positions up to c.MaxPositions, unless last needs more.
func (t *ropeTable) grow(dev npu.Device, c *Config, last int32) (npu.Buffer, error) {
	if int(last) < t.positions {
		return t.buf, nil
	}
	n := min(max(int(last)+1, 2*t.positions, 512), max(c.MaxPositions, int(last)+1))
	buf, err := dev.Alloc(npu.Float32, n*c.HeadDim, npu.Activations)
	if err != nil {
		return npu.Buffer{}, err
	}
	half := c.HeadDim / 2
	freq, factor := c.RopeScaling.Frequencies(c.RopeTheta, c.HeadDim)
	vals := make([]float32, n*c.HeadDim)
	for p := range n {
		row := vals[p*c.HeadDim:]
		for i, f := range freq {
			sin, cos := math.Sincos(float64(float32(p) * float32(f))) // the angle is rounded to float32, as in transformers
			row[i], row[half+i] = float32(cos*factor), float32(sin*factor)
		}
	}
	dev.Upload(buf, vals)
	t.free(dev)
	t.buf, t.positions = buf, n
	return buf, nil
}

func (t *ropeTable) free(dev npu.Device) {
	if !t.buf.IsNil() {
		dev.Free(t.buf)
	}
	*t = ropeTable{}
}
