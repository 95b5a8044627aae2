package cpu

import (
	"unsafe"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/internal/check"
)

// alignment is the alignment of an allocation, in bytes.
const alignment = 64

// allocation is what Alloc keeps of a buffer that it returned.
type allocation struct {
	npu.Buffer
	memory  []uint64 // the buffer's memory, which its address does not keep alive
	purpose npu.Purpose
}

// Space implements npu.Device.
func (d *pureGo) Space() *npu.Space { return npu.Host }

// Alloc implements npu.Device.
func (d *pureGo) Alloc(dtype npu.DType, n int, purpose npu.Purpose) (npu.Buffer, error) {
	d.check.OutsideCapture("allocation")
	if err := check.Alloc(dtype, n, purpose, pureGoName); err != nil {
		return npu.Buffer{}, err
	}
	if n == 0 {
		return npu.Buffer{}, nil
	}
	const word = 8 // bytes of a uint64, which the memory is aligned to
	memory := make([]uint64, (n*dtype.Size()+word-1)/word+alignment/word-1)
	first := unsafe.Pointer(&memory[0])
	b := npu.AddressBuffer(unsafe.Add(first, -uintptr(first)%alignment), dtype, n)
	d.blocks[b.Addr()] = allocation{b, memory, purpose}
	d.allocated[purpose] += b.Bytes()
	return b, nil
}

// Free implements npu.Device.
func (d *pureGo) Free(b npu.Buffer) {
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
}

// Allocated implements npu.Device.
func (d *pureGo) Allocated() [npu.NumPurposes]int64 { return d.allocated }

// Upload implements npu.Device.
func (d *pureGo) Upload(dst npu.Buffer, src []float32) {
	d.check.OutsideCapture("upload")
	d.check.Len("upload", dst, len(src))
	copy(dst.Float32s(), src)
}

// UploadInts implements npu.Device.
func (d *pureGo) UploadInts(dst npu.Buffer, src []int32) {
	d.check.OutsideCapture("upload")
	d.check.Buffer("upload", dst, npu.Int32, len(src))
	copy(dst.Int32s(), src)
}

// Download implements npu.Device.
func (d *pureGo) Download(dst []float32, src npu.Buffer) {
	d.check.OutsideCapture("download")
	d.check.Len("download", src, len(dst))
	copy(dst, src.Float32s())
}

// DownloadInts implements npu.Device.
func (d *pureGo) DownloadInts(dst []int32, src npu.Buffer) {
	d.check.OutsideCapture("download")
	d.check.Buffer("download", src, npu.Int32, len(dst))
	copy(dst, src.Int32s())
}

// Copy implements npu.Device.
func (d *pureGo) Copy(dst, src npu.Buffer) {
	d.check.Copy(dst, src)
	switch src.DType() {
	case npu.Int32:
		copy(dst.Int32s(), src.Int32s())
	case npu.Int64:
		copy(dst.Int64s(), src.Int64s())
	case npu.BFloat16:
		copy(dst.BFloat16s(), src.BFloat16s())
	default:
		copy(dst.Float32s(), src.Float32s())
	}
}

// Zero implements npu.Device.
func (d *pureGo) Zero(b npu.Buffer) {
	d.check.Own("zero", b)
	switch b.DType() {
	case npu.Int32:
		clear(b.Int32s())
	case npu.Int64:
		clear(b.Int64s())
	case npu.BFloat16:
		clear(b.BFloat16s())
	default:
		clear(b.Float32s())
	}
}
