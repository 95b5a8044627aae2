//go:build cgo

package ctable

// #include "table.h"
import "C"

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/easyrl/easyrl/internal/bytesize"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/internal/check"
)

type allocation struct {
	npu.Buffer
	purpose npu.Purpose
}

// Alloc implements npu.Device.
func (d *device) Alloc(dtype npu.DType, n int, purpose npu.Purpose) (npu.Buffer, error) {
	d.check.Outside("allocation")
	if err := check.Alloc(dtype, n, purpose, d.name); err != nil || n == 0 {
		return npu.Buffer{}, err
	}
	bytes := min(int64(n), math.MaxInt64/8) * int64(dtype.Size())
	addr := uintptr(C.t_alloc(d.t, d.d, C.int64_t(bytes)))
	if addr == 0 {
		d.wait() // frees what the queue still frees
		addr = uintptr(C.t_alloc(d.t, d.d, C.int64_t(bytes)))
	}
	if addr == 0 {
		used := int64(0)
		for _, n := range d.allocated {
			used += n
		}
		return npu.Buffer{}, fmt.Errorf("allocate %s for %s on %s: out of memory; this queue has allocated %s",
			bytesize.Text(bytes), purpose, d.name, bytesize.Text(used))
	}
	b := npu.AddressBuffer(pointer(&addr), dtype, n)
	if space := d.Space(); space != npu.Host {
		b = npu.DeviceBuffer(addr, dtype, n, space)
	}
	d.blocks[addr] = allocation{b, purpose}
	d.allocated[purpose] += bytes
	return b, nil
}

// pointer reads the pointer that the C side keeps at *addr. It points outside Go's heap.
func pointer(addr *uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(addr)) }

// Free implements npu.Device.
func (d *device) Free(b npu.Buffer) {
	if b.IsNil() {
		return
	}
	d.check.Outside("free")
	d.check.Own("free", b)
	a, ok := d.blocks[b.Addr()]
	if !ok {
		panic("npu: free of a buffer that this device did not allocate")
	}
	delete(d.blocks, b.Addr())
	d.allocated[a.purpose] -= a.Bytes()
	b.SetFreed()
	C.t_free(d.t, d.d, at(b))
}

// Allocated implements npu.Device.
func (d *device) Allocated() [npu.NumPurposes]int64 { return d.allocated }

// Upload implements npu.Device.
func (d *device) Upload(dst npu.Buffer, src []float32) {
	d.check.Outside("upload")
	d.check.Len("upload", dst, len(src), false)
	d.upload(at(dst), bytesOf(src))
}

// UploadInts implements npu.Device.
func (d *device) UploadInts(dst npu.Buffer, src []int32) {
	d.check.Outside("upload")
	d.check.Buffer("upload", dst, npu.Int32, len(src), false)
	d.upload(at(dst), bytesOf(src))
}

// Download implements npu.Device.
func (d *device) Download(dst []float32, src npu.Buffer) {
	d.check.Outside("download")
	d.check.Len("download", src, len(dst), false)
	d.download(bytesOf(dst), at(src))
}

// DownloadInts implements npu.Device.
func (d *device) DownloadInts(dst []int32, src npu.Buffer) {
	d.check.Outside("download")
	d.check.Buffer("download", src, npu.Int32, len(dst), false)
	d.download(bytesOf(dst), at(src))
}

// Copy implements npu.Device.
func (d *device) Copy(dst, src npu.Buffer) {
	d.check.Copy(dst, src)
	C.t_copy(d.t, d.d, at(dst), at(src), C.int64_t(src.Bytes()))
}

// Zero implements npu.Device.
func (d *device) Zero(b npu.Buffer) {
	d.check.Own("zero", b)
	C.t_zero(d.t, d.d, at(b), C.int64_t(b.Bytes()))
}
