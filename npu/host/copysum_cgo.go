//go:build cgo && unix

package host

/*
#cgo CFLAGS: -std=c11 -O3 -Wall
#include <stdint.h>

int32_t easyrl_copy_sum_runs(int32_t isa);
int32_t easyrl_copy_sum(int32_t isa, float *dst, const float *src, int64_t n, int64_t runs, uint64_t *sums);
*/
import "C"

import (
	"slices"
	"unsafe"

	_ "github.com/easyrl/easyrl/npu/csrc" // xxh3.h
)

// shortRun is the longest run in bytes that XXH3 hashes with another algorithm, which
// the C code does not have.
const shortRun = 240

// compiled returns the instruction sets of this build. The index is the number in
// copysum.c.
func compiled() []string { return []string{"", "portable", "avx2", "avx512"} }

// isas returns the instruction sets that copierOf accepts on this machine.
func isas() []string {
	var names []string
	for i, name := range compiled() {
		if i > 0 && C.easyrl_copy_sum_runs(C.int32_t(i)) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// copierOf returns the copier for one of isas. The empty name selects the best.
func copierOf(isa string) copier {
	number := C.int32_t(slices.Index(compiled(), isa))
	return func(dst, src []float32, run int, sums []uint64) bool {
		if 4*run <= shortRun || bigEndian() {
			return copyGo(dst, src, run, sums)
		}
		return C.easyrl_copy_sum(number, (*C.float)(unsafe.SliceData(dst)), (*C.float)(unsafe.SliceData(src)),
			C.int64_t(run), C.int64_t(len(sums)), (*C.uint64_t)(unsafe.SliceData(sums))) != 0
	}
}
