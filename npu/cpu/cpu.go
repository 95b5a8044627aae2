// Package cpu is the device everyone has: SIMD kernels with a fixed summation order.
//
// The kernels are written in C and compiled for AVX-512, for AVX2 and, as a portable
// build, for NEON or plain C. Opening a device chooses the fastest that the machine
// runs. A build without cgo, or for Windows, uses pure-Go kernels instead. All of
// them give the same bits for any number of threads.
package cpu

import (
	"fmt"
	"runtime"

	"github.com/easyrl/easyrl/npu"
)

// maxThreads is MAX_THREADS of device.c.
const maxThreads = 1024

// threadCount resolves 0 to the number of cores.
func threadCount(threads int) (int, error) {
	if threads < 0 || threads > maxThreads {
		return 0, fmt.Errorf("open cpu: %d threads, expected 0 (all cores) to %d", threads, maxThreads)
	}
	if threads == 0 {
		return min(runtime.GOMAXPROCS(0), maxThreads), nil
	}
	return threads, nil
}

// OpenPureGo opens the device with pure-Go kernels. Open does the same in a build
// without cgo. With cgo, Open's kernels are much faster.
func OpenPureGo(numerics npu.Numerics, threads int) (npu.Device, error) {
	n, err := threadCount(threads)
	if err != nil {
		return nil, err
	}
	return newPureGo(numerics, n), nil
}
