//go:build cgo && unix

package cpu

/*
#cgo CFLAGS: -std=c11 -O3 -Wall
#cgo LDFLAGS: -lpthread -lm
#include "../csrc/easyrl_device.h"

const easyrl_device_api *easyrl_cpu_table(int32_t isa, easyrl_dtype type);
*/
import "C"

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/easyrl/easyrl/npu"
	_ "github.com/easyrl/easyrl/npu/csrc" // the kernels' headers
	"github.com/easyrl/easyrl/npu/internal/ctable"
)

// isas returns the instruction sets by their numbers in device.c, in ascending order of speed. A build for another
// architecture lacks some.
func isas() []string { return []string{"portable", "avx2", "avx512"} }

// Open opens the device with the best instruction set of this machine on the given
// number of threads, 0 for all cores.
func Open(numerics npu.Numerics, threads int) (npu.Device, error) {
	return OpenISA("", numerics, threads)
}

// ISAs returns the instruction sets that OpenISA accepts on this machine.
func ISAs() []string {
	var names []string
	for i, name := range isas() {
		if C.easyrl_cpu_table(C.int32_t(i), C.EASYRL_FLOAT32) != nil {
			names = append(names, name)
		}
	}
	return names
}

// OpenISA opens the device with one of ISAs. The empty name selects the best.
func OpenISA(isa string, numerics npu.Numerics, threads int) (npu.Device, error) {
	n, err := threadCount(threads)
	if err != nil {
		return nil, err
	}
	for i, name := range slices.Backward(isas()) {
		if isa != "" && isa != name {
			continue
		}
		if table := C.easyrl_cpu_table(C.int32_t(i), C.easyrl_dtype(numerics.Type())); table != nil {
			return ctable.FromTable(unsafe.Pointer(table), numerics, n)
		}
	}
	return nil, fmt.Errorf("open cpu: instruction set %q, expected one of %q", isa, ISAs())
}
