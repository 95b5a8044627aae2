package layer

import (
	"github.com/easyrl/easyrl/model/carry"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
)

// Head is a language model's head. It normalizes the rows of the residual stream that predict a token and
// projects them to logits. Tensor ranks divide the vocabulary in blocks of npu.MatrixBlock.
type Head struct {
	Width    int    // D
	Vocab    int    // V
	Part     Range  // this rank's tokens
	Largest  int    // number of tokens in the largest part of a tensor rank
	Name     string // of the projection's tensor; empty if the rank shares its embedding's
	Std      float64
	Sequence bool // see NormParam
}

// Params returns the parameters, without values: the norm's and, with Name, the projection's.
func (h Head) Params() tensor.Params {
	ps := tensor.Params{NormParam("model.norm.weight", h.Width, h.Sequence)}
	if h.Name != "" {
		ps = append(ps, VocabParam(h.Name, h.Vocab, h.Width, h.Part, h.Std))
	}
	return ps
}

// VocabParam returns a matrix with a row for each token of a part of the vocabulary.
func VocabParam(name string, vocab, width int, part Range, std float64) tensor.Param {
	return tensor.Param{Name: name, Rows: part.Len(), Cols: width, Std: std,
		Whole: tensor.Whole{Rows: vocab, Cols: width, Row: part.From}}
}

// FLOPs returns the number of floating-point operations of a forward pass.
func (h Head) FLOPs(targets int) float64 {
	return float64(2 * float64(targets) * float64(h.Width) * float64(h.Part.Len()))
}

// NewLogits returns the projection of a tape or a runner. c connects it to the ranks that divide the vocabulary,
// in order; it is nil if none do.
func (h Head) NewLogits(dev npu.Device, c *carry.Carry) *Logits {
	return &Logits{dev: dev, carry: c, first: h.Part.From, vocab: h.Largest}
}

// NewBranch returns the head of a tape.
func (h Head) NewBranch(dev npu.Device) *HeadBranch {
	return &HeadBranch{head: h, dev: dev, logits: h.NewLogits(dev, nil)}
}

// Targets are the rows of a pass that predict a token.
type Targets struct {
	Tokens npu.Ints   // [N] the tokens
	Rows   npu.Ints   // the rows of this rank's targets, counted from its first row
	Bounds []int      // first target of each tensor rank, then N; nil if this rank has all
	Lo, Hi int        // this rank has targets [Lo, Hi)
	Leaves npu.Leaves // leaves of all targets
	Own    npu.Leaves // leaves of this rank's targets

	InvTemp float32 // 1 / temperature
}

// HeadBranch runs a head and keeps its activations. After Forward, Logp and Entropy have the log-probability of each
// target and the entropy of its distribution. Before Backward, the caller replaces Logp by its gradient.
type HeadBranch struct {
	Logp, Entropy npu.Buffer // [N]

	head    Head
	dev     npu.Device
	logits  *Logits
	picked  npu.Buffer // [N, D] rows that predict a target
	hidden  npu.Buffer // [N, D] their norm
	stats   npu.Buffer // [N, 2], see npu.Device.SoftmaxFinish
	dPicked npu.Buffer // [N, D] float32
	dHidden npu.Buffer // [N, D] gradient of hidden; dPicked unless their types differ
}

// Divide connects the head to those of the tensor ranks.
func (b *HeadBranch) Divide(c *carry.Carry) { b.logits = b.head.NewLogits(b.dev, c) }

// Carve assigns the memory of a pass for n targets.
func (b *HeadBranch) Carve(room Room, n int) {
	values := n * b.head.Width
	b.picked, b.hidden = room.Take(npu.Float32, values), room.Activations(values)
	b.Logp, b.Entropy = room.Take(npu.Float32, n), room.Take(npu.Float32, n)
	b.stats = room.Take(npu.Float32, 2*n)
	b.logits.Carve(n, room)
	if room.Backward {
		b.dPicked = room.Take(npu.Float32, values)
		b.dHidden = b.dPicked
		if room.DType != npu.Float32 {
			b.dHidden = room.Activations(values)
		}
	}
}

// Forward computes Logp and Entropy from x, this rank's rows of the last layer's output.
func (b *HeadBranch) Forward(p *Pass, w Weights, x npu.Buffer, t *Targets) {
	d := p.Width
	if t.Lo < t.Hi {
		picked := b.picked.Slice(t.Lo*d, t.Hi*d)
		b.dev.GatherRows(picked, x, t.Rows, d)
		b.dev.RMSNorm(b.hidden.Slice(t.Lo*d, t.Hi*d), picked, w.Vectors[0], t.Hi-t.Lo, p.Eps)
	}
	if t.Bounds != nil {
		p.Gather(b.hidden, t.Bounds, d)
	}
	b.logits.Forward(b.Logp, b.Entropy, b.stats, b.hidden, w.Matrices[0], t.Tokens, t.InvTemp)
}

// Backward sets dx, this rank's rows, to the gradient of x, and adds the gradients of the weights to g.
func (b *HeadBranch) Backward(p *Pass, w Weights, g Gradients, dx npu.Buffer, t *Targets) {
	d := p.Width
	b.logits.Backward(b.dPicked, g.Matrices[0], b.Logp, b.stats, b.hidden, w.Matrices[0], t.Tokens, t.InvTemp,
		&t.Leaves)
	if !dx.IsNil() { // this rank has rows
		b.dev.Zero(dx)
	}
	if t.Lo == t.Hi {
		return
	}
	part, picked := b.dPicked.Slice(t.Lo*d, t.Hi*d), b.picked.Slice(t.Lo*d, t.Hi*d)
	dy := b.dHidden.Slice(t.Lo*d, t.Hi*d)
	if dy.DType() != npu.Float32 {
		b.dev.Convert(dy, part)
	}
	b.dev.RMSNormBackward(part, g.Vectors[0], dy, picked, w.Vectors[0], 1, p.Eps, false, &t.Own)
	b.dev.ScatterAddRows(dx, part, t.Rows, d)
}
