package cpu

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/internal/check"
)

// panelRows is the number of rows in a panel of a matrix. Panel p is [Cols][panelRows]: value
// [c][l], lane l of column c, belongs to row p·panelRows + l. Lanes beyond the last row are zero.
const panelRows = npu.MatrixBlock

// foldLanes is the number of partial sums in a fold (see package npu).
const foldLanes = 16

// pureGoName is the name of the pure-Go device.
const pureGoName = "cpu/go"

// pureGo is the CPU device in pure Go. It has the layouts, the order of operations
// and the bits of the C kernels, and is written for clarity. Each call has run when it
// returns; parallel divides a kernel by outputs, never by terms of a sum.
//
// Kernels write float32(a*b) where the result seems to need no conversion. Go may otherwise
// fuse a product with an addition that follows, which rounds once instead of twice and gives
// other bits. A conversion forces the rounding (Go specification, "Floating-point operators").
// Where the C kernels do fuse, these call fma32.
type pureGo struct {
	numerics npu.Numerics
	chains   chains
	check    check.Device
	failure  error // first failure since the last Sync

	threads int
	limit   atomic.Int64 // number of threads that kernels may use, at most threads

	allocated [npu.NumPurposes]int64 // bytes allocated and not freed
	blocks    map[uintptr]allocation // allocations that are not freed, by address
}

var (
	_ npu.Device = (*pureGo)(nil)
	_ npu.Cores  = (*pureGo)(nil)
)

func newPureGo(numerics npu.Numerics, threads int) *pureGo {
	d := &pureGo{
		check:    check.Device{Name: pureGoName, Space: npu.Host, Type: numerics.Type(), MatrixLen: matrixLen},
		numerics: numerics, chains: chainsOf(numerics), threads: threads, blocks: map[uintptr]allocation{},
	}
	d.Limit(threads)
	return d
}

// Info implements npu.Device.
func (d *pureGo) Info() npu.Info {
	return npu.Info{Name: pureGoName, Exact: true, Numerics: d.numerics}
}

// Fork implements npu.Device. All devices of the host share its memory.
func (d *pureGo) Fork(threads int) (npu.Device, error) { return OpenPureGo(d.numerics, threads) }

// Close implements npu.Device.
func (d *pureGo) Close() error {
	err := d.Sync()
	for _, a := range d.blocks {
		a.SetFreed()
	}
	d.allocated, d.blocks = [npu.NumPurposes]int64{}, nil
	return err
}

// fail keeps err for Sync unless an earlier failure is pending.
func (d *pureGo) fail(err error) {
	if d.failure == nil {
		d.failure = fmt.Errorf("device %s: %w", pureGoName, err)
	}
}

// Sync implements npu.Device.
func (d *pureGo) Sync() error {
	d.check.OutsideCapture("wait")
	err := d.failure
	d.failure = nil
	return err
}

// Record implements npu.Device. It returns nil: a call has run when it returns.
func (d *pureGo) Record() (npu.Event, error) {
	d.check.OutsideCapture("event")
	return nil, nil
}

// Await implements npu.Device.
func (d *pureGo) Await(npu.Event) { d.check.OutsideCapture("event") }

// Capture implements npu.Device.
func (d *pureGo) Capture(record func()) (npu.Graph, error) {
	d.check.Capture(record)
	return nil, nil
}

// Threads implements npu.Cores.
func (d *pureGo) Threads() int { return d.threads }

// Limit implements npu.Cores.
func (d *pureGo) Limit(threads int) { d.limit.Store(int64(min(max(1, threads), d.threads))) }

// parallel calls task for 0 to n-1 and returns when all calls are done. Up to limit
// goroutines take the next index as they become free, so calls must not write common memory.
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
