//go:build cgo && unix

package device

/*
#cgo CFLAGS: -std=c11
#cgo linux LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

static const void *call_entry(void *entry, uint32_t type) { return ((const void *(*)(uint32_t))entry)(type); }
*/
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/internal/ctable"
)

// symbol is the function that returns a library's easyrl_device_api, the table of functions
// that npu/csrc/easyrl_device.h declares. Its name is prefix and the version of the table.
const (
	symbol  = "easyrl_device_api_v5"
	prefix  = "easyrl_device_api_v"
	version = 5
)

// openLibrary loads the library at path and opens its first device. The library stays loaded
// until the process ends, because its own threads may outlive a device. threads is the number
// of threads of a device of CPU cores, 0 for all; accelerators ignore it.
func openLibrary(path string, numerics npu.Numerics, threads int) (npu.Device, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("open device library: %w", err)
	}
	if err := filetype.Check(path); err != nil {
		return nil, fmt.Errorf("open device library: %w", err)
	}
	table, err := load(path, numerics)
	if err != nil {
		return nil, fmt.Errorf("open device library %s: %w", path, err)
	}
	d, err := ctable.FromTable(table, numerics, threads)
	if err != nil {
		return nil, fmt.Errorf("device library %s: %w", path, err)
	}
	return d, nil
}

// load returns the library's table of functions for numerics.
func load(path string, numerics npu.Numerics) (unsafe.Pointer, error) {
	// dlerror's message belongs to the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	lib := C.dlopen(name, C.RTLD_NOW|C.RTLD_LOCAL)
	if lib == nil {
		return nil, fmt.Errorf("%s", C.GoString(C.dlerror()))
	}
	entry := find(lib, symbol)
	if entry == nil {
		defer C.dlclose(lib)
		for older := version - 1; older > 0; older-- {
			if find(lib, fmt.Sprint(prefix, older)) != nil {
				return nil, fmt.Errorf("library has version %d, expected %d", older, version)
			}
		}
		return nil, fmt.Errorf("no symbol %s, expected a library built against easyrl_device.h", symbol)
	}
	table := C.call_entry(entry, C.uint32_t(numerics.Type()))
	if table == nil {
		return nil, fmt.Errorf("library lacks numerics %q", numerics)
	}
	return table, nil
}

// find returns the address of a library's symbol, nil if it has none.
func find(lib unsafe.Pointer, symbol string) unsafe.Pointer {
	name := C.CString(symbol)
	defer C.free(unsafe.Pointer(name))
	return C.dlsym(lib, name)
}
