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

// CopySum copies src to dst, unless dst is nil, and writes the 64-bit XXH3 of each
// run of run values, as little-endian bytes, to sums. It uses at most threads threads
// and reports whether all values are finite.
//
// Another process may write src at the same time: a run in dst is intact if its sum
// is the expected one. CopySum panics unless len(src) is run·len(sums) and dst is nil
// or has the same length.
func CopySum(dst, src []float32, run int, sums []uint64, threads int) (finite bool) {
	return copySum(copierOf(""), dst, src, run, sums, threads)
}

// copier is an implementation of CopySum for one thread.
type copier func(dst, src []float32, run int, sums []uint64) (finite bool)

// copyTask is the approximate number of values in a thread's task.
const copyTask = 1 << 16

// copySum divides CopySum's work into tasks of whole runs, which threads take as they become free.
func copySum(do copier, dst, src []float32, run int, sums []uint64, threads int) bool {
	if len(src) != run*len(sums) || dst != nil && len(dst) != len(src) {
		panic("host: CopySum: lengths of values and sums do not match")
	}
	if len(src) == 0 {
		return true
	}
	step := max(1, copyTask/run) // runs per task
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

// copyGo is the copier in pure Go.
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
			finite = finite && v-v == 0 // NaN if v is infinite or NaN
		}
	}
	return finite
}

// bigEndian reports whether this machine is big-endian.
func bigEndian() bool { return binary.NativeEndian.Uint16([]byte{0, 1}) == 1 }

// littleBytes returns vals as little-endian bytes. On a little-endian machine they
// share the memory of vals.
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
