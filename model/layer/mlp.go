package layer

import (
	"fmt"

	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
)

// MLP is a gated feed-forward network, out = x + down(silu(gate(n)) · up(n)) with n = norm(x) (Shazeer 2020,
// "GLU Variants Improve Transformer", SwiGLU). Tensor ranks divide F in blocks of npu.MatrixBlock.
type MLP struct {
	Width            int   // D
	Size             int   // F
	Part             Range // this rank's part of F
	Std, ResidualStd float64
	Sequence         bool // see NormParam
}

// Divide returns the part of m, a complete sublayer, that a tensor rank holds.
func (m MLP) Divide(ranks, rank int, sequence bool) MLP {
	m.Part = Blocks(m.Size, ranks, rank)
	m.Sequence = sequence
	return m
}

// MaxRanks implements Sublayer.
func (m MLP) MaxRanks() (int, string) {
	return NumBlocks(m.Size), fmt.Sprintf("blocks of %d in the feed-forward size %d", npu.MatrixBlock, m.Size)
}

// Params implements Sublayer.
func (m MLP) Params() tensor.Params {
	f := m.Part.Len()
	in := tensor.Whole{Rows: m.Size, Cols: m.Width, Row: m.Part.From}
	out := tensor.Whole{Rows: m.Width, Cols: m.Size, Col: m.Part.From}
	return tensor.Params{
		NormParam("post_attention_layernorm.weight", m.Width, m.Sequence),
		{Name: "mlp.gate_proj.weight", Rows: f, Cols: m.Width, Std: m.Std, Whole: in},
		{Name: "mlp.up_proj.weight", Rows: f, Cols: m.Width, Std: m.Std, Whole: in},
		{Name: "mlp.down_proj.weight", Rows: m.Width, Cols: f, Std: m.ResidualStd, Whole: out},
	}
}

// mlpTensors are the Tensors of an MLP by name.
type mlpTensors[Vec, Mat any] struct {
	norm           Vec // [D]
	gate, up, down Mat
}

func mlpNamed[Vec, Mat any](t Tensors[Vec, Mat]) mlpTensors[Vec, Mat] {
	return mlpTensors[Vec, Mat]{t.Vectors[0], t.Matrices[0], t.Matrices[1], t.Matrices[2]}
}

// FLOPs implements Sublayer.
func (m MLP) FLOPs(rows int, _ int64) float64 {
	return float64(2 * float64(rows) * float64(3*m.Width*m.Part.Len()))
}

// NewBranch implements Sublayer.
func (m MLP) NewBranch(npu.Device) Branch { return &mlpBranch{size: m.Part.Len()} }

// mlpBranch keeps gate and up of each layer. The backward pass recomputes the norm and inner.
type mlpBranch struct {
	size  int        // this rank's part of F
	acts  []mlpActs  // by layer, or one for all
	inner npu.Buffer // [T, F] scratch: silu(gate) · up
}

type mlpActs struct{ gate, up npu.Buffer } // [T, F]

// Prepare does nothing.
func (b *mlpBranch) Prepare(int32) error { return nil }

// Free does nothing.
func (b *mlpBranch) Free() {}

// Carve implements Branch.
func (b *mlpBranch) Carve(room Room) {
	n := room.Rows * b.size
	b.inner = room.Activations(n)
	b.acts = b.acts[:0]
	for range room.Layers {
		b.acts = append(b.acts, mlpActs{room.Activations(n), room.Activations(n)})
	}
}

// Forward implements Branch.
func (b *mlpBranch) Forward(p *Pass, index int, weights Weights, x, out npu.Buffer) {
	w, a := mlpNamed(weights), &b.acts[index%len(b.acts)]
	p.Project(x, w.norm, npu.Projection{Y: a.gate, W: w.gate}, npu.Projection{Y: a.up, W: w.up})
	p.Dev.SwiGLU(b.inner, a.gate, a.up)
	p.Linear(out, x, b.inner, w.down)
}

// Backward implements Branch.
func (b *mlpBranch) Backward(p *Pass, index int, weights Weights, gradients Gradients, x, dx npu.Buffer) {
	w, g, a := mlpNamed(weights), mlpNamed(gradients), &b.acts[index%len(b.acts)]
	l, noBias := &p.Gradients.Leaves, npu.Sums{}
	all := p.AllRows(dx)
	p.Dev.SwiGLU(b.inner, a.gate, a.up)
	p.Dev.LinearBackwardWeight(g.down, noBias, all, b.inner, l)
	p.Dev.LinearBackwardInput(b.inner, []npu.Product{Product(all, w.down)}, p.Rows, false)
	p.Dev.SwiGLUBackward(a.gate, a.up, b.inner, a.gate, a.up)
	p.Normalize(x, w.norm)
	p.Dev.LinearBackwardWeight(g.gate, noBias, a.gate, p.Norm, l)
	p.Dev.LinearBackwardWeight(g.up, noBias, a.up, p.Norm, l)
	p.NormBackward(dx, g.norm, x, w.norm, npu.Product{DY: a.gate, W: w.gate, Block: npu.MatrixBlock},
		npu.Product{DY: a.up, W: w.up, Block: npu.MatrixBlock})
}
