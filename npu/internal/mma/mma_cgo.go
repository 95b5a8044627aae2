//go:build cgo && unix

package mma

/*
#cgo CFLAGS: -std=c11 -O3 -Wall
#cgo LDFLAGS: -lm
#include "declare.h"
*/
import "C"

import (
	"slices"
	"unsafe"

	_ "github.com/easyrl/easyrl/npu/csrc" // mma.h
)

// ISAs returns the instruction sets of this machine.
func ISAs() []string {
	return slices.DeleteFunc(isas(), func(isa string) bool { return C.mma_runs(number(isa)) == 0 })
}

// isas returns all instruction sets in the order of their numbers in dispatch.c.
func isas() []string { return []string{"portable", "avx2", "avx512"} }

func number(isa string) C.int32_t { return C.int32_t(slices.Index(isas(), isa)) }

// Weight is a matrix [rows, cols] of bfloat16, packed for an instruction set.
type Weight struct {
	rows, cols int
	isa        string
	panels     []uint16
}

// Pack packs values [rows, cols], which are bfloat16 already, for one of ISAs.
func Pack(isa string, values []float32, rows, cols int) Weight {
	w := Weight{rows: rows, cols: cols, isa: isa, panels: make([]uint16, (rows+31)/32*32*cols)}
	C.mma_pack(number(isa), (*C.uint16_t)(unsafe.SliceData(w.panels)), floats(values), C.int64_t(rows), C.int64_t(cols))
	return w
}

// Multiply computes y = x wᵀ or, if add is set, y += x wᵀ, where x is [m, w.cols] and y is [m, w.rows]. If
// exact is set, the code for single lanes that need care computes all of them.
func (w Weight) Multiply(y, x []float32, m int, add, exact bool) {
	flag := map[bool]C.int32_t{true: 1}
	if C.mma_product(number(w.isa), floats(y), floats(x), (*C.uint16_t)(unsafe.SliceData(w.panels)), C.int64_t(m),
		C.int64_t(w.rows), C.int64_t(w.cols), flag[add], flag[exact]) == 0 {
		panic("mma: out of memory")
	}
}

func floats(x []float32) *C.float { return (*C.float)(unsafe.SliceData(x)) }
