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

// Float32s reads all elements into dst, whose length must match. It converts
// BF16 and F16 exactly. Its errors are those of ReadAt.
func (t Tensor) Float32s(dst []float32) error {
	if t.file != nil && len(dst) != t.Len() {
		return fmt.Errorf("read tensor %q of %s: destination holds %d elements, expected %d for shape %v", t.Name,
			t.file.path, len(dst), t.Len(), t.Shape)
	}
	return t.ReadAt(dst, 0)
}

// ReadAt reads len(dst) elements, starting at element first, and converts them as
// Float32s does. It fails for other dtypes, for elements outside the tensor, for a closed
// file, and if the file was shortened after opening or its disk fails. It releases the
// file's pages afterwards.
func (t Tensor) ReadAt(dst []float32, first int) error {
	if t.file == nil {
		return fmt.Errorf("read tensor %q: no open folder", t.Name) // a tensor of a Stream
	}
	if n := t.Len(); first < 0 || first > n || len(dst) > n-first {
		return fmt.Errorf("read tensor %q of %s: %d elements from %d are outside its %d", t.Name, t.file.path,
			len(dst), first, n)
	}
	convert := t.DType.converter()
	if convert == nil {
		return fmt.Errorf("read tensor %q of %s: dtype %s, expected F32, BF16 or F16", t.Name, t.file.path, t.DType)
	}
	size := t.DType.bits() / 8
	for done := 0; done < len(dst); {
		part := dst[done:min(done+readStep, len(dst))]
		begin := t.begin + (first+done)*size
		if err := t.file.read(begin, begin+len(part)*size, func(src []byte) { convert(part, src) }); err != nil {
			return fmt.Errorf("read tensor %q of %s: %w", t.Name, t.file.path, err)
		}
		done += len(part)
	}
	return nil
}

// readStep is the number of elements after which ReadAt releases the pages that it has
// read, so that a large tensor does not occupy memory twice.
const readStep = 1 << 20

// converter returns the exact conversion from d to float32, or nil if d has none.
func (d DType) converter() func(dst []float32, src []byte) {
	switch d {
	case F32:
		return fromF32
	case BF16:
		return fromBF16
	case F16:
		return fromF16
	}
	return nil
}

// The conversions read len(dst) elements from src, little-endian.

func fromF32(dst []float32, src []byte) {
	copy(memory(dst), src)
	fromLittle(dst)
}

func fromBF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

func fromF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = half(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

// half returns the value of an IEEE binary16 number.
func half(h uint16) float32 {
	sign, exponent, fraction := uint32(h>>15)<<31, uint32(h>>10)&0x1f, uint32(h)&0x3ff
	switch exponent {
	case 0: // zero and subnormals: fraction · 2^-24
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)*0x1p-24))
	case 0x1f: // infinity and NaN
		return math.Float32frombits(sign | 0xff<<23 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}
