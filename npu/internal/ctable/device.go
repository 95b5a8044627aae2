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
	"github.com/easyrl/easyrl/npu/internal/check"
)

const errLen = 256

type allocation struct {
	bytes   int64
	purpose npu.Purpose
}

// device is an open device of a table.
type device struct {
	t         C.table
	d         C.device
	name      string
	host      bool
	allocated [npu.NumPurposes]int64
	blocks    map[uintptr]allocation
	err       *C.char // errLen bytes
}

var _ npu.Device = (*device)(nil)

// FromTable opens device ordinal of the easyrl_device_api at table, which must
// outlive the device. It rejects a table of another ABI.
func FromTable(table unsafe.Pointer, ordinal, threads int) (npu.Device, error) {
	t := C.table(table)
	if t == nil {
		return nil, errors.New("open device: no table of functions")
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
	return &device{
		t: t, d: d, name: C.GoString(C.t_name(t, d)), host: t.host_memory != 0,
		blocks: map[uintptr]allocation{}, err: msg,
	}, nil
}

// Name implements npu.Device.
func (d *device) Name() string { return d.name }

// Threads implements npu.Device.
func (d *device) Threads() int { return int(C.t_threads(d.t, d.d)) }

// Limit implements npu.Device.
func (d *device) Limit(threads int) {
	if d.d != nil { // not closed
		C.t_limit(d.t, d.d, C.int32_t(threads))
	}
}

// Alloc implements npu.Device.
func (d *device) Alloc(n int, purpose npu.Purpose) (npu.Buffer, error) {
	if n < 0 {
		return npu.Buffer{}, fmt.Errorf("allocate %d values for %s on %s: expected 0 or more", n, purpose, d.name)
	}
	if n == 0 {
		return npu.Buffer{}, nil
	}
	addr := uintptr(C.t_alloc(d.t, d.d, C.int64_t(n)))
	if addr == 0 {
		return npu.Buffer{}, fmt.Errorf("allocate %d values for %s on %s: out of memory", n, purpose, d.name)
	}
	d.blocks[addr] = allocation{int64(n) * 4, purpose}
	d.allocated[purpose] += int64(n) * 4
	if !d.host {
		return npu.DeviceBuffer(addr, n), nil
	}
	return npu.HostBuffer(unsafe.Slice(hostFloats(&addr), n)), nil
}

// hostFloats reads the pointer that the C side keeps at *addr. It points outside Go's
// heap.
func hostFloats(addr *uintptr) *float32 { return *(**float32)(unsafe.Pointer(addr)) }

// Free implements npu.Device.
func (d *device) Free(b npu.Buffer) {
	if b.IsNil() {
		return
	}
	a, ok := d.blocks[b.Addr()]
	if !ok {
		panic("npu: free of a buffer that this device did not allocate")
	}
	delete(d.blocks, b.Addr())
	d.allocated[a.purpose] -= a.bytes
	C.t_free(d.t, d.d, C.addr(b.Addr()))
}

// Allocated implements npu.Device.
func (d *device) Allocated() [npu.NumPurposes]int64 { return d.allocated }

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
	d.d, d.err, d.blocks = nil, nil, nil
	d.allocated = [npu.NumPurposes]int64{}
	return err
}

// Upload implements npu.Device.
func (d *device) Upload(dst npu.Buffer, src []float32) {
	check.Len("upload", dst, len(src), false)
	C.t_upload(d.t, d.d, at(dst), floats(src), C.int64_t(len(src)))
}

// Download implements npu.Device.
func (d *device) Download(dst []float32, src npu.Buffer) {
	check.Len("download", src, len(dst), false)
	C.t_download(d.t, d.d, floats(dst), at(src), C.int64_t(len(dst)))
}

// Copy implements npu.Device.
func (d *device) Copy(dst, src npu.Buffer) {
	check.Len("copy", dst, src.Len(), false)
	C.t_copy(d.t, d.d, at(dst), at(src), C.int64_t(src.Len()))
}

// Zero implements npu.Device.
func (d *device) Zero(b npu.Buffer) { C.t_zero(d.t, d.d, at(b), C.int64_t(b.Len())) }
