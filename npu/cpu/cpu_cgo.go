//go:build cgo && unix

package cpu

/*
#cgo CFLAGS: -std=c11 -O3 -Wall
#cgo LDFLAGS: -lpthread -lm
#include "../csrc/easyrl_device.h"

const easyrl_device_api *easyrl_cpu_table(int32_t isa);
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/easyrl/easyrl/npu"
	_ "github.com/easyrl/easyrl/npu/csrc" // the kernels' headers
	"github.com/easyrl/easyrl/npu/internal/ctable"
)

// isas returns the instruction sets in the order of their numbers in device.c. The first, "", is
// the best of this machine. A build for another architecture lacks some.
func isas() []string { return []string{"", "portable", "avx2", "avx512"} }

// Open opens the device with the best instruction set of this machine on the given
// number of threads, 0 for all cores.
func Open(threads int) (npu.Device, error) { return OpenISA("", threads) }

// ISAs returns the instruction sets that OpenISA accepts on this machine.
func ISAs() []string {
	var names []string
	for i, name := range isas() {
		if i > 0 && C.easyrl_cpu_table(C.int32_t(i)) != nil {
			names = append(names, name)
		}
	}
	return names
}

// OpenISA opens the device with one of ISAs. The empty name selects the best.
func OpenISA(isa string, threads int) (npu.Device, error) {
	n, err := threadCount(threads)
	if err != nil {
		return nil, err
	}
	for i, name := range isas() {
		if name != isa {
			continue
		}
		if table := C.easyrl_cpu_table(C.int32_t(i)); table != nil {
			return ctable.FromTable(unsafe.Pointer(table), n)
		}
	}
	return nil, fmt.Errorf("open cpu: instruction set %q, expected one of %q", isa, ISAs())
}
