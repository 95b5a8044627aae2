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

type allocation struct {
	values  []float32 // keeps the memory alive
	purpose npu.Purpose
}

// pureGo is the CPU device in pure Go. It has the layouts, the order of operations
// and the bits of the C kernels, and is written for clarity.
type pureGo struct {
	threads   int
	limit     atomic.Int64 // threads that kernels may use now
	allocated [npu.NumPurposes]int64
	blocks    map[uintptr]allocation
	err       error // the first failure since the last Sync
}

var _ npu.Device = (*pureGo)(nil)

func newPureGo(threads int) *pureGo {
	d := &pureGo{threads: threads, blocks: map[uintptr]allocation{}}
	d.Limit(threads)
	return d
}

// parallel calls task for 0 to n-1 and returns when all calls are done. It uses
// several goroutines if the device has several threads.
func (d *pureGo) parallel(n int, task func(i int)) {
	threads := int(d.limit.Load())
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

func (d *pureGo) fail(err error) {
	if d.err == nil {
		d.err = fmt.Errorf("device %s: %w", d.Name(), err)
	}
}

// Name implements npu.Device.
func (d *pureGo) Name() string { return "cpu/go" }

// Threads implements npu.Device.
func (d *pureGo) Threads() int { return d.threads }

// Limit implements npu.Device.
func (d *pureGo) Limit(threads int) { d.limit.Store(int64(min(max(1, threads), d.threads))) }

// Alloc implements npu.Device.
func (d *pureGo) Alloc(n int, purpose npu.Purpose) (npu.Buffer, error) {
	if n < 0 {
		return npu.Buffer{}, fmt.Errorf("allocate %d values for %s on %s: expected 0 or more", n, purpose, d.Name())
	}
	b := npu.HostBuffer(make([]float32, n))
	if n > 0 {
		d.blocks[b.Addr()] = allocation{b.Float32s(), purpose}
		d.allocated[purpose] += int64(n) * 4
	}
	return b, nil
}

// Free implements npu.Device.
func (d *pureGo) Free(b npu.Buffer) {
	if b.IsNil() {
		return
	}
	a, ok := d.blocks[b.Addr()]
	if !ok {
		panic("npu: free of a buffer that this device did not allocate")
	}
	delete(d.blocks, b.Addr())
	d.allocated[a.purpose] -= int64(len(a.values)) * 4
}

// Allocated implements npu.Device.
func (d *pureGo) Allocated() [npu.NumPurposes]int64 { return d.allocated }

// Sync implements npu.Device.
func (d *pureGo) Sync() error {
	err := d.err
	d.err = nil
	return err
}

// Close implements npu.Device.
func (d *pureGo) Close() error {
	err := d.Sync()
	d.blocks, d.allocated = nil, [npu.NumPurposes]int64{}
	return err
}

// Upload implements npu.Device.
func (d *pureGo) Upload(dst npu.Buffer, src []float32) {
	check.Len("upload", dst, len(src), false)
	copy(dst.Float32s(), src)
}

// Download implements npu.Device.
func (d *pureGo) Download(dst []float32, src npu.Buffer) {
	check.Len("download", src, len(dst), false)
	copy(dst, src.Float32s())
}

// Copy implements npu.Device.
func (d *pureGo) Copy(dst, src npu.Buffer) {
	check.Len("copy", dst, src.Len(), false)
	copy(dst.Float32s(), src.Float32s())
}

// Zero implements npu.Device.
func (d *pureGo) Zero(b npu.Buffer) { clear(b.Float32s()) }

// Add implements npu.Device.
func (d *pureGo) Add(y, x npu.Buffer) {
	check.Len("add", x, y.Len(), false)
	xs := x.Float32s()
	for i := range y.Float32s() {
		y.Float32s()[i] += xs[i]
	}
}
