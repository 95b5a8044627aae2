package host

import (
	"encoding/binary"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/zeebo/xxh3"
)

// CopySum copies values of host memory to dst, or nowhere where it is nil, on at
// most so many threads, and writes to sums the XXH3 (64 bits) of each run of run
// values as little-endian bytes. A run whose sum is the expected one is whole in
// dst, whoever writes src meanwhile. It reports whether all values are finite.
// len(src) is run times len(sums), and dst's, where it is not nil; others panic.
func CopySum(dst, src []float32, run int, sums []uint64, threads int) (finite bool) {
	return copySum(copierOf(""), dst, src, run, sums, threads)
}

// A copier is CopySum on one thread.
type copier func(dst, src []float32, run int, sums []uint64) (finite bool)

// copyTask is about the number of values in a thread's task.
const copyTask = 1 << 16

func copySum(do copier, dst, src []float32, run int, sums []uint64, threads int) bool {
	if len(src) != run*len(sums) || dst != nil && len(dst) != len(src) {
		panic("host: values that are not the runs'")
	}
	if len(src) == 0 {
		return true
	}
	step := max(1, copyTask/run) // runs in a task
	tasks := (len(sums) + step - 1) / step
	var next, bad atomic.Int64
	work := func() {
		for {
			lo := (int(next.Add(1)) - 1) * step
			if lo >= len(sums) {
				return
			}
			hi := min(lo+step, len(sums))
			var to []float32
			if dst != nil {
				to = dst[lo*run : hi*run]
			}
			if !do(to, src[lo*run:hi*run], run, sums[lo:hi]) {
				bad.Add(1)
			}
		}
	}
	var group sync.WaitGroup
	for range min(threads, tasks) - 1 {
		group.Go(work)
	}
	work()
	group.Wait()
	return bad.Load() == 0
}

// copyGo is a copier in plain Go.
func copyGo(dst, src []float32, run int, sums []uint64) (finite bool) {
	finite = true
	for i := range sums {
		vals := src[i*run : (i+1)*run]
		if dst != nil {
			copy(dst[i*run:], vals)
			vals = dst[i*run : (i+1)*run]
		}
		sums[i] = xxh3.Hash(littleBytes(vals))
		for _, v := range vals {
			finite = finite && v-v == 0
		}
	}
	return finite
}

// bigEndian reports whether this machine's numbers begin with the high byte.
func bigEndian() bool { return binary.NativeEndian.Uint16([]byte{0, 1}) == 1 }

// littleBytes are the bytes of vals, the low one first: their memory where they
// lie so.
func littleBytes(vals []float32) []byte {
	if !bigEndian() {
		return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(vals))), 4*len(vals))
	}
	b := slices.Grow([]byte(nil), 4*len(vals))
	for _, v := range vals {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}
