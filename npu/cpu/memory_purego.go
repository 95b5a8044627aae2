package cpu

import (
	"fmt"
	"unsafe"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/internal/check"
)

// alignment is the alignment of an allocation, in bytes.
const alignment = 64

type allocation struct {
	npu.Buffer
	memory  []uint64 // keeps the memory alive
	purpose npu.Purpose
}

// heap is the memory that a device has allocated.
type heap struct {
	check     *check.Device
	allocated [npu.NumPurposes]int64
	blocks    map[uintptr]allocation
}

func newHeap(c *check.Device) *heap { return &heap{check: c, blocks: map[uintptr]allocation{}} }

// Space implements npu.Device.
func (*heap) Space() *npu.Space { return npu.Host }

// Alloc implements npu.Device. No kernel takes BFloat16.
func (h *heap) Alloc(dtype npu.DType, n int, purpose npu.Purpose) (npu.Buffer, error) {
	h.check.Outside("allocation")
	if err := check.Alloc(dtype, n, purpose, pureGoName); err != nil {
		return npu.Buffer{}, err
	}
	if dtype == npu.BFloat16 {
		return npu.Buffer{}, fmt.Errorf("allocate %d values for %s on %s: type is %s, expected float32, int32 or int64", n, purpose, pureGoName, dtype)
	}
	if n == 0 {
		return npu.Buffer{}, nil
	}
	memory := make([]uint64, (n*dtype.Size()+7)/8+alignment/8-1)
	first := unsafe.Pointer(&memory[0])
	b := npu.AddressBuffer(unsafe.Add(first, -uintptr(first)%alignment), dtype, n)
	h.blocks[b.Addr()] = allocation{b, memory, purpose}
	h.allocated[purpose] += b.Bytes()
	return b, nil
}

// Free implements npu.Device.
func (h *heap) Free(b npu.Buffer) {
	if b.IsNil() {
		return
	}
	h.check.Outside("free")
	h.check.Own("free", b)
	a, ok := h.blocks[b.Addr()]
	if !ok {
		panic("npu: free of a buffer that this device did not allocate")
	}
	delete(h.blocks, b.Addr())
	h.allocated[a.purpose] -= a.Bytes()
	b.SetFreed()
}

// Allocated implements npu.Device.
func (h *heap) Allocated() [npu.NumPurposes]int64 { return h.allocated }

// Upload implements npu.Device.
func (h *heap) Upload(dst npu.Buffer, src []float32) {
	h.check.Outside("upload")
	h.check.Len("upload", dst, len(src), false)
	copy(dst.Float32s(), src)
}

// UploadInts implements npu.Device.
func (h *heap) UploadInts(dst npu.Buffer, src []int32) {
	h.check.Outside("upload")
	h.check.Buffer("upload", dst, npu.Int32, len(src), false)
	copy(dst.Int32s(), src)
}

// Download implements npu.Device.
func (h *heap) Download(dst []float32, src npu.Buffer) {
	h.check.Outside("download")
	h.check.Len("download", src, len(dst), false)
	copy(dst, src.Float32s())
}

// DownloadInts implements npu.Device.
func (h *heap) DownloadInts(dst []int32, src npu.Buffer) {
	h.check.Outside("download")
	h.check.Buffer("download", src, npu.Int32, len(dst), false)
	copy(dst, src.Int32s())
}

// Copy implements npu.Device.
func (h *heap) Copy(dst, src npu.Buffer) {
	h.check.Copy(dst, src)
	switch src.DType() {
	case npu.Int32:
		copy(dst.Int32s(), src.Int32s())
	case npu.Int64:
		copy(dst.Int64s(), src.Int64s())
	default:
		copy(dst.Float32s(), src.Float32s())
	}
}

// Zero implements npu.Device.
func (h *heap) Zero(b npu.Buffer) {
	h.check.Own("zero", b)
	switch b.DType() {
	case npu.Int32:
		clear(b.Int32s())
	case npu.Int64:
		clear(b.Int64s())
	default:
		clear(b.Float32s())
	}
}
