package model

import (
	"slices"

	"github.com/easyrl/easyrl/model/carry"
	"github.com/easyrl/easyrl/npu"
)

// blockActs holds the activations that one block keeps for its backward pass. The
// backward pass recomputes norms and the feed-forward's inner product. Without
// QKNorm, qRaw is q and kRaw is k. If no backward pass follows, x, mid and the block's output
// share one buffer.
type blockActs struct {
	x          npu.Buffer // [T, D] input
	qRaw, kRaw npu.Buffer // [T, H·d], [T, K·d] before QK norm
	q, k       npu.Buffer // [T, H·d], [T, K·d] after norm and RoPE
	v          npu.Buffer // [T, K·d]
	att        npu.Buffer // [T, H·d] output of the attention
	stats      npu.Buffer // [T, H, 2], see npu.Device.Attention
	mid        npu.Buffer // [T, D] residual stream between attention and feed-forward
	gate, up   npu.Buffer // [T, F]
}

// pass runs t rows through the blocks. Its buffers belong to the Tape or the Runner.
type pass struct {
	dev       npu.Device
	cfg       *Config
	t         int
	positions npu.Ints
	rope      npu.Buffer       // table of rotary positions
	norm      npu.Buffer       // [T, D] scratch
	inner     npu.Buffer       // [T, F] scratch
	outputs   []npu.Projection // arguments of project
	carry     *carry.Carry     // connection to the other tensor ranks; nil without
	own       own              // rows of the residual stream that this rank has
}

// layers embeds tokens and runs all layers in the activations a, which they share. attend
// computes a.att from a.q, a.k and a.v.
func (p *pass) layers(w *Weights, a *blockActs, tokens npu.Ints, attend func(layer int)) {
	p.dev.Embed(a.x, w.Embed, tokens)
	for i := range w.Layers {
		p.forward(&w.Layers[i], a, a.x, func() { attend(i) })
	}
}

// forward computes out = block(a.x). attend computes a.att from a.q, a.k and a.v.
func (p *pass) forward(w *Layer, a *blockActs, out npu.Buffer, attend func()) {
	dev, cfg, t := p.dev, p.cfg, p.t
	p.outputs = append(p.outputs[:0], npu.Projection{Y: a.qRaw, W: w.Q, Bias: w.QBias},
		npu.Projection{Y: a.kRaw, W: w.K, Bias: w.KBias},
		npu.Projection{Y: a.v, W: w.V, Bias: w.VBias})
	p.project(a.x, w.AttnNorm)
	if cfg.QKNorm {
		dev.RMSNorm(a.q, a.qRaw, w.QNorm, t*cfg.Heads, cfg.NormEps)
		dev.RMSNorm(a.k, a.kRaw, w.KNorm, t*cfg.KVHeads, cfg.NormEps)
	}
	dev.Rope(a.q, p.rope, p.positions, cfg.Heads, cfg.HeadDim, false)
	dev.Rope(a.k, p.rope, p.positions, cfg.KVHeads, cfg.HeadDim, false)
	attend()
	p.linear(a.mid, a.x, a.att, w.O)

	p.outputs = append(p.outputs[:0], npu.Projection{Y: a.gate, W: w.Gate}, npu.Projection{Y: a.up, W: w.Up})
	p.project(a.mid, w.MLPNorm)
	dev.SwiGLU(p.inner, a.gate, a.up)
	p.linear(out, a.mid, p.inner, w.Down)
}

// linear computes y = start + x wᵀ, summed over the tensor ranks. y and start may be the same.
func (p *pass) linear(y, start, x npu.Buffer, w npu.Matrix) {
	if p.carry != nil {
		p.sum(y, start, p.norm, true, w.Rows, func(y npu.Buffer, lo, hi int, add bool) {
			p.dev.Linear(y, x.Slice(lo*w.Cols, hi*w.Cols), w, npu.Buffer{}, hi-lo, add)
		})
		return
	}
	if y.Addr() != start.Addr() {
		p.dev.Copy(y, start)
	}
	p.dev.Linear(y, x, w, npu.Buffer{}, p.t, true)
}

// linearBackwardInput computes dx = Σ dy w over products, summed over the tensor ranks. scratch is
// [T, D]. It may be dx if dx has all rows.
func (p *pass) linearBackwardInput(dx, scratch npu.Buffer, products ...npu.Product) {
	if p.carry == nil {
		p.dev.LinearBackwardInput(dx, products, p.t, false)
		return
	}
	width := products[0].W.Cols
	p.sum(dx, npu.Buffer{}, scratch, false, width, func(dx npu.Buffer, lo, hi int, add bool) {
		part := slices.Clone(products)
		for i := range part {
			n := part[i].W.Rows
			part[i].DY = part[i].DY.Slice(lo*n, hi*n)
		}
		p.dev.LinearBackwardInput(dx, part, hi-lo, add)
	})
}

