//go:build cgo

// Package ctable makes an npu.Device from a table of functions that fulfils the
// contract in npu/csrc/easyrl_device.h.
package ctable

/*
#cgo CFLAGS: -std=c11
#include <stdlib.h>
#include "table.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"unsafe"

	"github.com/easyrl/easyrl/npu"
	_ "github.com/easyrl/easyrl/npu/csrc" // rebuilds this package when easyrl_device.h changes
	"github.com/easyrl/easyrl/npu/internal/check"
)

const (
	errLen   = 256  // bytes of the buffer for a C function's error message
	maxCores = 1024 // maximum number of threads that the CPU library accepts
)

// device is an open queue and the table of its functions. One goroutine at a time calls its
// methods. Other goroutines may call Fork and cores.Limit at the same time, which read only
// api, t, d, name and check.Space, which only Close changes.
type device struct {
	api      *C.easyrl_device_api
	t        C.table  // api as an integer
	d        C.device // handle of the queue, 0 after Close
	name     string
	numerics npu.Numerics
	check    check.Device
	err      *C.char // C buffer of errLen bytes for messages, freed by Close

	failure error    // first failure that Sync has not returned yet
	staging *staging // nil if the host can address the device's memory

	allocated [npu.NumPurposes]int64 // bytes that this queue has allocated and not freed
	blocks    map[uintptr]allocation // allocations that this queue has not freed, by address

	events, graphs, normLinear bool // whether the table has these optional functions

	// Argument lists, reused by each call. The C side has read them when it returns.
	products  []C.product
	outputs   []C.projection
	matrices  []C.matrix
	updates   []C.update
	values    []C.values
	gradients []C.gradient
	squares   []C.easyrl_squares
}

// cores is a device whose kernels run on the cores of this machine.
type cores struct{ *device }

var (
	_ npu.Device = (*device)(nil)
	_ npu.Device = (*cores)(nil)
	_ npu.Cores  = (*cores)(nil)
)

// FromTable opens the first device of the easyrl_device_api at table, which must outlive the
// device. It rejects a table of another version or other numerics.
func FromTable(table unsafe.Pointer, numerics npu.Numerics, threads int) (npu.Device, error) {
	api := (*C.easyrl_device_api)(table)
	if api == nil {
		return nil, errors.New("open device: function table is null")
	}
	if api.version != C.EASYRL_DEVICE_VERSION {
		return nil, fmt.Errorf("open device: library has version %d, expected %d", uint32(api.version),
			uint32(C.EASYRL_DEVICE_VERSION))
	}
	if want := uint32(unsafe.Sizeof(*api)); uint32(api.size) < want {
		return nil, fmt.Errorf("open device: library's table has %d bytes, expected at least %d",
			uint32(api.size), want)
	}
	if uint32(api._type) != uint32(numerics.Type()) {
		return nil, fmt.Errorf("open device: library's table is for type %d, expected %d (%s)", uint32(api._type),
			uint32(numerics.Type()), numerics)
	}
	d, err := start(api, threads, func(threads C.int32_t, msg *C.char) C.device {
		return C.t_open(tableOf(api), 0, threads, msg, errLen)
	})
	if err != nil {
		return nil, fmt.Errorf("open device 0: %w", err)
	}
	space := npu.Host
	if api.host_memory == 0 {
		space = npu.NewSpace(d.name + ":0")
	}
	return d.ready(space)
}

// numericsOf returns the numerics of a table that FromTable accepts.
func numericsOf(api *C.easyrl_device_api) npu.Numerics {
	if api._type == C.EASYRL_BFLOAT16 {
		return npu.BF16
	}
	return npu.FP32
}

func tableOf(api *C.easyrl_device_api) C.table { return C.table(uintptr(unsafe.Pointer(api))) }

// start calls open to open a queue and returns a device for it, which ready must complete.
// threads is the number of threads of a device of CPU cores, 0 for all. open writes its error
// message, of errLen bytes at most, to msg.
func start(api *C.easyrl_device_api, threads int, open func(threads C.int32_t, msg *C.char) C.device) (*device, error) {
	t := tableOf(api)
	if threads < 0 || threads > math.MaxInt32 {
		return nil, fmt.Errorf("%d threads, expected 0 (all) or more", threads)
	}
	if threads == 0 && C.t_cores(t) != 0 {
		threads = min(runtime.GOMAXPROCS(0), maxCores)
	}
	msg := (*C.char)(C.calloc(1, errLen)) // becomes device.err
	d := open(C.int32_t(threads), msg)
	if d == 0 {
		defer C.free(unsafe.Pointer(msg))
		return nil, errors.New(C.GoString(msg))
	}
	return &device{
		api: api, t: t, d: d, name: C.GoString(C.t_name(t, d)), numerics: numericsOf(api), err: msg,
		blocks: map[uintptr]allocation{},
		events: C.t_has_events(t) != 0, graphs: C.t_has_graphs(t) != 0, normLinear: C.t_has_norm_linear(t) != 0,
	}, nil
}

// ready completes d, whose memory is in space, and returns it as the type that implements
// npu.Cores if it runs on CPU cores. If it fails, it closes the queue.
func (d *device) ready(space *npu.Space) (npu.Device, error) {
	d.check = check.Device{Name: d.name, Space: space, Type: d.numerics.Type(), MatrixLen: d.MatrixLen}
	if space != npu.Host {
		d.staging = &staging{}
		if !d.addChunk(chunkBytes) {
			C.t_close(d.t, d.d)
			C.free(unsafe.Pointer(d.err))
			return nil, fmt.Errorf("open device %s: cannot allocate %d bytes of pinned host memory", d.name, chunkBytes)
		}
	}
	if C.t_cores(d.t) != 0 {
		return &cores{d}, nil
	}
	return d, nil
}

// Close implements npu.Device. Only Close, Limit and the methods of graphs may be called
// afterwards; they do nothing.
func (d *device) Close() error {
	if d.d == 0 {
		return nil
	}
	err := d.Sync()
	d.freeStaging()
	for _, a := range d.blocks {
		a.SetFreed()
	}
	C.t_close(d.t, d.d)
	C.free(unsafe.Pointer(d.err))
	d.d, d.err, d.allocated, d.blocks = 0, nil, [npu.NumPurposes]int64{}, nil
	return err
}

// Threads implements npu.Cores.
func (d *cores) Threads() int { return int(C.t_threads(d.t, d.d)) }

// Limit implements npu.Cores. It does nothing after Close.
func (d *cores) Limit(threads int) {
	if d.d != 0 {
		C.t_limit(d.t, d.d, C.int32_t(threads))
	}
}

// Info implements npu.Device.
func (d *device) Info() npu.Info {
	return npu.Info{
		Name: d.name, Exact: d.api.exact != 0, Graphs: d.graphs, Numerics: d.numerics,
	}
}

// Space implements npu.Device.
func (d *device) Space() *npu.Space { return d.check.Space }

// Fork implements npu.Device.
func (d *device) Fork(threads int) (npu.Device, error) {
	fork, err := start(d.api, threads, func(threads C.int32_t, msg *C.char) C.device {
		return C.t_fork(d.t, d.d, threads, msg, errLen)
	})
	if err != nil {
		return nil, fmt.Errorf("fork device %s: %w", d.name, err)
	}
	return fork.ready(d.check.Space)
}

// Sync implements npu.Device.
func (d *device) Sync() error {
	d.check.OutsideCapture("wait")
	d.wait()
	err := d.failure
	d.failure = nil
	return err
}

// wait waits for the queue, keeps its failure for Sync and completes the downloads.
func (d *device) wait() {
	if C.t_sync(d.t, d.d, d.err, errLen) != 0 {
		d.fail(fmt.Errorf("device %s: %s", d.name, C.GoString(d.err)))
	}
	d.deliver()
}

// fail keeps err for Sync unless an earlier failure is pending.
func (d *device) fail(err error) {
	if d.failure == nil {
		d.failure = err
	}
}

// MatrixLen implements npu.Device.
func (d *device) MatrixLen(rows, cols int) int {
	if d.staging == nil { // host memory has the layout that npu.Matrix documents
		return (rows + npu.MatrixBlock - 1) / npu.MatrixBlock * npu.MatrixBlock * cols
	}
	return int(C.t_matrix_len(d.t, d.d, C.int32_t(rows), C.int32_t(cols)))
}
