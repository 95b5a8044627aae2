package model

import (
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
)

// Arena returns the memory of all values.
func (w *Weights) Arena() npu.Buffer { return w.arena }

// Span returns the range [from, to) that p, a piece of w.Params, covers in its tensor's buffer.
func Span(w *Weights, p *tensor.Piece) (from, to int) {
	whole := &w.Params[p.Of]
	from = offset(w, whole, p.Row) - offset(w, whole, 0)
	return from, from + length(w.dev, &p.Param)
}

// Counts returns how many values of w's Arena each of n ranks has if they divide w.Params.
func Counts(w *Weights, n int) []int {
	place := func(i int) int {
		of, row := w.Params.Cut(i, n)
		if of == len(w.Params) {
			return w.arena.Len()
		}
		return offset(w, &w.Params[of], row)
	}
	counts := make([]int, n)
	for i := range counts {
		counts[i] = place(i+1) - place(i)
	}
	return counts
}

// offset returns the place in the arena of row of p, which begins a block.
func offset(w *Weights, p *tensor.Param, row int) int {
	at := int(p.Buffer.Addr()-w.arena.Addr()) / npu.Float32.Size()
	switch {
	case row == 0:
		return at
	case p.Cols == 0:
		return at + row
	}
	return at + w.dev.MatrixLen(row, p.Cols)
}
