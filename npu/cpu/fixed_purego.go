package cpu

import (
	"math"
	"sync/atomic"

	"github.com/easyrl/easyrl/npu"
)

// fixed adds values to 64-bit fixed-point sums.
type fixed struct {
	npu.FixedPoint
	sums []int64
	mark *int64
}

func fixedSums(s npu.Sums, f npu.FixedPoint) *fixed {
	return &fixed{f, s.Int64s(), &s.Mark.Int64s()[0]}
}

// add adds v to sum i, or marks the tensor if v is out of range.
func (f *fixed) add(i int, v float32) {
	p := float32(v * f.Scale)
	if !(float32(math.Abs(float64(p))) <= f.Limit) {
		f.markOut(v)
		return
	}
	f.sums[i] += int64(math.RoundToEven(float64(p)))
}

// markOut marks the tensor with a value out of range.
func (f *fixed) markOut(v float32) {
	size := int64(math.Float32bits(v) &^ (1 << 31))
	if v != v {
		size = 0x7fc00000
	}
	for old := atomic.LoadInt64(f.mark); old < size && !atomic.CompareAndSwapInt64(f.mark, old, size); {
		old = atomic.LoadInt64(f.mark)
	}
}

// fixedValue returns a sum as a float32.
func fixedValue(sum int64) float32 { return float32(float64(sum)) }
