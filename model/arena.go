package model

import "github.com/easyrl/easyrl/npu"

// rows carves per-row buffers out of one allocation that grows to the largest
// number of rows seen.
type rows struct {
	dev     npu.Device
	purpose npu.Purpose
	buf     npu.Buffer
	at      int
}

// reserve makes room for n values and forgets what was carved before.
func (r *rows) reserve(n int) error {
	r.at = 0
	if r.buf.Len() >= n {
		return nil
	}
	r.free()
	buf, err := r.dev.Alloc(n, r.purpose)
	r.buf = buf
	return err
}

// take carves n values that start on a cache line.
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
