package main

import (
	"fmt"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
)

// shape is the shape of a product y = x·wᵀ: x is [m, k], the weight w is [n, k], and y is [m, n].
type shape struct{ m, n, k int }

// gemmShapes returns the shapes to measure. They are the same as in peers/gemm.c.
func gemmShapes() []shape {
	return []shape{
		{256, 512, 128}, {1024, 1024, 256}, {2048, 512, 512}, {2048, 2048, 2048}, {64, 384, 128},
		{1, 2048, 2048}, {8, 2048, 2048}, {16, 2048, 2048}, {32, 2048, 2048}, {32, 512, 128},
	}
}

// products times n iterations of matrix products with packed weights, for each shape. which
// selects the shapes: "all", or those with at most 32 rows for "small". An iteration repeats
// a product until it has done about 0.5 GFLOP. The keys of the outcome are shapes, such as
// "64x384x128" for m, n and k.
func products(which string, threads, n int) (outcome, error) {
	dev, err := cpu.Open(npu.FP32, threads)
	if err != nil {
		return outcome{}, err
	}
	out := outcome{Seconds: map[string][]float64{}}
	for _, s := range gemmShapes() {
		if which == "small" && s.m > 32 {
			continue
		}
		var buffers [3]npu.Buffer
		for i, size := range []int{s.m * s.k, s.m * s.n, dev.MatrixLen(s.n, s.k)} {
			if buffers[i], err = dev.Alloc(npu.Float32, size, npu.Activations); err != nil {
				return outcome{}, err
			}
			values := buffers[i].Float32s()
			for j := range values {
				values[j] = float32(j%7) - 3
			}
		}
		w := npu.Matrix{Buffer: buffers[2], Rows: s.n, Cols: s.k}
		repeat := max(1, 500_000_000/(2*s.m*s.n*s.k))
		seconds, err := timed(n, func() error {
			for range repeat {
				dev.Linear(buffers[1], buffers[0], w, npu.Buffer{}, s.m, npu.Fresh)
			}
			return dev.Sync()
		})
		if err != nil {
			return outcome{}, err
		}
		out.Seconds[fmt.Sprintf("%dx%dx%d", s.m, s.n, s.k)] = seconds
		for _, b := range buffers {
			dev.Free(b)
		}
	}
	return out, nil
}
