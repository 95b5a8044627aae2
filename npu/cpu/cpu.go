// Package cpu is the device everyone has: SIMD kernels with a fixed summation
// order.
//
// The kernels are C, compiled in for AVX-512, AVX2 and, as a portable build,
// NEON or plain C; the fastest that the machine runs is chosen when a device is
// opened. A build without cgo, or for Windows, has pure-Go kernels instead.
// All of them give the same bits, for any number of threads.
package cpu

import (
	"fmt"
	"runtime"

	"github.com/easyrl/easyrl/npu"
)

const maxThreads = 1024

// threadCount resolves 0, which means all cores.
func threadCount(threads int) (int, error) {
	if threads < 0 || threads > maxThreads {
		return 0, fmt.Errorf("open cpu: %d threads, expected 0 (all cores) to %d", threads, maxThreads)
	}
	if threads == 0 {
		return min(runtime.GOMAXPROCS(0), maxThreads), nil
	}
	return threads, nil
}

// OpenPureGo opens the device in pure Go. It is what Open gives in a build
// without cgo, and slower by far where there is a choice.
func OpenPureGo(threads int) (npu.Device, error) {
	n, err := threadCount(threads)
	if err != nil {
		return nil, err
	}
	return newPureGo(n), nil
}
