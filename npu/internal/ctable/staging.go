//go:build cgo

package ctable

// #include "table.h"
import "C"

import (
	"fmt"
	"unsafe"
)

const (
	chunkBytes = 4 << 20
	maxChunks  = 16 // then a transfer waits for those before it
)

// staging is pinned memory for the transfers of a device whose memory the host cannot
// address. A wait empties it.
type staging struct {
	chunks    [][]byte // of chunkBytes each
	chunk, at int      // the first free byte
	downloads []download
}

// download is a finished or pending download to pinned memory and its destination.
type download struct{ dst, pinned []byte }

// bytesOf returns the memory of values.
func bytesOf[T float32 | int32](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*4)
}

func first(b []byte) *C.uint8_t { return (*C.uint8_t)(unsafe.SliceData(b)) }

// stage returns pinned memory of 1 to n bytes, or nil if there is none.
func (h *handle) stage(n int) []byte {
	s := h.staging
	if s.at == chunkBytes {
		s.chunk, s.at = s.chunk+1, 0
	}
	if s.chunk == len(s.chunks) && !h.grow() {
		return nil
	}
	mem := s.chunks[s.chunk][s.at:min(s.at+n, chunkBytes)]
	s.at += (len(mem) + 63) &^ 63
	return mem
}

// grow makes room for one more chunk, by a wait if it cannot allocate one.
func (h *handle) grow() bool {
	s := h.staging
	if len(s.chunks) < maxChunks {
		if mem := C.t_host_alloc(h.t, h.d, chunkBytes); mem != nil {
			s.chunks = append(s.chunks, unsafe.Slice((*byte)(mem), chunkBytes))
			return true
		}
	}
	h.wait()
	if len(s.chunks) == 0 && h.failure == nil {
		h.failure = fmt.Errorf("device %s: out of memory: cannot allocate %d bytes of pinned host memory", h.name, chunkBytes)
	}
	return len(s.chunks) > 0
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
		if mem == nil {
			return
		}
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
		if mem == nil {
			return
		}
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
