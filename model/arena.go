package model

import "github.com/easyrl/easyrl/npu"

// rows carves per-row buffers out of one allocation, which it owns and which grows to the
// largest size reserved. reserve ends the use of all buffers carved before: kernels already
// queued may still read them, because a device frees memory in the order of the calls.
type rows struct {
	dev     npu.Device
	purpose npu.Purpose
	buf     npu.Buffer
	at      int
}

// reserve makes room for n values and discards earlier carvings.
func (r *rows) reserve(n int) error {
	r.at = 0
	if r.buf.Len() >= n {
		return nil
	}
	r.free()
	buf, err := r.dev.Alloc(npu.Float32, n, r.purpose)
	r.buf = buf
	return err
}

// take carves out n values, aligned to a cache line.
func (r *rows) take(n int) npu.Buffer {
	b := r.buf.Slice(r.at, r.at+n)
	r.at += padded(n)
	return b
}

func padded(n int) int { return (n + 15) / 16 * 16 }

func (r *rows) free() {
	if !r.buf.IsNil() {
		r.dev.Free(r.buf)
	}
	r.buf, r.at = npu.Buffer{}, 0
}
