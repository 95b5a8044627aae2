//go:build cgo && unix

package cpu

/*
#include <stdint.h>

int32_t easyrl_copy_sum(int32_t isa, float *dst, const float *src, int64_t n, int64_t runs, uint64_t *sums);
*/
import "C"

import (
	"slices"
	"unsafe"
)

// shortRun is the bytes of a run that XXH3 sums in another way.
const shortRun = 240

// copierOf is the copier of an instruction set that this machine runs; the empty
// name is the best.
func copierOf(isa string) copier {
	number := C.int32_t(slices.Index(isas(), isa))
	return func(dst, src []float32, run int, sums []uint64) bool {
		if 4*run <= shortRun || bigEndian() {
			return copyTwin(dst, src, run, sums)
		}
		return C.easyrl_copy_sum(number, (*C.float)(unsafe.SliceData(dst)), (*C.float)(unsafe.SliceData(src)), C.int64_t(run),
			C.int64_t(len(sums)), (*C.uint64_t)(unsafe.SliceData(sums))) != 0
	}
}
