package cpu

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/internal/check"
)

// panelRows is the number of rows in a panel of a matrix. Panel p is
// [Cols][panelRows]; its lane l is row p·panelRows + l, zero beyond the last row.
const panelRows = 32

// pureGoName is the name of the pure-Go device.
const pureGoName = "cpu/go"

// pureGo is the CPU device in pure Go. It has the layouts, the order of operations
// and the bits of the C kernels, and is written for clarity.
type pureGo struct {
	*workers
	*failure
	*heap
	matrixKernels
	rowKernels
	attentionKernels
	vocabKernels
	updateKernels
}

var _ npu.Device = (*pureGo)(nil)

func newPureGo(threads int) *pureGo {
	w, f := newWorkers(threads), &failure{}
	return &pureGo{
		workers: w, failure: f, heap: &heap{blocks: map[uintptr]allocation{}},
		matrixKernels: matrixKernels{w}, rowKernels: rowKernels{w}, attentionKernels: attentionKernels{w},
		vocabKernels: vocabKernels{w, f},
	}
}

// Name implements npu.Device.
func (*pureGo) Name() string { return pureGoName }

// Close implements npu.Device.
func (d *pureGo) Close() error {
	err := d.Sync()
	*d.heap = heap{}
	return err
}

// workers are the threads of the device.
type workers struct {
	threads int
	limit   atomic.Int64 // threads that kernels may use now
}

func newWorkers(threads int) *workers {
	w := &workers{threads: threads}
	w.Limit(threads)
	return w
}

// Threads implements npu.Device.
func (w *workers) Threads() int { return w.threads }

// Limit implements npu.Device.
func (w *workers) Limit(threads int) { w.limit.Store(int64(min(max(1, threads), w.threads))) }

// parallel calls task for 0 to n-1 and returns when all calls are done. It uses
// several goroutines if several threads are allowed.
func (w *workers) parallel(n int, task func(i int)) {
	threads := int(w.limit.Load())
	if threads == 1 || n <= 1 {
		for i := range n {
			task(i)
		}
		return
	}
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(threads, n) {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				task(int(i))
			}
		})
	}
	group.Wait()
}

// failure keeps the first failure since the last Sync.
type failure struct{ err error }

func (f *failure) set(err error) {
	if f.err == nil {
		f.err = fmt.Errorf("device %s: %w", pureGoName, err)
	}
}

// Sync implements npu.Device.
func (f *failure) Sync() error {
	err := f.err
	f.err = nil
	return err
}

type allocation struct {
	values  []float32 // keeps the memory alive
	purpose npu.Purpose
}

// heap is the memory of the device.
type heap struct {
	allocated [npu.NumPurposes]int64
	blocks    map[uintptr]allocation
}

// Alloc implements npu.Device.
func (h *heap) Alloc(n int, purpose npu.Purpose) (npu.Buffer, error) {
	if n < 0 {
		return npu.Buffer{}, fmt.Errorf("allocate %d values for %s on %s: expected at least 0", n, purpose, pureGoName)
	}
	b := npu.HostBuffer(make([]float32, n))
	if n > 0 {
		h.blocks[b.Addr()] = allocation{b.Float32s(), purpose}
		h.allocated[purpose] += int64(n) * 4
	}
	return b, nil
}

// Free implements npu.Device.
func (h *heap) Free(b npu.Buffer) {
	if b.IsNil() {
		return
	}
	a, ok := h.blocks[b.Addr()]
	if !ok {
		panic("npu: free of a buffer that this device did not allocate")
	}
	delete(h.blocks, b.Addr())
	h.allocated[a.purpose] -= int64(len(a.values)) * 4
}

// Allocated implements npu.Device.
func (h *heap) Allocated() [npu.NumPurposes]int64 { return h.allocated }

// Upload implements npu.Device.
func (*heap) Upload(dst npu.Buffer, src []float32) {
	check.Len("upload", dst, len(src), false)
	copy(dst.Float32s(), src)
}

// Download implements npu.Device.
func (*heap) Download(dst []float32, src npu.Buffer) {
	check.Len("download", src, len(dst), false)
	copy(dst, src.Float32s())
}

// Copy implements npu.Device.
func (*heap) Copy(dst, src npu.Buffer) {
	check.Len("copy", dst, src.Len(), false)
	copy(dst.Float32s(), src.Float32s())
}

// Zero implements npu.Device.
func (*heap) Zero(b npu.Buffer) { clear(b.Float32s()) }
