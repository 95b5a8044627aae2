// Package sublayer is the attention of a decoder block: its parameters, activations, forward and backward.
package sublayer

import (
	"github.com/easyrl/easyrl/attention/cache"
	"github.com/easyrl/easyrl/attention/rope"
	"github.com/easyrl/easyrl/model/layer"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
)

// Attention is grouped-query attention (Ainslie et al. 2023) with rotary positions: queries, keys and values are
// projections of n = norm(x), with an optional bias and an optional norm of each query and key head, and
// out = x + o(attention). Heads are H query and K key-value heads of width d. A tensor rank holds all query heads
// of its key-value heads, so ranks need no keys or values of each other.
type Attention struct {
	Width            int         // D
	Heads, KVHeads   int         // of the complete decoder
	Dim              int         // d
	Part             layer.Range // this rank's key-value heads
	Bias, Norm       bool
	Std, ResidualStd float64
	Sequence         bool // see layer.NormParam
	Rope             rope.Table
}

var _ layer.Sublayer = Attention{}

// Divide returns the part of a, a complete sublayer, that a tensor rank holds.
func (a Attention) Divide(ranks, rank int, sequence bool) Attention {
	a.Part = layer.Even(a.KVHeads, ranks, rank)
	a.Sequence = sequence
	return a
}

// MaxRanks implements layer.Sublayer.
func (a Attention) MaxRanks() (int, string) {
	return a.KVHeads, "key-value heads (a rank holds all queries of a key-value head)"
}

// group returns the number of query heads of a key-value head.
func (a *Attention) group() int { return a.Heads / a.KVHeads }

// Shape returns the shape of this rank's heads.
func (a Attention) Shape() npu.Heads {
	return npu.Heads{Q: a.Part.Len() * a.group(), KV: a.Part.Len(), Dim: a.Dim}
}

// Cache returns the shape of a paged cache for the keys and values of this rank's heads. positions is the maximum
// length of a sequence.
func (a Attention) Cache(layers, pages, sequences, positions int) cache.Shape {
	return cache.Shape{Layers: layers, Heads: a.Shape(), Pages: pages, Sequences: sequences, Positions: positions}
}

// Params implements layer.Sublayer.
func (a Attention) Params() tensor.Params {
	h := a.Shape()
	qd, kd := h.Q*h.Dim, h.KV*h.Dim
	q := tensor.Whole{Rows: a.Heads * a.Dim, Cols: a.Width, Row: a.Part.From * a.group() * a.Dim}
	k := tensor.Whole{Rows: a.KVHeads * a.Dim, Cols: a.Width, Row: a.Part.From * a.Dim}
	o := tensor.Whole{Rows: a.Width, Cols: q.Rows, Col: q.Row}
	ps := tensor.Params{
		layer.NormParam("input_layernorm.weight", a.Width, a.Sequence),
		{Name: "self_attn.q_proj.weight", Rows: qd, Cols: a.Width, Std: a.Std, Whole: q},
		{Name: "self_attn.k_proj.weight", Rows: kd, Cols: a.Width, Std: a.Std, Whole: k},
		{Name: "self_attn.v_proj.weight", Rows: kd, Cols: a.Width, Std: a.Std, Whole: k},
		{Name: "self_attn.o_proj.weight", Rows: a.Width, Cols: qd, Std: a.ResidualStd, Whole: o},
	}
	if a.Bias {
		bias := func(name string, rows int, w tensor.Whole) tensor.Param {
			return tensor.Param{Name: name, Rows: rows, Whole: tensor.Whole{Rows: w.Rows, Row: w.Row}}
		}
		ps = append(ps, bias("self_attn.q_proj.bias", qd, q), bias("self_attn.k_proj.bias", kd, k),
			bias("self_attn.v_proj.bias", kd, k))
	}
	if a.Norm {
		// Each query head contributes to the gradient of q_norm. There are at most as many key heads for k_norm.
		norm := tensor.Param{Rows: a.Dim, Whole: tensor.Whole{Rows: a.Dim, Share: tensor.Summed}, Terms: a.Heads}
		for _, name := range []string{"self_attn.q_norm.weight", "self_attn.k_norm.weight"} {
			norm.Name = name
			ps = append(ps, norm)
		}
	}
	return ps
}

// tensors are the Tensors of an Attention by name. Biases and norms of heads are zero if the decoder has none.
type tensors[Vec, Mat any] struct {
	norm                Vec // [D]
	q, k, v, o          Mat
	qBias, kBias, vBias Vec
	qNorm, kNorm        Vec // [d]
}

func named[Vec, Mat any](a *Attention, t layer.Tensors[Vec, Mat]) tensors[Vec, Mat] {
	n := tensors[Vec, Mat]{norm: t.Vectors[0], q: t.Matrices[0], k: t.Matrices[1], v: t.Matrices[2], o: t.Matrices[3]}
	rest := t.Vectors[1:]
	if a.Bias {
		n.qBias, n.kBias, n.vBias = rest[0], rest[1], rest[2]
		rest = rest[3:]
	}
	if a.Norm {
		n.qNorm, n.kNorm = rest[0], rest[1]
	}
	return n
}

// FLOPs implements layer.Sublayer.
func (a Attention) FLOPs(rows int, keys int64) float64 {
	h := a.Shape()
	qd, kd := h.Q*h.Dim, h.KV*h.Dim
	return float64(2*float64(rows)*float64(a.Width*(2*qd+2*kd))) + float64(4*float64(keys)*float64(qd))
}

// NewBranch implements layer.Sublayer.
func (a Attention) NewBranch(dev npu.Device) layer.Branch { return &branch{Attention: a, dev: dev} }

