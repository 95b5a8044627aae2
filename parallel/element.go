package parallel

import (
	"math"
	"unsafe"
)

// Element is the type of a message's elements. Messages hold them in the machine's own byte order, so
// all ranks need the same one; every machine that easyrl supports is little-endian.
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

// elements returns the memory of b as []T. b must be part of a view of a []T, cut between elements, so
// that it is aligned.
func elements[T Element](b []byte) []T {
	if len(b) == 0 {
		return nil
	}
	var element T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(element)))
}

// fold combines other, the values that a relay has gathered from the ranks before this one, with own,
// this rank's values. It stores the result in own and leaves other unchanged. Both have the same length.
type fold func(own, other []byte)

// sumInt64 adds with wrap-around, so the result does not depend on the order.
func sumInt64(own, other []byte) {
	a, b := elements[int64](own), elements[int64](other)
	for len(a) >= 4 && len(b) >= 4 { // four at once, without bounds checks
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

// maxFloat32 takes the maximum. Its bits do not depend on the order: 0 exceeds -0, and any NaN gives the
// same NaN.
func maxFloat32(own, other []byte) {
	a, b := elements[float32](own), elements[float32](other)
	b = b[:len(a)]
	for i, x := range a {
		m := max(x, b[i])
		if m != m { // NaN
			m = math.Float32frombits(0x7fc00000) // the quiet NaN without a payload
		}
		a[i] = m
	}
}

// sumFloat32 adds own to other, the sum of the ranks before this one. Its bits depend on the order of
// ranks.
func sumFloat32(own, other []byte) {
	a, b := elements[float32](own), elements[float32](other)
	for len(a) >= 4 && len(b) >= 4 { // four at once, without bounds checks
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
