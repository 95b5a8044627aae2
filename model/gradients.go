package model

import (
	"fmt"

	"github.com/easyrl/easyrl/npu"
)

// LayerGradients holds the sums of one decoder block's gradients.
type LayerGradients = LayerOf[npu.Sums, npu.MatrixSums]

// Gradients are fixed-point sums of the gradients of a decoder's weights, in one
// allocation. If embeddings are tied, Head and Embed are the same sums.
type Gradients struct {
	Config *Config
	Params []npu.Sums // in the order of Weights.Params
	tensors[npu.Sums, npu.MatrixSums]
	arena npu.Buffer
	dev   npu.Device
}

// NewGradients allocates zeroed gradients.
func NewGradients(dev npu.Device, c *Config) (*Gradients, error) {
	ps := c.Params()
	total := 0
	for i := range ps {
		total += padded(length(dev, &ps[i]) + 1)
	}
	arena, err := dev.Alloc(npu.Int64, total, npu.Gradients)
	if err != nil {
		return nil, fmt.Errorf("allocate gradients: %w", err)
	}
	dev.Zero(arena)
	g := &Gradients{Config: c, Params: make([]npu.Sums, len(ps)), arena: arena, dev: dev}
	at := 0
	for i := range ps {
		n := length(dev, &ps[i]) + 1 // and the mark
		g.Params[i] = npu.NewSums(arena.Slice(at, at+n))
		at += padded(n)
	}
	next := 0
	take := func() int { next++; return next - 1 }
	g.bind(c, func() npu.Sums { return g.Params[take()] }, func() npu.MatrixSums {
		i := take()
		return npu.MatrixSums{Sums: g.Params[i], Rows: ps[i].Rows, Cols: ps[i].Cols}
	})
	return g, nil
}

// Zero clears all sums and marks.
func (g *Gradients) Zero() { g.dev.Zero(g.arena) }

// Arena returns the memory of all sums and marks.
func (g *Gradients) Arena() npu.Buffer { return g.arena }

// Whole returns the memory of the sums of parameter i, and of their mark.
func (g *Gradients) Whole(i int) npu.Buffer {
	first := int(g.Params[i].Addr()-g.arena.Addr()) / npu.Int64.Size()
	return g.arena.Slice(first, first+g.Params[i].Len()+1)
}

// Free frees the memory.
func (g *Gradients) Free() { g.dev.Free(g.arena) }

// Bytes returns the memory of the gradients.
func (g *Gradients) Bytes() int64 { return g.arena.Bytes() }

// GradientBytes returns the memory of the gradients of a decoder of shape c, apart from
// padding.
func GradientBytes(c *Config) int64 { return 8 * c.NumParams() }
