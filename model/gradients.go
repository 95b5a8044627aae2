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
	marks int // place of the marks in arena
	dev   npu.Device
}

// NewGradients allocates zeroed gradients.
func NewGradients(dev npu.Device, c *Config) (*Gradients, error) {
	ps := c.Params()
	total := 0
	for i := range ps {
		total += padded(length(dev, &ps[i]))
	}
	arena, err := dev.Alloc(npu.Int64, total+padded(len(ps)), npu.Gradients)
	if err != nil {
		return nil, fmt.Errorf("allocate gradients: %w", err)
	}
	dev.Zero(arena)
	g := &Gradients{Config: c, Params: make([]npu.Sums, len(ps)), arena: arena, marks: total, dev: dev}
	at := 0
	for i := range ps {
		n := length(dev, &ps[i])
		g.Params[i] = npu.Sums{Buffer: arena.Slice(at, at+n), Mark: arena.Slice(total+i, total+i+1)}
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

// Sums returns the memory of all sums, in the layout of Weights.Arena.
func (g *Gradients) Sums() npu.Buffer { return g.arena.Slice(0, g.marks) }

// Marks returns the marks of all parameters.
func (g *Gradients) Marks() npu.Buffer { return g.arena.Slice(g.marks, g.marks+len(g.Params)) }

// Free frees the memory.
func (g *Gradients) Free() { g.dev.Free(g.arena) }

// Bytes returns the memory of the gradients.
func (g *Gradients) Bytes() int64 { return g.arena.Bytes() }

// GradientBytes returns the memory of the gradients of a decoder of shape c, apart from
// padding.
func GradientBytes(c *Config) int64 { return 8 * c.NumParams() }
