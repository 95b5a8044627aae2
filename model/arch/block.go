package arch

import (
	"fmt"
	"math"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/attention/cache"
	"github.com/easyrl/easyrl/attention/rope"
	"github.com/easyrl/easyrl/attention/sublayer"
	"github.com/easyrl/easyrl/model/layer"
	"github.com/easyrl/easyrl/model/tensor"
)

// Names of the embedding's tensor and the output projection's.
const (
	EmbedName = "model.embed_tokens.weight"
	HeadName  = "lm_head.weight"
)

// Block returns the sublayers of each layer, in the order of a forward pass. If c describes a part of a decoder,
// they are the rank's parts.
func (c *Config) Block() []layer.Sublayer { return []layer.Sublayer{c.attention(), c.mlp()} }

func (c *Config) attention() sublayer.Attention {
	w := c.Whole()
	a := sublayer.Attention{Width: w.HiddenSize, Heads: w.Heads, KVHeads: w.KVHeads, Dim: w.HeadDim,
		Part: layer.Range{To: w.KVHeads}, Bias: w.QKVBias, Norm: w.QKNorm, Std: w.InitStd, ResidualStd: w.residualStd(),
		Rope: rope.Table{Theta: w.RopeTheta, Scaling: w.RopeScaling, Dim: w.HeadDim, Context: w.MaxPositions}}
	if p := c.part; p != nil {
		a = a.Divide(p.Mesh.TP, p.At.TP, p.Sequence)
	}
	return a
}

func (c *Config) mlp() layer.MLP {
	w := c.Whole()
	m := layer.MLP{Width: w.HiddenSize, Size: w.FFNSize, Part: layer.Range{To: w.FFNSize}, Std: w.InitStd,
		ResidualStd: w.residualStd()}
	if p := c.part; p != nil {
		m = m.Divide(p.Mesh.TP, p.At.TP, p.Sequence)
	}
	return m
}

// residualStd returns the standard deviation of projections into the residual stream, which start smaller than
// others (Radford et al. 2019, section 2.3).
func (c *Config) residualStd() float64 { return c.InitStd / math.Sqrt(2*float64(c.Layers)) }

// Head returns the head, or the part of it that c describes.
func (c *Config) Head() layer.Head {
	h := layer.Head{Width: c.HiddenSize, Vocab: c.Whole().VocabSize, Part: layer.Range{To: c.VocabSize},
		Largest: c.VocabSize, Std: c.InitStd}
	if p := c.part; p != nil {
		h.Part, h.Largest, h.Sequence = p.Vocab, layer.Blocks(h.Vocab, p.Mesh.TP, 0).Len(), p.Sequence
	}
	switch {
	case !c.Tied:
		h.Name = HeadName
	case !c.First():
		h.Name = EmbedName
	}
	return h
}

// Params returns the tensors of the decoder, or of the part that c describes, in arena order (see
// model.Weights). With tied embeddings and several stages, both the first and the last stage have
// the embedding.
func (c *Config) Params() tensor.Params {
	p := c.part
	if p == nil {
		p = &Part{}
	}
	var ps tensor.Params
	add := func(layer int, prefix string, params ...tensor.Param) {
		for _, param := range params {
			param.Name, param.Layer = prefix+param.Name, layer
			ps = append(ps, param)
		}
	}
	head := c.Head()
	if c.First() {
		add(-1, "", layer.VocabParam(EmbedName, head.Vocab, head.Width, head.Part, head.Std))
	}
	block := c.Block()
	for l := range c.Layers {
		for _, s := range block {
			add(l, fmt.Sprintf("model.layers.%d.", p.Layers.From+l), s.Params()...)
		}
	}
	if c.Last() {
		add(-1, "", head.Params()...)
	}
	return ps
}

// NumParams returns the number of weights. Tied embeddings count once.
func (c *Config) NumParams() int64 {
	var n int64
	for _, p := range c.Params() {
		n += int64(p.Rows) * int64(max(p.Cols, 1))
	}
	return n
}

// FLOPs returns the number of floating-point operations of the matrix products and the attention
// of a forward pass. A multiply-add counts as two. rows is the number of tokens, targets the number
// of predicted tokens, and keys the number of keys that all rows together attend to.
func (c *Config) FLOPs(rows, targets int, keys int64) float64 {
	return float64(float64(c.Layers)*c.layerFLOPs(rows, keys)) + c.Head().FLOPs(targets)
}

// layerFLOPs returns the operations of one layer.
func (c *Config) layerFLOPs(rows int, keys int64) float64 {
	sum := 0.0
	for _, s := range c.Block() {
		sum += s.FLOPs(rows, keys)
	}
	return sum
}

// TrainFLOPs returns the floating-point operations of a forward and a backward pass
// over l, counted as three forward passes.
func (c *Config) TrainFLOPs(l *attention.Layout) float64 {
	keys := int64(l.Rows()) // a row attends to itself and to all earlier positions
	for _, p := range l.Positions {
		keys += int64(p)
	}
	return 3 * c.FLOPs(l.Rows(), len(l.Targets), keys)
}

// Cache returns the shape of a paged cache of keys and values. positions is the maximum length of a
// sequence.
func (c *Config) Cache(pages, sequences, positions int) cache.Shape {
	return c.attention().Cache(c.Layers, pages, sequences, positions)
}