// branch keeps the activations of each layer that the backward pass needs. The backward pass recomputes the norm
// of x.
type branch struct {
	Attention
	dev   npu.Device
	table npu.Buffer // rotary positions
	acts  []acts     // by layer, or one for all
	grads acts       // gradients of acts, shared by all layers; only those of q, k, v and out
}

// acts are the activations of a layer. Without Norm, qRaw is q and kRaw is k.
type acts struct {
	qRaw, kRaw npu.Buffer // [T, H·d], [T, K·d] before the heads' norm
	q, k       npu.Buffer // after norm and rotary positions
	v          npu.Buffer // [T, K·d]
	out        npu.Buffer // [T, H·d] output of the attention
	stats      npu.Buffer // [T, H, 2], see npu.Device.Attention; none if no backward pass follows
}

// Prepare makes the table of rotary positions cover position last.
func (b *branch) Prepare(last int32) (err error) {
	b.table, err = b.Rope.Grow(b.dev, last)
	return err
}

// Free frees the table of rotary positions.
func (b *branch) Free() { b.Rope.Free(b.dev) }

// Carve implements layer.Branch.
func (b *branch) Carve(room layer.Room) {
	h := b.Shape()
	qd, kd := room.Rows*h.Q*h.Dim, room.Rows*h.KV*h.Dim
	b.acts = b.acts[:0]
	for range room.Layers {
		a := acts{q: room.Activations(qd), k: room.Activations(kd), v: room.Activations(kd), out: room.Activations(qd)}
		a.qRaw, a.kRaw = a.q, a.k
		if room.Backward {
			a.stats = room.Take(npu.Float32, room.Rows*h.Q*2)
			if b.Norm {
				a.qRaw, a.kRaw = room.Activations(qd), room.Activations(kd)
			}
		}
		b.acts = append(b.acts, a)
	}
	if room.Backward {
		b.grads = acts{out: room.Activations(qd), q: room.Activations(qd), k: room.Activations(kd),
			v: room.Activations(kd)}
	}
}

// Forward implements layer.Branch.
func (b *branch) Forward(p *layer.Pass, index int, weights layer.Weights, x, out npu.Buffer) {
	w, a, h := named(&b.Attention, weights), &b.acts[index%len(b.acts)], b.Shape()
	p.Project(x, w.norm, npu.Projection{Y: a.qRaw, W: w.q, Bias: w.qBias},
		npu.Projection{Y: a.kRaw, W: w.k, Bias: w.kBias}, npu.Projection{Y: a.v, W: w.v, Bias: w.vBias})
	if b.Norm {
		p.Dev.RMSNorm(a.q, a.qRaw, w.qNorm, p.Rows*h.Q, p.Eps)
		p.Dev.RMSNorm(a.k, a.kRaw, w.kNorm, p.Rows*h.KV, p.Eps)
	}
	p.Dev.Rope(a.q, b.table, p.Positions, h.Q, h.Dim, false)
	p.Dev.Rope(a.k, b.table, p.Positions, h.KV, h.Dim, false)
	b.attend(p, index, a, h)
	p.Linear(out, x, a.out, w.o)
}

// attend computes a.out. If there is a cache, it adds the rows' keys and values to it, and the rows attend to it.
func (b *branch) attend(p *layer.Pass, index int, a *acts, h npu.Heads) {
	if c := p.Cache; c != nil {
		p.Dev.CacheWrite(c.K[index], c.V[index], a.k, a.v, c.Slots, h)
		p.Dev.AttentionCached(a.out, a.q, c.K[index], c.V[index], c.Tables, h)
		return
	}
	p.Dev.Attention(a.out, a.stats, a.q, a.k, a.v, p.Segments, h)
}

// Backward implements layer.Branch.
func (b *branch) Backward(
	p *layer.Pass, index int, weights layer.Weights, gradients layer.Gradients, x, dx npu.Buffer,
) {
	w, g := named(&b.Attention, weights), named(&b.Attention, gradients)
	a, d, h := &b.acts[index%len(b.acts)], &b.grads, b.Shape()
	l, heads, noBias := &p.Gradients.Leaves, &p.Gradients.Heads, npu.Sums{}
	all := p.AllRows(dx)
	p.Dev.LinearBackwardWeight(g.o, noBias, all, a.out, l)
	p.Dev.LinearBackwardInput(d.out, []npu.Product{layer.Product(all, w.o)}, p.Rows, false)
	p.Dev.AttentionBackward(d.q, d.k, d.v, d.out, a.out, a.stats, a.q, a.k, a.v, p.Segments, h)
	p.Dev.Rope(d.q, b.table, p.Positions, h.Q, h.Dim, true)
	p.Dev.Rope(d.k, b.table, p.Positions, h.KV, h.Dim, true)
	if b.Norm {
		p.Dev.RMSNormBackward(d.q, g.qNorm, d.q, a.qRaw, w.qNorm, h.Q, p.Eps, false, heads)
		p.Dev.RMSNormBackward(d.k, g.kNorm, d.k, a.kRaw, w.kNorm, h.KV, p.Eps, false, heads)
	}
	p.Normalize(x, w.norm)
	p.Dev.LinearBackwardWeight(g.q, g.qBias, d.q, p.Norm, l)
	p.Dev.LinearBackwardWeight(g.k, g.kBias, d.k, p.Norm, l)
	p.Dev.LinearBackwardWeight(g.v, g.vBias, d.v, p.Norm, l)
	p.NormBackward(dx, g.norm, x, w.norm, npu.Product{DY: d.q, W: w.q, Block: b.group() * h.Dim},
		npu.Product{DY: d.k, W: w.k, Block: h.Dim}, npu.Product{DY: d.v, W: w.v, Block: h.Dim})
}
