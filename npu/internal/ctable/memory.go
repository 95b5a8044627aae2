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

// allocation is what Alloc keeps of a buffer that it returned.
type allocation struct {
	npu.Buffer
	purpose npu.Purpose
}

// Alloc implements npu.Device.
func (d *device) Alloc(dtype npu.DType, n int, purpose npu.Purpose) (npu.Buffer, error) {
	d.check.OutsideCapture("allocation")
	if err := check.Alloc(dtype, n, purpose, d.name); err != nil || n == 0 {
		return npu.Buffer{}, err
	}
	bytes := min(int64(n), math.MaxInt64/8) * int64(dtype.Size()) // min avoids an overflow; the allocation fails
	address := uintptr(C.t_alloc(d.t, d.d, C.int64_t(bytes)))
	if address == 0 {
		d.wait() // runs the frees that are still queued
		address = uintptr(C.t_alloc(d.t, d.d, C.int64_t(bytes)))
	}
	if address == 0 {
		used := int64(0)
		for _, n := range d.allocated {
			used += n
		}
		return npu.Buffer{}, fmt.Errorf("allocate %s for %s on %s: out of memory; this queue has allocated %s",
			bytesize.Text(bytes), purpose, d.name, bytesize.Text(used))
	}
	b := npu.AddressBuffer(pointer(&address), dtype, n)
	if space := d.Space(); space != npu.Host {
		b = npu.DeviceBuffer(address, dtype, n, space)
	}
	d.blocks[address] = allocation{b, purpose}
	d.allocated[purpose] += bytes
	return b, nil
}

// pointer converts the address *address, which is outside Go's heap, to a pointer. Going through
// address keeps go vet quiet: it rejects unsafe.Pointer(*address), which would be wrong for Go's heap.
func pointer(address *uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(address)) }

// Free implements npu.Device.
func (d *device) Free(b npu.Buffer) {
	if b.IsNil() {
		return
	}
	d.check.OutsideCapture("free")
	d.check.Own("free", b)
	a, ok := d.blocks[b.Addr()]
	if !ok {
		panic("npu: free of a buffer that this device did not allocate")
	}
	delete(d.blocks, b.Addr())
	d.allocated[a.purpose] -= a.Bytes()
	b.SetFreed()
	C.t_free(d.t, d.d, addr(b))
}

// Allocated implements npu.Device.
func (d *device) Allocated() [npu.NumPurposes]int64 { return d.allocated }

// Upload implements npu.Device.
func (d *device) Upload(dst npu.Buffer, src []float32) {
	d.check.OutsideCapture("upload")
	d.check.Len("upload", dst, len(src))
	d.upload(addr(dst), bytesOf(src))
}

// UploadInts implements npu.Device.
func (d *device) UploadInts(dst npu.Buffer, src []int32) {
	d.check.OutsideCapture("upload")
	d.check.Buffer("upload", dst, npu.Int32, len(src))
	d.upload(addr(dst), bytesOf(src))
}

// Download implements npu.Device.
func (d *device) Download(dst []float32, src npu.Buffer) {
	d.check.OutsideCapture("download")
	d.check.Len("download", src, len(dst))
	d.download(bytesOf(dst), addr(src))
}

// DownloadInts implements npu.Device.
func (d *device) DownloadInts(dst []int32, src npu.Buffer) {
	d.check.OutsideCapture("download")
	d.check.Buffer("download", src, npu.Int32, len(dst))
	d.download(bytesOf(dst), addr(src))
}

// Copy implements npu.Device.
func (d *device) Copy(dst, src npu.Buffer) {
	d.check.Copy(dst, src)
	C.t_copy(d.t, d.d, addr(dst), addr(src), C.int64_t(src.Bytes()))
}

// Zero implements npu.Device.
func (d *device) Zero(b npu.Buffer) {
	d.check.Own("zero", b)
	C.t_zero(d.t, d.d, addr(b), C.int64_t(b.Bytes()))
}
