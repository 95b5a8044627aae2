package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Len returns the number of elements.
func (t Tensor) Len() int {
	n := 1
	for _, s := range t.Shape {
		n *= s
	}
	return n
}

// Float32s reads the whole tensor into dst, which must have its length. BF16 and
// F16 are converted, exactly.
func (t Tensor) Float32s(dst []float32) error {
	if t.file == nil {
		return fmt.Errorf("read tensor %q: not of an open folder", t.Name)
	}
	if len(dst) != t.Len() {
		return fmt.Errorf("read tensor %q of %s: room for %d elements, expected %d of shape %v", t.Name, t.file.path, len(dst), t.Len(), t.Shape)
	}
	t.file.mu.RLock()
	defer t.file.mu.RUnlock()
	if t.file.data == nil {
		return fmt.Errorf("read tensor %q of %s: the file is closed", t.Name, t.file.path)
	}
	src := t.file.data[t.begin:t.end]
	switch t.DType {
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case BF16:
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
		}
	case F16:
		for i := range dst {
			dst[i] = half(binary.LittleEndian.Uint16(src[2*i:]))
		}
	default:
		return fmt.Errorf("read tensor %q of %s: dtype %s, expected F32, BF16 or F16", t.Name, t.file.path, t.DType)
	}
	return nil
}

// half returns the value of an IEEE binary16 number.
func half(h uint16) float32 {
	sign, exponent, fraction := uint32(h>>15)<<31, uint32(h>>10)&0x1f, uint32(h)&0x3ff
	switch exponent {
	case 0: // zero and subnormal numbers: fraction · 2^-24
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)*0x1p-24))
	case 0x1f: // infinity and NaN
		return math.Float32frombits(sign | 0xff<<23 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}
