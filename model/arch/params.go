package arch

import (
	"fmt"
	"math"
	"strings"

	"github.com/easyrl/easyrl/model/tensor"
)

// Names of the embedding's tensor and the output projection's.
const (
	EmbedName = "model.embed_tokens.weight"
	HeadName  = "lm_head.weight"
)

// Params returns the tensors of the decoder, or of the part that c describes, in arena order (see
// model.Weights). With tied embeddings and several stages, both the first and the last stage have
// the embedding.
func (c *Config) Params() tensor.Params {
	w, p := c.Whole(), c.part // shape of the whole decoder, and where c's part begins
	if p == nil {
		p = &Part{}
	}
	// Projections into the residual stream start smaller (Radford et al. 2019, section 2.3).
	residualStd := c.InitStd / math.Sqrt(2*float64(w.Layers))
	d, qd, kd := c.HiddenSize, c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	q := tensor.Whole{Rows: w.Heads * c.HeadDim, Cols: d, Row: p.Heads.From * c.HeadDim}
	k := tensor.Whole{Rows: w.KVHeads * c.HeadDim, Cols: d, Row: p.KVHeads.From * c.HeadDim}
	o := tensor.Whole{Rows: d, Cols: q.Rows, Col: q.Row}
	f := tensor.Whole{Rows: w.FFNSize, Cols: d, Row: p.FFN.From}
	down := tensor.Whole{Rows: d, Cols: w.FFNSize, Col: p.FFN.From}
	vocab := tensor.Whole{Rows: w.VocabSize, Cols: d, Row: p.Vocab.From}
	var ps tensor.Params
	layer := -1
	add := func(name string, rows, cols int, std float64, whole tensor.Whole) {
		ps = append(ps, tensor.Param{Name: name, Rows: rows, Cols: cols, Std: std, Whole: whole, Layer: layer})
	}
	vector := func(name string, whole tensor.Whole, rows int) {
		add(name, rows, 0, 0, tensor.Whole{Rows: whole.Rows, Row: whole.Row, Share: whole.Share})
	}
	copied := tensor.Whole{Rows: d, Share: tensor.Copied}
	summed := tensor.Whole{Rows: c.HeadDim, Share: tensor.Summed}
	if p.Sequence {
		copied.Share = tensor.Summed // each rank has the gradient of its rows
	}
	embed := func(name string) { add(name, c.VocabSize, d, c.InitStd, vocab) }
	if c.First() {
		embed(EmbedName)
	}
	for l := range c.Layers {
		layer = l
		name := func(s string) string { return fmt.Sprintf("model.layers.%d.%s", p.Layers.From+l, s) }
		vector(name("input_layernorm.weight"), copied, d)
		add(name("self_attn.q_proj.weight"), qd, d, c.InitStd, q)
		add(name("self_attn.k_proj.weight"), kd, d, c.InitStd, k)
		add(name("self_attn.v_proj.weight"), kd, d, c.InitStd, k)
		add(name("self_attn.o_proj.weight"), d, qd, residualStd, o)
		if c.QKVBias {
			vector(name("self_attn.q_proj.bias"), q, qd)
			vector(name("self_attn.k_proj.bias"), k, kd)
			vector(name("self_attn.v_proj.bias"), k, kd)
		}
		if c.QKNorm {
			vector(name("self_attn.q_norm.weight"), summed, c.HeadDim)
			vector(name("self_attn.k_norm.weight"), summed, c.HeadDim)
		}
		vector(name("post_attention_layernorm.weight"), copied, d)
		add(name("mlp.gate_proj.weight"), c.FFNSize, d, c.InitStd, f)
		add(name("mlp.up_proj.weight"), c.FFNSize, d, c.InitStd, f)
		add(name("mlp.down_proj.weight"), d, c.FFNSize, residualStd, down)
	}
	layer = -1
	if !c.Last() {
		return ps
	}
	vector("model.norm.weight", copied, d)
	if !c.Tied {
		embed(HeadName)
	} else if !c.First() {
		embed(EmbedName)
	}
	return ps
}

// Terms returns how many times a leaf contributes to the gradient of a parameter: once for each
// query head if the parameter is a norm of queries or keys, otherwise once. Norms of keys count
// the query heads too, which are at least as many as the key heads.
func (c *Config) Terms(name string) int {
	if strings.HasSuffix(name, ".q_norm.weight") || strings.HasSuffix(name, ".k_norm.weight") {
		return c.Whole().Heads
	}
	return 1
}
