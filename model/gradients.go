package model

import (
	"fmt"

	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
)

// Gradients are fixed-point sums of the gradients of a decoder's weights, in one
// allocation. If embeddings are tied, Head and Embed are the same sums.
type Gradients struct {
	Config *Config
	Params []npu.Sums // in the order of Weights.Params
	tensors[npu.Sums, npu.MatrixSums]
	arena npu.Buffer // sums of all parameters, then their marks
	marks int        // index of the first mark in arena
	dev   npu.Device

	take   func(layer int) // reads a layer's sums before another reuses the memory; nil unless layers share memory
	layers tensor.Params   // shapes of Params, with their layers
}

// NewGradients allocates zeroed gradients.
func NewGradients(dev npu.Device, c *Config) (*Gradients, error) { return newGradients(dev, c, nil) }

// NewPassing allocates gradients that have memory for two layers. A backward pass calls take after
// each layer. take must have read the layer's sums when it returns.
func NewPassing(dev npu.Device, c *Config, take func(layer int)) (*Gradients, error) {
	return newGradients(dev, c, take)
}

func newGradients(dev npu.Device, c *Config, take func(layer int)) (*Gradients, error) {
	ps := c.Params()
	starts := make([]int, len(ps)) // index of each parameter's first sum in the arena
	total := 0
	for i := range ps {
		if take != nil && ps[i].Layer > 1 { // shares the memory of the layer two before it
			starts[i] = starts[i-2*layerParams(ps)]
			continue
		}
		starts[i] = total
		total += padded(length(dev, &ps[i]))
	}
	arena, err := dev.Alloc(npu.Int64, total+padded(len(ps)), npu.Gradients)
	if err != nil {
		return nil, fmt.Errorf("allocate gradients: %w", err)
	}
	dev.Zero(arena)
	g := &Gradients{Config: c, Params: make([]npu.Sums, len(ps)), arena: arena, marks: total, dev: dev,
		take: take, layers: ps}
	for i := range ps {
		start := starts[i]
		g.Params[i] = npu.Sums{
			Buffer: arena.Slice(start, start+length(dev, &ps[i])),
			Mark:   arena.Slice(total+i, total+i+1),
		}
	}
	g.bind(c, func(i int) npu.Sums { return g.Params[i] }, func(i int) npu.MatrixSums {
		return npu.MatrixSums{Sums: g.Params[i], Rows: ps[i].Rows, Cols: ps[i].Cols}
	})
	return g, nil
}

// layerParams returns the number of parameters of a layer. All layers have the same ones.
func layerParams(ps tensor.Params) (n int) {
	for i := range ps {
		if ps[i].Layer == 0 {
			n++
		}
	}
	return n
}

// begin clears a layer's sums if layers share memory, because another layer has used it.
func (g *Gradients) begin(layer int) {
	if g.take == nil {
		return
	}
	for i := range g.Params {
		if g.layers[i].Layer == layer {
			g.dev.Zero(g.Params[i].Buffer)
		}
	}
}

// end calls take for a layer whose sums are queued, if layers share memory.
func (g *Gradients) end(layer int) {
	if g.take != nil {
		g.take(layer)
	}
}

// Zero clears all sums and marks.
func (g *Gradients) Zero() { g.dev.Zero(g.arena) }

// Sums returns the memory of all sums, in the layout of Weights.Arena unless layers share memory.
func (g *Gradients) Sums() npu.Buffer { return g.arena.Slice(0, g.marks) }

// Marks returns the marks of all parameters.
func (g *Gradients) Marks() npu.Buffer { return g.arena.Slice(g.marks, g.marks+len(g.Params)) }

// Free frees the memory.
func (g *Gradients) Free() { g.dev.Free(g.arena) }

// Bytes returns the memory of the gradients.
func (g *Gradients) Bytes() int64 { return g.arena.Bytes() }

// GradientBytes returns the memory of the gradients of a decoder of shape c, apart from
// padding.
func GradientBytes(c *Config) int64 { return int64(npu.Int64.Size()) * c.NumParams() }
