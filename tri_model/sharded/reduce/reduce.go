// Package reduce sums the gradients of a decoder's parts over the ranks of a mesh.
//
// Sums are 64-bit integers, scaled from floats (npu.Sums), and wrap, so no bit depends on the order of
// terms: not on the collective's algorithm, nor on which replica has computed a micro-batch. But all ranks
// of a group must call its collectives in the same order. They do, because each rank goes through the
// parameters in their order.
//
// Which ranks share the gradient of a parameter:
//
//   - tensor ranks, if each has added only the terms of its rows or heads (tensor.Summed); a mark, the
//     largest size of a term, becomes the largest of all
//   - first and last stage, for a tied embedding
//   - replicas, for every parameter
package reduce

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"

	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/parallel"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// Ranks is one rank's view of the ranks that it shares gradients with. A group is nil if it would have
// one rank. Only the rank's own goroutine may use it, except receivers of Open.
type Ranks struct {
	Rank   int
	Mesh   parallel.Mesh
	Zero   int            // ZeRO stage
	Format npu.FixedPoint // format of the sums of gradients
	Shape  *model.Config  // shape of the rank's part of the decoder
	Device npu.Device

	World, Tensor, Data *parallel.Group // all ranks, tensor ranks, replicas
	Tied                *parallel.Group // first and last stage, which share a tied embedding

	owners *owners // nil without ZeRO-2
}

// RemoteError reports that a gradient on another rank is not finite. It wraps optim.ErrNonFinite.
type RemoteError struct{ Rank int }

// Error names the rank.
func (e RemoteError) Error() string {
	return fmt.Sprintf("gradient of rank %d: %v", e.Rank, optim.ErrNonFinite)
}

// Unwrap returns optim.ErrNonFinite.
func (e RemoteError) Unwrap() error { return optim.ErrNonFinite }

// divides reports whether replicas update different pieces of the weights.
func (w *Ranks) divides() bool { return w.Zero > 0 && w.Data != nil }

// Pieces returns the pieces of params, a rank's tensors, that the rank at a position updates at ZeRO stage
// zero.
func Pieces(params tensor.Params, mesh parallel.Mesh, at parallel.Coord, zero int) []tensor.Piece {
	if zero == 0 {
		return params.Pieces(0, 1)
	}
	return params.Pieces(at.DP, mesh.DP)
}

// Spread copies the pieces of a role that each replica has updated to all other replicas, with ZeRO.
// It is a collective of the replicas.
func (w *Ranks) Spread(ctx context.Context, role *trimodel.Trained) error {
	if !w.divides() {
		return nil
	}
	arena, counts := role.Weights.Arena(), role.Weights.Counts(w.Data.Size())
	for i := range counts {
		counts[i] = counts[i] * arena.DType().Size() / npu.Float32.Size()
	}
	values, done := floats(w.Device, arena.As(npu.Float32)) // any values travel as words, whose bits stay as they are
	if err := w.Device.Sync(); err != nil {
		return err
	}
	if err := parallel.AllGather(ctx, w.Data, values, counts); err != nil {
		return err
	}
	done()
	return nil
}

// Sum sums the gradients of a role over the ranks that share them and returns the sum of the squares of the
// complete decoder's gradients. It is a collective of all ranks, and all return the same sum. If a
// gradient is not finite, the error wraps optim.ErrNonFinite on all ranks. On ranks that have that
// gradient, it names the parameter; on others it is a RemoteError. With ZeRO, a replica afterwards has
// the sums of only its own pieces; its other sums have no meaning.
func (w *Ranks) Sum(ctx context.Context, role *trimodel.Trained) (*big.Int, error) {
	g := role.Gradients
	for i := range role.Weights.Params {
		p := &role.Weights.Params[i]
		shared := w.Tensor
		switch {
		case w.owners != nil && p.Layer >= 0:
			if w.Tensor != nil && p.Whole.Share == tensor.Summed { // owners.take has added sums, but not marks
				if err := largest(ctx, w.Device, w.Tensor, g.Params[i].Mark); err != nil {
					return nil, err
				}
			}
			continue
		case w.Tensor != nil && p.Whole.Share == tensor.Summed:
		case w.Tied != nil && w.Shape.TiedStages(p):
			shared = w.Tied
		default:
			continue
		}
		if err := sum(ctx, w.Device, shared, g.Params[i].Buffer); err != nil {
			return nil, err
		}
		if err := largest(ctx, w.Device, shared, g.Params[i].Mark); err != nil {
			return nil, err
		}
	}
	if w.Data != nil {
		if err := w.sumData(ctx, role); err != nil {
			return nil, err
		}
	}
	return w.squares(ctx, role)
}

