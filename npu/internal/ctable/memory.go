//go:build cgo

package ctable

// #include "table.h"
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/easyrl/easyrl/internal/bytesize"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/internal/check"
)

type allocation struct {
	bytes   int64
	purpose npu.Purpose
}

// memory is the memory of a device.
type memory struct {
	*handle
	host      bool // the host can address it
	allocated [npu.NumPurposes]int64
	blocks    map[uintptr]allocation
}

// Alloc implements npu.Device.
func (d *memory) Alloc(n int, purpose npu.Purpose) (npu.Buffer, error) {
	if n < 0 {
		return npu.Buffer{}, fmt.Errorf("allocate %d values for %s on %s: expected at least 0", n, purpose, d.name)
	}
	if n == 0 {
		return npu.Buffer{}, nil
	}
	addr := uintptr(C.t_alloc(d.t, d.d, C.int64_t(n)))
	if addr == 0 {
		used := int64(0)
		for _, n := range d.allocated {
			used += n
		}
		return npu.Buffer{}, fmt.Errorf("allocate %s for %s on %s: out of memory; %s are in use", bytesize.Text(int64(n)*4), purpose, d.name, bytesize.Text(used))
	}
	d.blocks[addr] = allocation{int64(n) * 4, purpose}
	d.allocated[purpose] += int64(n) * 4
	if !d.host {
		return npu.DeviceBuffer(addr, n), nil
	}
	return npu.HostBuffer(unsafe.Slice(hostFloats(&addr), n)), nil
}

// hostFloats reads the pointer that the C side keeps at *addr. It points outside Go's
// heap.
func hostFloats(addr *uintptr) *float32 { return *(**float32)(unsafe.Pointer(addr)) }

// Free implements npu.Device.
func (d *memory) Free(b npu.Buffer) {
	if b.IsNil() {
		return
	}
	a, ok := d.blocks[b.Addr()]
	if !ok {
		panic("npu: free of a buffer that this device did not allocate")
	}
	delete(d.blocks, b.Addr())
	d.allocated[a.purpose] -= a.bytes
	C.t_free(d.t, d.d, C.addr(b.Addr()))
}

// Allocated implements npu.Device.
func (d *memory) Allocated() [npu.NumPurposes]int64 { return d.allocated }

// Upload implements npu.Device.
func (d *memory) Upload(dst npu.Buffer, src []float32) {
	check.Len("upload", dst, len(src), false)
	C.t_upload(d.t, d.d, at(dst), floats(src), C.int64_t(len(src)))
}

// Download implements npu.Device.
func (d *memory) Download(dst []float32, src npu.Buffer) {
	check.Len("download", src, len(dst), false)
	C.t_download(d.t, d.d, floats(dst), at(src), C.int64_t(len(dst)))
}

// Copy implements npu.Device.
func (d *memory) Copy(dst, src npu.Buffer) {
	check.Len("copy", dst, src.Len(), false)
	C.t_copy(d.t, d.d, at(dst), at(src), C.int64_t(src.Len()))
}

// Zero implements npu.Device.
func (d *memory) Zero(b npu.Buffer) { C.t_zero(d.t, d.d, at(b), C.int64_t(b.Len())) }
