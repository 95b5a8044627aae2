//go:build cgo

package ctable

// #include "table.h"
import "C"

import (
	"fmt"
	"iter"
	"unsafe"

	"github.com/easyrl/easyrl/npu"
)

const (
	chunkBytes = 4 << 20
	maxChunks  = 16 // then a transfer waits for those before it
)

// staging is pinned memory for the transfers of a device whose memory the host cannot
// address: a device copies to and from pinned memory while the host continues, and the caller of
// Upload may change its slice at once. It has at least one chunk. The queue uses the chunks
// until a wait, which empties them.
type staging struct {
	chunks    [][]byte // of chunkBytes or more
	chunk, at int      // the first free byte
	downloads []download
}

// download is a download into pinned memory, and where deliver copies it.
type download struct{ dst, pinned []byte }

// bytesOf returns the memory of values.
func bytesOf[T float32 | int32](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*4)
}

func first(b []byte) *C.uint8_t { return (*C.uint8_t)(unsafe.SliceData(b)) }

// stage returns pinned memory of least to most bytes, and keeps a failure if there is none.
// least is at most chunkBytes, or most.
func (d *device) stage(least, most int) []byte {
	s := d.staging
	for s.chunk < len(s.chunks) && len(s.chunks[s.chunk])-s.at < least {
		s.chunk, s.at = s.chunk+1, 0
	}
	if s.chunk == len(s.chunks) && !d.grow(least) {
		d.wait() // frees all chunks
		if least > chunkBytes {
			d.freeStaging()
			d.grow(least)
		}
		if len(s.chunks) == 0 || len(s.chunks[0]) < least {
			d.fail(fmt.Errorf("device %s: cannot allocate %d bytes of pinned host memory", d.name, least))
			return nil
		}
	}
	chunk := s.chunks[s.chunk]
	mem := chunk[s.at:min(s.at+most, len(chunk))]
	s.at = min(s.at+(len(mem)+63)&^63, len(chunk))
	return mem
}

// grow adds a chunk with room for least bytes and reports whether there is room and memory for
// it.
func (d *device) grow(least int) bool {
	s := d.staging
	if len(s.chunks) == maxChunks {
		return false
	}
	n := max(least, chunkBytes)
	mem := C.t_host_alloc(d.t, d.d, C.int64_t(n))
	if mem == nil {
		return false
	}
	s.chunks = append(s.chunks, unsafe.Slice((*byte)(mem), n))
	return true
}

// deliver copies downloads to their destinations after a wait.
func (d *device) deliver() {
	s := d.staging
	if s == nil {
		return
	}
	for _, one := range s.downloads {
		copy(one.dst, one.pinned)
	}
	clear(s.downloads)
	s.downloads, s.chunk, s.at = s.downloads[:0], 0, 0
}

// upload copies src to the device's address dst.
func (d *device) upload(dst C.addr, src []byte) {
	if d.staging == nil {
		C.t_upload(d.t, d.d, dst, first(src), C.int64_t(len(src)))
		return
	}
	for len(src) > 0 {
		mem := d.stage(1, len(src))
		if mem == nil {
			return
		}
		copy(mem, src)
		C.t_upload(d.t, d.d, dst, first(mem), C.int64_t(len(mem)))
		dst, src = dst+C.addr(len(mem)), src[len(mem):]
	}
}

// download copies from the device's address src to dst.
func (d *device) download(dst []byte, src C.addr) {
	if d.staging == nil {
		C.t_download(d.t, d.d, first(dst), src, C.int64_t(len(dst)))
		return
	}
	for len(dst) > 0 {
		mem := d.stage(1, len(dst))
		if mem == nil {
			return
		}
		C.t_download(d.t, d.d, first(mem), src, C.int64_t(len(mem)))
		d.staging.downloads = append(d.staging.downloads, download{dst[:len(mem)], mem})
		src, dst = src+C.addr(len(mem)), dst[len(mem):]
	}
}

func (d *device) freeStaging() {
	if d.staging == nil {
		return
	}
	for _, mem := range d.staging.chunks {
		C.t_host_free(d.t, d.d, first(mem))
	}
	*d.staging = staging{}
}

// pack writes row-major values to m, some rows at a time.
func (d *device) pack(m npu.Matrix, src []byte) {
	for part := range d.parts(m) {
		n := 4 * part.Rows * part.Cols
		if mem := d.stage(n, n); mem != nil {
			copy(mem, src)
			C.t_pack_matrix(d.t, d.d, matrix(part), first(mem))
		}
		src = src[n:]
	}
}

// unpack reads the row-major values of m, some rows at a time.
func (d *device) unpack(dst []byte, m npu.Matrix) {
	for part := range d.parts(m) {
		n := 4 * part.Rows * part.Cols
		if mem := d.stage(n, n); mem != nil {
			C.t_unpack_matrix(d.t, d.d, first(mem), matrix(part))
			d.staging.downloads = append(d.staging.downloads, download{dst[:n], mem})
		}
		dst = dst[n:]
	}
}

// parts cuts m into blocks of rows that fit a chunk, or into the smallest blocks.
func (d *device) parts(m npu.Matrix) iter.Seq[npu.Matrix] {
	step := max(chunkBytes/(4*m.Cols*npu.MatrixBlock), 1) * npu.MatrixBlock
	return func(yield func(npu.Matrix) bool) {
		for at, row := 0, 0; row < m.Rows; row += step {
			rows := min(step, m.Rows-row)
			n := d.MatrixLen(rows, m.Cols)
			if !yield(npu.Matrix{Buffer: m.Slice(at, at+n), Rows: rows, Cols: m.Cols}) {
				return
			}
			at += n
		}
	}
}
