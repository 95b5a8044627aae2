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
	// maxChunks bounds the pinned memory. When all chunks are full, a transfer waits for the queue.
	maxChunks = 16
)

// staging is pinned host memory for transfers of a device whose memory the host cannot address.
// The device copies to and from pinned memory while the host continues.
//
// An upload copies the caller's values to pinned memory, so the caller may change its slice at
// once, and queues a copy from there. A download queues a copy to pinned memory; the next wait
// copies it to the caller's slice. Transfers take pinned memory from the chunks in order, and the
// queue may use it until the next wait, after which all chunks are free again.
//
// There is at least one chunk, unless the device has failed to allocate it.
type staging struct {
	chunks     [][]byte // each of chunkBytes or more
	chunk, pos int      // first free byte: chunks[chunk][pos]
	downloads  []download
}

// download is pinned memory that a queued copy fills, and the caller's slice that deliver copies
// it to.
type download struct{ dst, pinned []byte }

// bytesOf returns the memory of x.
func bytesOf[T float32 | int32](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*4)
}

// bytePointer returns the address of b for C.
func bytePointer(b []byte) *C.uint8_t { return (*C.uint8_t)(unsafe.SliceData(b)) }

// stage takes minBytes to maxBytes of pinned memory, as many as are free in one chunk. If it
// cannot allocate minBytes, it keeps the failure for Sync and returns nil. A caller that passes
// minBytes above chunkBytes passes the same maxBytes.
func (d *device) stage(minBytes, maxBytes int) []byte {
	s := d.staging
	for s.chunk < len(s.chunks) && len(s.chunks[s.chunk])-s.pos < minBytes {
		s.chunk++
		s.pos = 0
	}
	if s.chunk == len(s.chunks) && !d.addChunk(minBytes) {
		d.wait() // all chunks are free again
		if minBytes > chunkBytes {
			d.freeStaging() // makes room for one large chunk
			d.addChunk(minBytes)
		}
		if len(s.chunks) == 0 || len(s.chunks[0]) < minBytes {
			d.fail(fmt.Errorf("device %s: cannot allocate %d bytes of pinned host memory", d.name, minBytes))
			return nil
		}
	}
	const alignment = 64 // bytes; a power of two
	chunk := s.chunks[s.chunk]
	mem := chunk[s.pos:min(s.pos+maxBytes, len(chunk))]
	alignedLen := (len(mem) + alignment - 1) &^ (alignment - 1)
	s.pos = min(s.pos+alignedLen, len(chunk))
	return mem
}

// addChunk adds a chunk of at least minBytes. It returns false if there are maxChunks already or
// the memory cannot be allocated.
func (d *device) addChunk(minBytes int) bool {
	s := d.staging
	if len(s.chunks) == maxChunks {
		return false
	}
	n := max(minBytes, chunkBytes)
	mem := C.t_host_alloc(d.t, d.d, C.int64_t(n))
	if mem == nil {
		return false
	}
	s.chunks = append(s.chunks, unsafe.Slice((*byte)(mem), n))
	return true
}

// deliver copies downloads to their destinations and frees all chunks. The queue has run.
func (d *device) deliver() {
	s := d.staging
	if s == nil {
		return
	}
	for _, one := range s.downloads {
		copy(one.dst, one.pinned)
	}
	clear(s.downloads) // drops the references to callers' slices
	s.downloads = s.downloads[:0]
	s.chunk, s.pos = 0, 0
}

// upload copies src to the device's address dst.
func (d *device) upload(dst C.addr, src []byte) {
	if d.staging == nil {
		C.t_upload(d.t, d.d, dst, bytePointer(src), C.int64_t(len(src)))
		return
	}
	for len(src) > 0 {
		mem := d.stage(1, len(src))
		if mem == nil {
			return
		}
		copy(mem, src)
		C.t_upload(d.t, d.d, dst, bytePointer(mem), C.int64_t(len(mem)))
		dst, src = dst+C.addr(len(mem)), src[len(mem):]
	}
}

// download copies from the device's address src to dst.
func (d *device) download(dst []byte, src C.addr) {
	if d.staging == nil {
		C.t_download(d.t, d.d, bytePointer(dst), src, C.int64_t(len(dst)))
		return
	}
	for len(dst) > 0 {
		mem := d.stage(1, len(dst))
		if mem == nil {
			return
		}
		C.t_download(d.t, d.d, bytePointer(mem), src, C.int64_t(len(mem)))
		d.staging.downloads = append(d.staging.downloads, download{dst[:len(mem)], mem})
		src, dst = src+C.addr(len(mem)), dst[len(mem):]
	}
}

// freeStaging frees all chunks. The queue must not use them any more.
func (d *device) freeStaging() {
	if d.staging == nil {
		return
	}
	for _, mem := range d.staging.chunks {
		C.t_host_free(d.t, d.d, bytePointer(mem))
	}
	*d.staging = staging{}
}

// pack queues PackMatrix through pinned memory, some rows at a time. Rows that find no pinned
// memory are skipped; stage has kept the failure.
func (d *device) pack(m npu.Matrix, src []byte) {
	for part := range d.parts(m) {
		n := 4 * part.Rows * part.Cols // bytes
		if mem := d.stage(n, n); mem != nil {
			copy(mem, src)
			C.t_pack_matrix(d.t, d.d, cMatrix(part), bytePointer(mem))
		}
		src = src[n:]
	}
}

// unpack queues UnpackMatrix through pinned memory, some rows at a time, as pack does.
func (d *device) unpack(dst []byte, m npu.Matrix) {
	for part := range d.parts(m) {
		n := 4 * part.Rows * part.Cols // bytes
		if mem := d.stage(n, n); mem != nil {
			C.t_unpack_matrix(d.t, d.d, bytePointer(mem), cMatrix(part))
			d.staging.downloads = append(d.staging.downloads, download{dst[:n], mem})
		}
		dst = dst[n:]
	}
}

// parts cuts m into matrices of as many blocks of npu.MatrixBlock rows as fit a chunk, or of one
// block if none fits. The layout of a matrix allows a cut at any block.
func (d *device) parts(m npu.Matrix) iter.Seq[npu.Matrix] {
	step := max(chunkBytes/(4*m.Cols*npu.MatrixBlock), 1) * npu.MatrixBlock // rows
	return func(yield func(npu.Matrix) bool) {
		start := 0 // first value of the next part
		for row := 0; row < m.Rows; row += step {
			rows := min(step, m.Rows-row)
			end := start + d.MatrixLen(rows, m.Cols)
			if !yield(npu.Matrix{Buffer: m.Slice(start, end), Rows: rows, Cols: m.Cols}) {
				return
			}
			start = end
		}
	}
}
