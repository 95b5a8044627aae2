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
	*core
	*heap
	matrixKernels
	rowKernels
	attentionKernels
	vocabKernels
	updateKernels
}

var (
	_ npu.Device = (*pureGo)(nil)
	_ npu.Cores  = (*pureGo)(nil)
)

func newPureGo(threads int) *pureGo {
	c := &core{workers: newWorkers(threads), check: &check.Device{Buffers: check.Buffers{Name: pureGoName, Space: npu.Host, MatrixLen: matrixLen}}}
	return &pureGo{
		core: c, heap: newHeap(c.check),
		matrixKernels: matrixKernels{c}, rowKernels: rowKernels{c}, attentionKernels: attentionKernels{c},
		vocabKernels: vocabKernels{c}, updateKernels: updateKernels{c},
	}
}

// Info implements npu.Device.
func (*pureGo) Info() npu.Info { return npu.Info{Name: pureGoName, Exact: true} }

// Fork implements npu.Device. All devices of the host share its memory.
func (*pureGo) Fork(threads int) (npu.Device, error) { return OpenPureGo(threads) }

// Close implements npu.Device.
func (d *pureGo) Close() error {
	err := d.Sync()
	for _, a := range d.blocks {
		a.SetFreed()
	}
	*d.heap = heap{}
	return err
}

// core is what all kernels of a device share.
type core struct {
	*workers
	check   *check.Device
	failure error // the first since the last Sync
}

func (c *core) fail(err error) {
	if c.failure == nil {
		c.failure = fmt.Errorf("device %s: %w", pureGoName, err)
	}
}

// Sync implements npu.Device.
func (c *core) Sync() error {
	c.check.Outside("wait")
	err := c.failure
	c.failure = nil
	return err
}

// Record implements npu.Device. All calls have run.
func (c *core) Record() (npu.Event, error) {
	c.check.Outside("event")
	return nil, nil
}

// Await implements npu.Device.
func (c *core) Await(npu.Event) { c.check.Outside("event") }

// Capture implements npu.Device.
func (c *core) Capture(record func()) (npu.Graph, error) {
	c.check.Capture(record, false)
	return nil, nil
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

// Threads implements npu.Cores.
func (w *workers) Threads() int { return w.threads }

// Limit implements npu.Cores.
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
