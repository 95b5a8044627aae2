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
	"unsafe"

	"github.com/easyrl/easyrl/npu"
	_ "github.com/easyrl/easyrl/npu/csrc" // the header above
)

const errLen = 256

// device is an open device of a table.
type device struct {
	*handle
	memory
	matrixKernels
	rowKernels
	attentionKernels
	vocabKernels
	updateKernels
	err *C.char // errLen bytes
}

var _ npu.Device = (*device)(nil)

// FromTable opens device ordinal of the easyrl_device_api at table, which must
// outlive the device. It rejects a table of another ABI.
func FromTable(table unsafe.Pointer, ordinal, threads int) (npu.Device, error) {
	t := C.table(table)
	if t == nil {
		return nil, errors.New("open device: function table is null")
	}
	if t.abi != C.EASYRL_DEVICE_ABI {
		return nil, fmt.Errorf("open device: library has ABI %d, expected %d", uint32(t.abi), uint32(C.EASYRL_DEVICE_ABI))
	}
	if ordinal < math.MinInt32 || ordinal > math.MaxInt32 || threads < 0 || threads > math.MaxInt32 {
		return nil, fmt.Errorf("open device %d: %d threads, expected 0 (all) or more", ordinal, threads)
	}
	msg := (*C.char)(C.calloc(1, errLen))
	d := C.t_open(t, C.int32_t(ordinal), C.int32_t(threads), msg, errLen)
	if d == nil {
		defer C.free(unsafe.Pointer(msg))
		return nil, fmt.Errorf("open device %d: %s", ordinal, C.GoString(msg))
	}
	h := &handle{t: t, d: d, name: C.GoString(C.t_name(t, d))}
	return &device{
		handle: h, memory: memory{handle: h, host: t.host_memory != 0, blocks: map[uintptr]allocation{}},
		matrixKernels: matrixKernels{h}, rowKernels: rowKernels{h}, attentionKernels: attentionKernels{h},
		vocabKernels: vocabKernels{h}, updateKernels: updateKernels{h}, err: msg,
	}, nil
}

// Sync implements npu.Device.
func (d *device) Sync() error {
	if C.t_sync(d.t, d.d, d.err, errLen) == 0 {
		return nil
	}
	return fmt.Errorf("device %s: %s", d.name, C.GoString(d.err))
}

// Close implements npu.Device. The device must not be used afterwards.
func (d *device) Close() error {
	if d.d == nil {
		return nil
	}
	err := d.Sync()
	C.t_close(d.t, d.d)
	C.free(unsafe.Pointer(d.err))
	d.d, d.err, d.memory = nil, nil, memory{handle: d.handle}
	return err
}

// handle is an open device and the table of its functions.
type handle struct {
	t    C.table
	d    C.device // nil after Close
	name string
}

// Name implements npu.Device.
func (d *handle) Name() string { return d.name }

// Threads implements npu.Device.
func (d *handle) Threads() int { return int(C.t_threads(d.t, d.d)) }

// Limit implements npu.Device.
func (d *handle) Limit(threads int) {
	if d.d != nil { // not closed
		C.t_limit(d.t, d.d, C.int32_t(threads))
	}
}

// MatrixLen implements npu.Device.
func (d *handle) MatrixLen(rows, cols int) int {
	return int(C.t_matrix_len(d.t, d.d, C.int32_t(rows), C.int32_t(cols)))
}
