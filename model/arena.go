package model

import "github.com/easyrl/easyrl/npu"

// scratch owns one allocation, which grows to the largest size reserved, and hands out buffers
// from it. reserve ends the use of all buffers handed out before. Kernels that are already queued
// may still read them, because a device frees memory in the order of the calls.
type scratch struct {
	dev     npu.Device
	purpose npu.Purpose
	buf     npu.Buffer
	used    int // values of buf that are handed out
}

// reserve makes room for n values, padding included, and takes back all buffers.
func (r *scratch) reserve(n int) error {
	r.used = 0
	if r.buf.Len() >= n {
		return nil
	}
	r.free()
	buf, err := r.dev.Alloc(npu.Float32, n, r.purpose)
	r.buf = buf
	return err
}

// take hands out a buffer of n values, aligned to a cache line.
func (r *scratch) take(n int) npu.Buffer {
	b := r.buf.Slice(r.used, r.used+n)
	r.used += padded(n)
	return b
}

// padded rounds a number of values up to whole cache lines of float32.
func padded(n int) int { return (n + 15) / 16 * 16 }

// free frees the allocation. The scratch can be used again.
func (r *scratch) free() {
	if !r.buf.IsNil() {
		r.dev.Free(r.buf)
	}
	r.buf, r.used = npu.Buffer{}, 0
}
