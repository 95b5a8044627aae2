// Package layer holds what a decoder is made of: the sublayers of its blocks, and the head.
//
// A block is a list of sublayers, residual branches that compute out = x + f(norm(x)) on the residual
// stream x. A kind of sublayer is a Sublayer: its shape, the parameters that tensor ranks divide, its
// operations, and a Branch, which keeps the activations and runs it forward and backward. Everything else
// in package model goes through these interfaces, so a new kind is one file, and one more element of the
// list that arch.Config.Block returns.
//
// Shapes: T rows, D hidden size, F feed-forward size. Matrices are [out, in].
package layer

import (
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
)

// Sublayer is a kind of residual branch in a shape, or a tensor rank's part of one. It is immutable.
type Sublayer interface {
	// Params returns the parameters, without values. Their names lack the prefix "model.layers.<i>.".
	Params() tensor.Params
	// MaxRanks returns the maximum number of tensor ranks that can divide the sublayer, and the plural
	// name of what they divide, for errors.
	MaxRanks() (n int, what string)
	// FLOPs returns the number of floating-point operations of a forward pass, where a multiply-add counts
	// as two. keys is the number of keys that all rows together attend to.
	FLOPs(rows int, keys int64) float64
	// NewBranch returns the branch of a tape or a runner.
	NewBranch(dev npu.Device) Branch
}

// Branch runs a kind of sublayer in all layers that have it, and keeps their activations. index is the number
// of the layer among these, from 0. A Branch belongs to one Tape or Runner.
type Branch interface {
	// Prepare allocates what depends on positions, for positions 0 to last.
	Prepare(last int32) error
	// Carve takes the memory of a pass from room.
	Carve(room Room)
	// Forward computes out = x + f(norm(x)), which may be in the memory of x unless a backward pass
	// follows. Both have this rank's rows of the residual stream.
	Forward(p *Pass, index int, w Weights, x, out npu.Buffer)
	// Backward replaces dx, the gradient of out, by the gradient of x, and adds the gradients of the weights
	// to g. It uses the activations of the layer's last Forward and may overwrite them.
	Backward(p *Pass, index int, w Weights, g Gradients, x, dx npu.Buffer)
	// Free frees what Prepare has allocated.
	Free()
}

// Room is memory for a pass.
type Room struct {
	Rows     int       // T
	Own      int       // rows of the residual stream that this rank has
	Layers   int       // layers with activations of their own; if 1, all share them
	Backward bool      // whether a backward pass follows
	DType    npu.DType // of activations, apart from the residual stream and statistics
	Take     Take
}

// Take hands out memory for a number of values.
type Take func(dtype npu.DType, count int) npu.Buffer

// Activations hands out memory for a number of activations.
func (r *Room) Activations(count int) npu.Buffer { return r.Take(r.DType, count) }

// Tensors holds one value for each parameter of a sublayer: Vec for each vector and Mat for each matrix, both
// in the order of Sublayer.Params.
type Tensors[Vec, Mat any] struct {
	Vectors  []Vec
	Matrices []Mat
}

type (
	// Weights are the weights of a sublayer.
	Weights = Tensors[npu.Buffer, npu.Matrix]
	// Gradients are the sums of the gradients of a sublayer's weights.
	Gradients = Tensors[npu.Sums, npu.MatrixSums]
)

// Range is a half-open range of indices.
type Range struct{ From, To int }

// Len returns the number of indices.
func (r Range) Len() int { return r.To - r.From }

// Even returns the i-th of n ranges of count indices, as even as possible, larger ones first.
func Even(count, n, i int) Range {
	each, larger := count/n, count%n // larger is the number of ranges with one index more
	start := func(i int) int { return i*each + min(i, larger) }
	return Range{start(i), start(i + 1)}
}

// Blocks is Even for blocks of npu.MatrixBlock indices. It does not cut a block, because an order of reduction
// can be divided among ranks only between blocks. The last block may be shorter.
func Blocks(count, n, i int) Range {
	r := Even(NumBlocks(count), n, i)
	return Range{r.From * npu.MatrixBlock, min(count, r.To*npu.MatrixBlock)}
}

// NumBlocks returns the number of blocks of count indices.
func NumBlocks(count int) int { return (count + npu.MatrixBlock - 1) / npu.MatrixBlock }

// NormParam returns the weight of a norm over the hidden size. With sequence parallelism (sequence) a tensor rank
// has the gradient of only its rows.
func NormParam(name string, width int, sequence bool) tensor.Param {
	share := tensor.Copied
	if sequence {
		share = tensor.Summed
	}
	return tensor.Param{Name: name, Rows: width, Whole: tensor.Whole{Rows: width, Share: share}}
}
