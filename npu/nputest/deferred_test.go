package nputest_test

import (
	"slices"
	"sort"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
	"github.com/easyrl/easyrl/npu/internal/check"
	"github.com/easyrl/easyrl/npu/nputest"
)

// The suite accepts a device whose kernels run as late as the contract allows, in memory
// that the host cannot read.
func TestDeferred(t *testing.T) {
	t.Parallel()
	for name, info := range map[string]npu.Info{
		"exact": {Exact: true}, "inexact": {}, "inexact bf16": {Numerics: npu.BF16},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nputest.Run(t, func(int) (npu.Device, error) { return openDeferred(newSpace(), info.Numerics, info.Exact) })
		})
	}
}

func TestDeferredSame(t *testing.T) {
	t.Parallel()
	for _, numerics := range []npu.Numerics{npu.FP32, npu.BF16} {
		host, err := cpu.Open(numerics, 1)
		require.NoError(t, err)
		d, err := openDeferred(newSpace(), numerics, true)
		require.NoError(t, err)
		t.Run(numerics.String(), func(t *testing.T) { nputest.Same(t, host, d) })
		require.NoError(t, d.Close())
		require.NoError(t, host.Close())
	}
}

// space is the memory of a deferred device and its forks.
type space struct {
	*npu.Space
	mu     sync.Mutex
	next   uintptr
	blocks []block // by address
}

func newSpace() *space { return &space{Space: npu.NewSpace("deferred")} }

type block struct {
	addr    uintptr
	memory  []int64 // of the host's device
	purpose npu.Purpose
	bytes   int64
}

// undefined is what memory holds before it is written and after it is freed.
const undefined = 0x7fc00001_7fc00001 // NaN, twice

func (s *space) add(memory []int64, purpose npu.Purpose, bytes int64) uintptr {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := block{s.next + 64, memory, purpose, bytes}
	for i := range b.memory {
		b.memory[i] = undefined
	}
	s.next = b.addr + uintptr(len(memory)*8+63)/64*64
	s.blocks = append(s.blocks, b)
	return b.addr
}

// find returns the index of the block that holds an address.
func (s *space) find(addr uintptr) int {
	i := sort.Search(len(s.blocks), func(i int) bool { return s.blocks[i].addr > addr }) - 1
	if i < 0 || addr >= s.blocks[i].addr+uintptr(8*len(s.blocks[i].memory)) {
		panic("no memory at this address")
	}
	return i
}

// at returns the host's memory of a buffer.
func (s *space) at(b npu.Buffer) npu.Buffer {
	if b.IsNil() {
		return b
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.blocks[s.find(b.Addr())]
	return npu.AddressBuffer(unsafe.Add(unsafe.Pointer(&held.memory[0]), b.Addr()-held.addr), b.DType(), b.Len())
}

// remove returns the host's memory of a block.
func (s *space) remove(addr uintptr) npu.Buffer {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(addr)
	memory := s.blocks[i].memory
	for word := range memory {
		memory[word] = undefined
	}
	s.blocks = slices.Delete(s.blocks, i, i+1)
	return npu.HostBuffer(memory)
}

func (s *space) block(addr uintptr) block {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blocks[s.find(addr)]
}

// deferred runs the kernels of a CPU device when a call must wait for them.
type deferred struct {
	npu.Device
	space     *space
	exact     bool
	check     *check.Device
	queue     []func()
	allocated [npu.NumPurposes]int64
}

func openDeferred(s *space, numerics npu.Numerics, exact bool) (npu.Device, error) {
	host, err := cpu.Open(numerics, 1)
	if err != nil {
		return nil, err
	}
	return &deferred{
		Device: host, space: s, exact: exact,
		check: &check.Device{Name: "deferred", Space: s.Space, Type: numerics.Type(), MatrixLen: host.MatrixLen},
	}, nil
}

func (d *deferred) later(call func()) { d.queue = append(d.queue, call) }

// Record runs the queue, so that no event is needed.
func (d *deferred) Record() (npu.Event, error) {
	d.check.OutsideCapture("event")
	d.run()
	return nil, nil
}

func (d *deferred) Await(npu.Event) { d.check.OutsideCapture("event") }

// recorded is a graph of a deferred device.
type recorded struct {
	d     *deferred
	calls []func()
	used  map[*npu.Allocation]bool
}

func (d *deferred) Capture(record func()) (npu.Graph, error) {
	g := &recorded{d: d}
	g.used = d.check.CaptureUses(func() {
		queue := d.queue
		d.queue = nil
		defer func() { g.calls, d.queue = d.queue, queue }()
		record()
	})
	g.Replay()
	return g, nil
}

func (g *recorded) Replay() bool {
	g.d.check.OutsideCapture("replay")
	for a := range g.used {
		if a.Freed() {
			return false
		}
	}
	for _, call := range g.calls {
		g.d.later(call)
	}
	return true
}

func (g *recorded) Free() {}

func (d *deferred) run() {
	d.check.OutsideCapture("wait")
	for _, call := range d.queue {
		call()
	}
	d.queue = nil
}

func (d *deferred) Info() npu.Info {
	return npu.Info{Name: "deferred", Exact: d.exact, Graphs: true, Numerics: d.Device.Info().Numerics}
}

func (d *deferred) Fork(int) (npu.Device, error) {
	return openDeferred(d.space, d.Device.Info().Numerics, d.exact)
}

func (d *deferred) Sync() error {
	d.run()
	return d.Device.Sync()
}

func (d *deferred) Close() error {
	d.run()
	return d.Device.Close()
}

func (d *deferred) Space() *npu.Space { return d.space.Space }

func (d *deferred) Allocated() [npu.NumPurposes]int64 { return d.allocated }

func (d *deferred) Alloc(dtype npu.DType, n int, purpose npu.Purpose) (npu.Buffer, error) {
	d.check.OutsideCapture("allocation")
	if err := check.Alloc(dtype, n, purpose, "deferred"); err != nil || n == 0 {
		return npu.Buffer{}, err
	}
	bytes := int64(n * dtype.Size())
	memory, err := d.Device.Alloc(npu.Int64, int(bytes+7)/8, purpose)
	if err != nil {
		return npu.Buffer{}, err
	}
	d.allocated[purpose] += bytes
	return npu.DeviceBuffer(d.space.add(memory.Int64s(), purpose, bytes), dtype, n, d.space.Space), nil
}

func (d *deferred) Free(b npu.Buffer) {
	d.check.OutsideCapture("free")
	if !b.IsNil() {
		d.check.Own("free", b)
		b.SetFreed()
		held := d.space.block(b.Addr())
		d.allocated[held.purpose] -= held.bytes
		d.later(func() { d.Device.Free(d.space.remove(held.addr)) })
	}
}
