//go:build !cgo || !unix

package cpu

import (
	"fmt"

	"github.com/easyrl/easyrl/npu"
)

// Open opens the device with pure-Go kernels on the given number of threads, 0 for
// all cores.
func Open(numerics npu.Numerics, threads int) (npu.Device, error) {
	return OpenPureGo(numerics, threads)
}

// ISAs returns the instruction sets that OpenISA accepts: none without cgo.
func ISAs() []string { return nil }

// OpenISA fails: a build without cgo has no SIMD kernels.
func OpenISA(isa string, _ npu.Numerics, _ int) (npu.Device, error) {
	return nil, fmt.Errorf("open cpu: instruction set %q, expected a build with cgo", isa)
}
