package parallel

import (
	"math"
	"unsafe"
)

// Element is what messages consist of. They hold the machine's byte order, little-endian on
// all that easyrl runs on.
type Element interface {
	float32 | int64 | int32 | byte
}

// view returns the memory of s as bytes.
func view[T Element](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(s[0])))
}

// elements returns b, the view of a []T, as []T.
func elements[T Element](b []byte) []T {
	if len(b) == 0 {
		return nil
	}
	var one T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(one)))
}

// fold combines the other ranks' values with own in place. Both have the same length.
type fold func(own, other []byte)

// sumInt64 wraps, so the sum does not depend on the order.
func sumInt64(own, other []byte) {
	a, b := elements[int64](own), elements[int64](other)
	for len(a) >= 4 && len(b) >= 4 {
		a[0] += b[0]
		a[1] += b[1]
		a[2] += b[2]
		a[3] += b[3]
		a, b = a[4:], b[4:]
	}
	for i := range a {
		a[i] += b[i]
	}
}

// maxFloat32 does not depend on the order: 0 exceeds -0, and any NaN gives the same NaN.
func maxFloat32(own, other []byte) {
	a, b := elements[float32](own), elements[float32](other)
	b = b[:len(a)]
	for i, x := range a {
		m := max(x, b[i])
		if m != m {
			m = math.Float32frombits(0x7fc00000)
		}
		a[i] = m
	}
}

// sumFloat32 depends on the order. own follows other, the sum of the ranks before.
func sumFloat32(own, other []byte) {
	a, b := elements[float32](own), elements[float32](other)
	for len(a) >= 4 && len(b) >= 4 {
		a[0] = b[0] + a[0]
		a[1] = b[1] + a[1]
		a[2] = b[2] + a[2]
		a[3] = b[3] + a[3]
		a, b = a[4:], b[4:]
	}
	for i := range a {
		a[i] = b[i] + a[i]
	}
}
