//go:build cgo

package ctable

// #include "table.h"
import "C"

import "unsafe"

const (
	chunkBytes = 4 << 20
	maxChunks  = 16 // then a transfer waits for those before it
)

// staging is pinned memory for the transfers of a device whose memory the host cannot
// address. It has at least one chunk. A wait empties it.
type staging struct {
	chunks    [][]byte // of chunkBytes each
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

// stage returns pinned memory of 1 to n bytes.
func (h *handle) stage(n int) []byte {
	s := h.staging
	if s.at == chunkBytes {
		s.chunk, s.at = s.chunk+1, 0
	}
	if s.chunk == len(s.chunks) && !h.grow() {
		h.wait() // frees all chunks
	}
	mem := s.chunks[s.chunk][s.at:min(s.at+n, chunkBytes)]
	s.at += (len(mem) + 63) &^ 63
	return mem
}

// grow adds a chunk and reports whether there is room and memory for it.
func (h *handle) grow() bool {
	s := h.staging
	if len(s.chunks) == maxChunks {
		return false
	}
	mem := C.t_host_alloc(h.t, h.d, chunkBytes)
	if mem == nil {
		return false
	}
	s.chunks = append(s.chunks, unsafe.Slice((*byte)(mem), chunkBytes))
	return true
}

// deliver copies downloads to their destinations after a wait.
func (h *handle) deliver() {
	s := h.staging
	if s == nil {
		return
	}
	for _, d := range s.downloads {
		copy(d.dst, d.pinned)
	}
	clear(s.downloads)
	s.downloads, s.chunk, s.at = s.downloads[:0], 0, 0
}

// upload copies src to the device's address dst.
func (h *handle) upload(dst C.addr, src []byte) {
	if h.staging == nil {
		C.t_upload(h.t, h.d, dst, first(src), C.int64_t(len(src)))
		return
	}
	for len(src) > 0 {
		mem := h.stage(len(src))
		copy(mem, src)
		C.t_upload(h.t, h.d, dst, first(mem), C.int64_t(len(mem)))
		dst, src = dst+C.addr(len(mem)), src[len(mem):]
	}
}

// download copies from the device's address src to dst.
func (h *handle) download(dst []byte, src C.addr) {
	if h.staging == nil {
		C.t_download(h.t, h.d, first(dst), src, C.int64_t(len(dst)))
		return
	}
	for len(dst) > 0 {
		mem := h.stage(len(dst))
		C.t_download(h.t, h.d, first(mem), src, C.int64_t(len(mem)))
		h.staging.downloads = append(h.staging.downloads, download{dst[:len(mem)], mem})
		src, dst = src+C.addr(len(mem)), dst[len(mem):]
	}
}

func (h *handle) freeStaging() {
	if h.staging == nil {
		return
	}
	for _, mem := range h.staging.chunks {
		C.t_host_free(h.t, h.d, first(mem))
	}
	h.staging = &staging{}
}
