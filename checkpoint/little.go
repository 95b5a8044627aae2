package checkpoint

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// memory is the memory of vals.
func memory(vals []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(vals))), 4*len(vals))
}

// bigEndian reports whether this machine's numbers begin with the high byte.
func bigEndian() bool { return binary.NativeEndian.Uint16([]byte{0, 1}) == 1 }

// little lends vals to use as little-endian bytes: as they lie in memory where
// that is how they lie.
func little(vals []float32, use func(b []byte) error) error {
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

// fromLittle makes numbers of vals whose memory was filled with little-endian
// bytes.
func fromLittle(vals []float32) {
	if !bigEndian() {
		return
	}
	for i, b := 0, memory(vals); i < len(vals); i++ {
		vals[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
}
