package cpu

import (
	"math"
	"sync/atomic"

	"github.com/easyrl/easyrl/npu"
)

// fixed adds values to the 64-bit fixed-point sums of one tensor. Several goroutines may add to
// one tensor at the same time if each adds to sums of its own.
type fixed struct {
	npu.FixedPoint
	sums []int64
	mark *int64 // npu.Sums.Mark; atomic, because all goroutines share it
}

// fixedSums returns the sums of s for adding in format f.
func fixedSums(s npu.Sums, f npu.FixedPoint) *fixed {
	return &fixed{f, s.Int64s(), &s.Mark.Int64s()[0]}
}

// add adds v to sum i, or marks the tensor if v is out of range.
func (f *fixed) add(i int, v float32) {
	p := float32(v * f.Scale)
	if !(float32(math.Abs(float64(p))) <= f.Limit) { // also true of NaN
		f.markOutOfRange(v)
		return
	}
	f.sums[i] += int64(math.RoundToEven(float64(p)))
}

// markOutOfRange raises the mark to the bits of |v|. As integers, the bits of non-negative floats
// have the order of their values, and NaN is above all.
func (f *fixed) markOutOfRange(v float32) {
	const nan = 0x7fc00000
	const sign = 1 << 31
	bits := int64(math.Float32bits(v) &^ sign)
	if v != v {
		bits = nan
	}
	for {
		old := atomic.LoadInt64(f.mark)
		if old >= bits || atomic.CompareAndSwapInt64(f.mark, old, bits) {
			return
		}
	}
}

// fixedValue returns a sum as a float32, rounded to float64 first. The unit is 1/Scale.
func fixedValue(sum int64) float32 { return float32(float64(sum)) }
