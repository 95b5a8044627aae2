// Package mma multiplies matrices with the C code of npu/csrc/mma.h, for its tests and benchmarks.
package mma