// blockGrads holds the scratch of a backward pass through one block, and the arguments that all
// blocks of the pass share.
type blockGrads struct {
	norm     npu.Buffer // [T, D] gradient of a norm's output
	all      npu.Buffer // [T, D] all rows of dx, if ranks divide them
	part     npu.Buffer // this rank's rows of norm's values if ranks divide them, else norm
	att      npu.Buffer // [T, H·d] gradient of blockActs.att
	q, k, v  npu.Buffer // gradients of the blockActs of the same name
	segments npu.Segments
	leaves   npu.Leaves // leaves of the T rows
	own      npu.Leaves // leaves of this rank's rows
	heads    npu.Leaves // leaves in the format for sums to which each head of the decoder contributes
}

// backward replaces the values of dx, the gradient of the block's output, by the gradient of its
// input, and adds the gradients of its weights to g. It overwrites a.gate and a.up. The chain
// of an input's gradient takes its terms by key-value head, or by block of the gate and
// up projections. Tensor ranks divide heads and blocks, so they continue the chain in that order.
func (p *pass) backward(w *Layer, g *LayerGradients, a *blockActs, s *blockGrads, dx npu.Buffer) {
	dev, cfg, t := p.dev, p.cfg, p.t
	l, none := &s.leaves, npu.Sums{}
	all := p.allRows(dx, s.all)
	dev.SwiGLU(p.inner, a.gate, a.up)
	dev.LinearBackwardWeight(g.Down, none, all, p.inner, l)
	dev.LinearBackwardInput(p.inner, []npu.Product{product(all, w.Down)}, t, false)
	dev.SwiGLUBackward(a.gate, a.up, p.inner, a.gate, a.up)
	p.normalize(a.mid, w.MLPNorm)
	dev.LinearBackwardWeight(g.Gate, none, a.gate, p.norm, l)
	dev.LinearBackwardWeight(g.Up, none, a.up, p.norm, l)
	p.linearBackwardInput(s.part, s.norm, npu.Product{DY: a.gate, W: w.Gate, Block: npu.MatrixBlock},
		npu.Product{DY: a.up, W: w.Up, Block: npu.MatrixBlock})
	dev.RMSNormBackward(dx, g.MLPNorm, s.part, a.mid, w.MLPNorm, 1, cfg.NormEps, true, &s.own)

	all = p.allRows(dx, s.all)
	dev.LinearBackwardWeight(g.O, none, all, a.att, l)
	dev.LinearBackwardInput(s.att, []npu.Product{product(all, w.O)}, t, false)
	dev.AttentionBackward(s.q, s.k, s.v, s.att, a.att, a.stats, a.q, a.k, a.v, s.segments, cfg.Attention())
	dev.Rope(s.q, p.rope, p.positions, cfg.Heads, cfg.HeadDim, true)
	dev.Rope(s.k, p.rope, p.positions, cfg.KVHeads, cfg.HeadDim, true)
	if cfg.QKNorm {
		dev.RMSNormBackward(s.q, g.QNorm, s.q, a.qRaw, w.QNorm, cfg.Heads, cfg.NormEps, false, &s.heads)
		dev.RMSNormBackward(s.k, g.KNorm, s.k, a.kRaw, w.KNorm, cfg.KVHeads, cfg.NormEps, false, &s.heads)
	}
	p.normalize(a.x, w.AttnNorm)
	dev.LinearBackwardWeight(g.Q, g.QBias, s.q, p.norm, l)
	dev.LinearBackwardWeight(g.K, g.KBias, s.k, p.norm, l)
	dev.LinearBackwardWeight(g.V, g.VBias, s.v, p.norm, l)
	p.linearBackwardInput(s.part, s.norm, npu.Product{DY: s.q, W: w.Q, Block: cfg.Heads / cfg.KVHeads * cfg.HeadDim},
		npu.Product{DY: s.k, W: w.K, Block: cfg.HeadDim}, npu.Product{DY: s.v, W: w.V, Block: cfg.HeadDim})
	dev.RMSNormBackward(dx, g.AttnNorm, s.part, a.x, w.AttnNorm, 1, cfg.NormEps, true, &s.own)
}

// product returns dy·w with all of w's rows in one block.
func product(dy npu.Buffer, w npu.Matrix) npu.Product {
	return npu.Product{DY: dy, W: w, Block: w.Rows}
}
