package model

import (
	"github.com/easyrl/easyrl/model/layer"
	"github.com/easyrl/easyrl/npu"
)

// scratch owns one allocation, which grows to the largest size reserved, and hands out buffers
// from it. reserve ends the use of all buffers handed out before. Kernels that are already queued
// may still read them, because a device frees memory in the order of the calls.
type scratch struct {
	dev     npu.Device
	purpose npu.Purpose
	buf     npu.Buffer // in words of float32
	used    int        // words that are handed out
}

// reserve makes room for n words, padding included, and takes back all buffers.
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
func (r *scratch) take(dtype npu.DType, n int) npu.Buffer {
	words := wordsOf(dtype, n)
	b := r.buf.Slice(r.used, r.used+words)
	r.used += padded(words)
	return b.As(dtype).Slice(0, n)
}

// wordsOf returns the number of words of float32 that hold n values.
func wordsOf(dtype npu.DType, n int) int {
	word := npu.Float32.Size()
	return (n*dtype.Size() + word - 1) / word
}

// measure returns the number of words that carve takes from a scratch. The buffers that carve gets are
// undefined.
func measure(carve func(take layer.Take)) int {
	total := 0
	carve(func(dtype npu.DType, n int) npu.Buffer {
		total += padded(wordsOf(dtype, n))
		return npu.Buffer{}
	})
	return total
}

// activationType returns the type of a device's activations, and float32 for no device.
func activationType(dev npu.Device) npu.DType {
	if dev == nil {
		return npu.Float32
	}
	return dev.Info().Numerics.Type()
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
