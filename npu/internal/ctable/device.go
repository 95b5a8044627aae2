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
	_ "github.com/easyrl/easyrl/npu/csrc" // the header above
	"github.com/easyrl/easyrl/npu/internal/check"
)

const (
	errLen   = 256
	maxCores = 1024
)

// device is an open queue of a table's device.
type device struct {
	*handle
	memory
	matrixKernels
	rowKernels
	attentionKernels
	vocabKernels
	updateKernels
}

// cores is a device whose kernels run on the cores of this machine.
type cores struct{ *device }

var (
	_ npu.Device = (*device)(nil)
	_ npu.Device = (*cores)(nil)
	_ npu.Cores  = (*cores)(nil)
)

// FromTable opens device ordinal of the easyrl_device_api at table, which must
// outlive the device. It rejects a table of another version.
func FromTable(table unsafe.Pointer, ordinal, threads int) (npu.Device, error) {
	api := (*C.easyrl_device_api)(table)
	if api == nil {
		return nil, errors.New("open device: function table is null")
	}
	if api.version != C.EASYRL_DEVICE_VERSION {
		return nil, fmt.Errorf("open device: library has version %d, expected %d", uint32(api.version), uint32(C.EASYRL_DEVICE_VERSION))
	}
	if want := uint32(unsafe.Sizeof(*api)); uint32(api.size) < want {
		return nil, fmt.Errorf("open device: library's table has %d bytes, expected at least %d", uint32(api.size), want)
	}
	if most := uint32(C.EASYRL_BFLOAT16); uint32(api.weights) > most || uint32(api.activations) > most {
		return nil, fmt.Errorf("open device: library has types %d of weights and %d of activations, expected at most %d", uint32(api.weights), uint32(api.activations), most)
	}
	if ordinal < math.MinInt32 || ordinal > math.MaxInt32 {
		return nil, fmt.Errorf("open device %d: number does not fit 32 bits", ordinal)
	}
	h, err := start(api, threads, func(threads C.int32_t, msg *C.char) C.device {
		return C.t_open(tableOf(api), C.int32_t(ordinal), threads, msg, errLen)
	})
	if err != nil {
		return nil, fmt.Errorf("open device %d: %w", ordinal, err)
	}
	space := npu.Host
	if api.host_memory == 0 {
		space = npu.NewSpace(fmt.Sprintf("%s:%d", h.name, ordinal))
	}
	return h.device(space)
}

func tableOf(api *C.easyrl_device_api) C.table { return C.table(uintptr(unsafe.Pointer(api))) }

// start calls open and makes a handle of the queue that it returns. 0 threads are all.
func start(api *C.easyrl_device_api, threads int, open func(threads C.int32_t, msg *C.char) C.device) (*handle, error) {
	t := tableOf(api)
	if threads < 0 || threads > math.MaxInt32 {
		return nil, fmt.Errorf("%d threads, expected 0 (all) or more", threads)
	}
	if threads == 0 && C.t_cores(t) != 0 {
		threads = min(runtime.GOMAXPROCS(0), maxCores)
	}
	msg := (*C.char)(C.calloc(1, errLen))
	d := open(C.int32_t(threads), msg)
	if d == 0 {
		defer C.free(unsafe.Pointer(msg))
		return nil, errors.New(C.GoString(msg))
	}
	return &handle{
		api: api, t: t, d: d, name: C.GoString(C.t_name(t, d)), err: msg,
		events: C.t_has_events(t) != 0, graphs: C.t_has_graphs(t) != 0, normLinear: C.t_has_norm_linear(t) != 0,
	}, nil
}

// device returns the device of a queue with memory in space. If it fails, it closes the queue.
func (h *handle) device(space *npu.Space) (npu.Device, error) {
	h.check = check.Device{Buffers: check.Buffers{Name: h.name, Space: space, MatrixLen: h.MatrixLen}}
	if space != npu.Host {
		h.staging = &staging{}
		if !h.grow(chunkBytes) {
			C.t_close(h.t, h.d)
			C.free(unsafe.Pointer(h.err))
			return nil, fmt.Errorf("open device %s: cannot allocate %d bytes of pinned host memory", h.name, chunkBytes)
		}
	}
	d := &device{
		handle: h, memory: memory{handle: h, blocks: map[uintptr]allocation{}},
		matrixKernels: matrixKernels{h}, rowKernels: rowKernels{h}, attentionKernels: attentionKernels{h},
		vocabKernels: vocabKernels{h}, updateKernels: updateKernels{h},
	}
	if C.t_cores(h.t) != 0 {
		return &cores{d}, nil
	}
	return d, nil
}

// Close implements npu.Device. The device must not be used afterwards.
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
	d.d, d.err, d.memory = 0, nil, memory{handle: d.handle}
	return err
}

// Threads implements npu.Cores.
func (d *cores) Threads() int { return int(C.t_threads(d.t, d.d)) }

// Limit implements npu.Cores.
func (d *cores) Limit(threads int) {
	if d.d != 0 { // not closed
		C.t_limit(d.t, d.d, C.int32_t(threads))
	}
}

// handle is an open queue and the table of its functions.
type handle struct {
	api   *C.easyrl_device_api
	t     C.table  // api
	d     C.device // 0 after Close
	name  string
	check check.Device
	err   *C.char // errLen bytes

	failure error    // the first one that Sync has not returned
	staging *staging // nil if the host can address the memory

	events, graphs, normLinear bool // whether the table has these optional functions

	// Arguments of one call.
	products  []C.product
	outputs   []C.projection
	matrices  []C.matrix
	updates   []C.update
	values    []C.values
	gradients []C.gradient
	squares   []C.easyrl_squares
}

// Info implements npu.Device.
func (h *handle) Info() npu.Info {
	return npu.Info{Name: h.name, Exact: h.api.exact != 0, Graphs: h.graphs, WeightType: npu.DType(h.api.weights), ActivationType: npu.DType(h.api.activations)}
}

// Space implements npu.Device.
func (h *handle) Space() *npu.Space { return h.check.Space }

// Fork implements npu.Device.
func (h *handle) Fork(threads int) (npu.Device, error) {
	fork, err := start(h.api, threads, func(threads C.int32_t, msg *C.char) C.device {
		return C.t_fork(h.t, h.d, threads, msg, errLen)
	})
	if err != nil {
		return nil, fmt.Errorf("fork device %s: %w", h.name, err)
	}
	return fork.device(h.check.Space)
}

// Sync implements npu.Device.
func (h *handle) Sync() error {
	h.check.Outside("wait")
	h.wait()
	err := h.failure
	h.failure = nil
	return err
}

// wait waits for the queue, keeps its failure and delivers downloads.
func (h *handle) wait() {
	if C.t_sync(h.t, h.d, h.err, errLen) != 0 {
		h.fail(fmt.Errorf("device %s: %s", h.name, C.GoString(h.err)))
	}
	h.deliver()
}

// fail keeps the first failure.
func (h *handle) fail(err error) {
	if h.failure == nil {
		h.failure = err
	}
}

// MatrixLen implements npu.Device.
func (h *handle) MatrixLen(rows, cols int) int {
	if h.staging == nil { // the layout of host memory, see npu.Matrix
		return (rows + npu.MatrixBlock - 1) / npu.MatrixBlock * npu.MatrixBlock * cols
	}
	return int(C.t_matrix_len(h.t, h.d, C.int32_t(rows), C.int32_t(cols)))
}
