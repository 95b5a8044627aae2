//go:build cgo && unix

package cpu

/*
#include <stdint.h>

double easyrl_ceiling_fma(int32_t isa, int64_t rounds);
double easyrl_ceiling_read(int32_t isa, const float *p, int64_t n);
void easyrl_ceiling_copy(float *dst, const float *src, int64_t n);
*/
import "C"

import (
	"slices"
	"unsafe"
)

// loopsOf returns the C loops of an instruction set that this machine runs. The empty
// name selects the best.
func loopsOf(isa string) loops {
	number := C.int32_t(slices.Index(isas(), isa)) // -1 for the best
	first := func(p []float32) *C.float { return (*C.float)(unsafe.SliceData(p)) }
	return loops{
		fma:  func(rounds int) float64 { return float64(C.easyrl_ceiling_fma(number, C.int64_t(rounds))) },
		read: func(p []float32) float64 { return float64(C.easyrl_ceiling_read(number, first(p), C.int64_t(len(p)))) },
		copy: func(dst, src []float32) { C.easyrl_ceiling_copy(first(dst), first(src), C.int64_t(len(src))) },
	}
}