// sumData sums the gradients over replicas. With ZeRO, each replica gets only the sums of its pieces. With
// ZeRO-2, the sums of layers have been sent before (see owners).
func (w *Ranks) sumData(ctx context.Context, role *trimodel.Trained) error {
	g := role.Gradients
	if err := largest(ctx, w.Device, w.Data, g.Marks()); err != nil {
		return err
	}
	if w.owners != nil {
		if err := w.owners.end(role); err != nil {
			return err
		}
		for i := range g.Params {
			if role.Weights.Params[i].Layer < 0 {
				if err := sum(ctx, w.Device, w.Data, g.Params[i].Buffer); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if !w.divides() {
		return sum(ctx, w.Device, w.Data, g.Sums())
	}
	values, done := npu.ReadInt64s(w.Device, g.Sums())
	if err := w.Device.Sync(); err != nil {
		return err
	}
	if err := w.Data.ReduceScatterSum(ctx, values, role.Weights.Counts(w.Data.Size())); err != nil {
		return err
	}
	done()
	return nil
}

// sum replaces each of sums with its sum over the ranks of a group.
func sum(ctx context.Context, dev npu.Device, g *parallel.Group, sums npu.Buffer) error {
	values, done := npu.ReadInt64s(dev, sums)
	if err := dev.Sync(); err != nil {
		return err
	}
	if err := g.AllReduceSum(ctx, values); err != nil {
		return err
	}
	done()
	return nil
}

// largest replaces each of marks with the largest one of the ranks of a group. A mark holds the bits of a
// float32 that is 0 or more, or a NaN (see npu.Sums).
func largest(ctx context.Context, dev npu.Device, g *parallel.Group, marks npu.Buffer) error {
	values, done := npu.ReadInt64s(dev, marks)
	if err := dev.Sync(); err != nil {
		return err
	}
	sizes := make([]float32, len(values))
	for i, v := range values {
		sizes[i] = math.Float32frombits(uint32(v))
	}
	if err := g.AllReduceMax(ctx, sizes); err != nil {
		return err
	}
	for i, v := range sizes {
		values[i] = int64(math.Float32bits(v))
	}
	done()
	return nil
}

// floats is npu.ReadInt64s for a buffer of float32.
func floats(dev npu.Device, b npu.Buffer) (values []float32, done func()) {
	if b.Space() == npu.Host {
		return b.Float32s(), func() {}
	}
	values = make([]float32, b.Len())
	dev.Download(values, b)
	return values, func() { dev.Upload(b, values) }
}

const (
	words      = 4         // 64-bit words of a rank's sum of squares, low word first
	squaresLen = words + 1 // int64s that a rank sends: the words, and 1 if a gradient is not finite or else 0
)

// squares returns the sum of squares of the complete decoder's gradients, with the errors of Sum. It is an
// exact integer, so it is the same on any mesh.
func (w *Ranks) squares(ctx context.Context, role *trimodel.Trained) (*big.Int, error) {
	own, err := optim.SumSquares(w.Device, w.counted(role), w.Format)
	if err != nil && !errors.Is(err, optim.ErrNonFinite) {
		return nil, err
	}
	ranks := w.Mesh.Size()
	all := make([]int64, ranks*squaresLen)
	counts := make([]int, ranks)
	for i := range counts {
		counts[i] = squaresLen
	}
	mine := all[w.Rank*squaresLen:][:squaresLen]
	if err != nil {
		mine[words] = 1
	} else {
		lowBits := new(big.Int).SetUint64(math.MaxUint64)
		remaining := new(big.Int).Set(own)
		for i := range words {
			mine[i] = int64(new(big.Int).And(remaining, lowBits).Uint64())
			remaining.Rsh(remaining, 64)
		}
	}
	if w.World != nil {
		if err := parallel.AllGather(ctx, w.World, all, counts); err != nil {
			return nil, err
		}
	}
	total := new(big.Int)
	for rank := range ranks {
		theirs := all[rank*squaresLen:][:squaresLen]
		if theirs[words] != 0 && err == nil {
			err = RemoteError{rank}
		}
		for i := range words {
			part := new(big.Int).SetUint64(uint64(theirs[i]))
			total.Add(total, part.Lsh(part, 64*uint(i)))
		}
	}
	return total, err
}

// counted returns the pieces of role that this rank counts (see Counts).
func (w *Ranks) counted(role *trimodel.Trained) (own []optim.Param) {
	for i, p := range role.Params() {
		if w.Counts(role, i) {
			own = append(own, p)
		}
	}
	return own
}

// Counts reports whether a sum over all ranks of what their pieces hold takes piece i of role from this rank. Each
// value of the decoder counts on exactly one rank, although several may hold it.
func (w *Ranks) Counts(role *trimodel.Trained, i int) bool {
	at := w.Mesh.Coord(w.Rank)
	piece := &role.Pieces[i].Param
	otherReplicaCounts := at.DP > 0 && !w.divides()
	otherTensorRankCounts := at.TP > 0 && piece.Whole.Share != tensor.Divided
	otherStageCounts := !w.Shape.First() && w.Shape.TiedStages(piece)
	return !otherReplicaCounts && !otherTensorRankCounts && !otherStageCounts
}
