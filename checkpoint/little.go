package checkpoint

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// memory returns the bytes that back vals.
func memory(vals []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(vals))), 4*len(vals))
}

// bigEndian reports whether this machine is big-endian.
func bigEndian() bool { return binary.NativeEndian.Uint16([]byte{0, 1}) == 1 }

// asLittle passes vals to use as little-endian bytes, which use must neither keep nor change.
// On a little-endian machine it passes the memory of vals, in one call; else copies, in
// several calls.
func asLittle(vals []float32, use func(b []byte) error) error {
	if !bigEndian() {
		return use(memory(vals))
	}
	var chunk [1 << 12]byte
	for len(vals) > 0 {
		n := min(len(vals), len(chunk)/4)
		for i, v := range vals[:n] {
			binary.LittleEndian.PutUint32(chunk[4*i:], math.Float32bits(v))
		}
		if err := use(chunk[:4*n]); err != nil {
			return err
		}
		vals = vals[n:]
	}
	return nil
}

// fromLittle converts vals in place from little-endian to native byte order.
func fromLittle(vals []float32) {
	if !bigEndian() {
		return
	}
	for i, b := 0, memory(vals); i < len(vals); i++ {
		vals[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
}
