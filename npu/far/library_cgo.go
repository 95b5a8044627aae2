//go:build cgo && unix

package far

/*
#cgo CFLAGS: -std=c11
#cgo linux LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

static void read_counters(void *entry, int64_t *values) { ((void (*)(int64_t *))entry)(values); }
static void break_pack(void *entry, int64_t pack) { ((void (*)(int64_t))entry)(pack); }
static void reset_counters(void *entry) { ((void (*)(void))entry)(); }
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// Read returns the counters of the library at a path that Library returned.
func Read(lib string) Counters {
	var v [8]C.int64_t
	C.read_counters(symbol(lib, "easyrl_far_counters"), &v[0])
	return Counters{ // in the order of the enum in far.h
		Waits: int64(v[0]), Uploads: int64(v[1]), Downloads: int64(v[2]), BytesUp: int64(v[3]), BytesDown: int64(v[4]),
		Kernels: int64(v[5]), Captures: int64(v[6]), Replays: int64(v[7]),
	}
}

// Use returns the memory in use by the library's devices.
func Use(lib string) Memory {
	var v [3]C.int64_t
	C.read_counters(symbol(lib, "easyrl_far_memory"), &v[0])
	return Memory{Live: int64(v[0]), Peak: int64(v[1]), Packs: int64(v[2])}
}

// Break makes the packing of one matrix fail: the pack-th after a Reset, counted from 1.
func Break(lib string, pack int64) { C.break_pack(symbol(lib, "easyrl_far_break"), C.int64_t(pack)) }

// Reset sets the counters of the library to 0.
func Reset(lib string) { C.reset_counters(symbol(lib, "easyrl_far_reset")) }

// symbol returns the address of a function of the library. It never unloads the library, so the
// address stays valid. It panics if there is no such library or function.
func symbol(lib, name string) unsafe.Pointer {
	path, entry := C.CString(lib), C.CString(name)
	defer C.free(unsafe.Pointer(path))
	defer C.free(unsafe.Pointer(entry))
	handle := C.dlopen(path, C.RTLD_NOW|C.RTLD_LOCAL)
	if handle == nil {
		panic(fmt.Sprintf("far: cannot load %s", lib))
	}
	f := C.dlsym(handle, entry)
	if f == nil {
		panic(fmt.Sprintf("far: %s has no symbol %s", lib, name))
	}
	return f
}
