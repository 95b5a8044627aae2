// Package reduce sums the gradients of a decoder's parts over the ranks of a mesh.
//
// Sums are 64-bit integers, scaled from floats (npu.Sums), and wrap, so no bit depends on the order of
// terms: not on the collective's algorithm, nor on which replica has computed a micro-batch. What does
// matter is that all ranks of a group call its collectives in the same order. They do, because each
// goes through the parameters in their order.
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
	"unsafe"

	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/parallel"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// Ranks is one rank's view of the ranks that it shares gradients with. A group is nil if it would have
// one rank.
type Ranks struct {
	Rank   int
	Mesh   parallel.Mesh
	Zero   int // ZeRO stage
	Format npu.FixedPoint
	Shape  *model.Config // of the rank's part
	Device npu.Device

	World, Tensor, Data *parallel.Group
	Tied                *parallel.Group // the stages that share an embedding

	owners *owners // nil without ZeRO-2
}

// RemoteError is an error whose cause is on another rank.
type RemoteError struct{ error }

// Unwrap returns the error.
func (e RemoteError) Unwrap() error { return e.error }

// divides reports whether replicas update different pieces.
func (w *Ranks) divides() bool { return w.Zero > 0 && w.Data != nil }

// Pieces returns the pieces of a rank's tensors that it updates at a ZeRO stage.
func Pieces(params tensor.Params, mesh parallel.Mesh, at parallel.Coord, zero int) []tensor.Piece {
	if zero == 0 {
		return params.Pieces(0, 1)
	}
	return params.Pieces(at.DP, mesh.DP)
}

// Spread gives all replicas the pieces of the policy that each has updated, with ZeRO. It is a
// collective of the replicas.
func (w *Ranks) Spread(ctx context.Context, set *trimodel.Set) error {
	if !w.divides() {
		return nil
	}
	values, done := floats(w.Device, set.Policy.Arena())
	if err := w.Device.Sync(); err != nil {
		return err
	}
	if err := parallel.AllGather(ctx, w.Data, values, set.Policy.Counts(w.Data.Size())); err != nil {
		return err
	}
	done()
	return nil
}

// Sum sums the gradients of a set over the ranks that share them and returns the sum of squares of
// all. It is a collective of all ranks: each returns the same sum. If a gradient is not finite, the
// error wraps optim.ErrNonFinite on all ranks. It is a RemoteError on those that do not have that
// gradient, and names the parameter on the others. With ZeRO, a replica then has the sums of its
// pieces, and its other sums are meaningless.
func (w *Ranks) Sum(ctx context.Context, set *trimodel.Set) (*big.Int, error) {
	g := set.Gradients
	for i := range set.Policy.Params {
		p := &set.Policy.Params[i]
		shared := w.Tensor
		switch {
		case w.owners != nil && p.Layer >= 0:
			if w.Tensor != nil && p.Whole.Share == tensor.Summed { // take has added sums, but not marks
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
		if err := w.sumData(ctx, set); err != nil {
			return nil, err
		}
	}
	return w.squares(ctx, set)
}

// sumData sums the gradients over replicas. With ZeRO, each gets the sums of its pieces. With ZeRO-2,
// those of layers are on their way already (see owners).
func (w *Ranks) sumData(ctx context.Context, set *trimodel.Set) error {
	g := set.Gradients
	if err := largest(ctx, w.Device, w.Data, g.Marks()); err != nil {
		return err
	}
	if w.owners != nil {
		if err := w.owners.end(set); err != nil {
			return err
		}
		for i := range g.Params {
			if set.Policy.Params[i].Layer < 0 {
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
	values, done := integers(w.Device, g.Sums())
	if err := w.Device.Sync(); err != nil {
		return err
	}
	if err := w.Data.ReduceScatterSum(ctx, values, set.Policy.Counts(w.Data.Size())); err != nil {
		return err
	}
	done()
	return nil
}

// sum adds sums of gradients over the ranks of a group.
func sum(ctx context.Context, dev npu.Device, g *parallel.Group, sums npu.Buffer) error {
	values, done := integers(dev, sums)
	if err := dev.Sync(); err != nil {
		return err
	}
	if err := g.AllReduceSum(ctx, values); err != nil {
		return err
	}
	done()
	return nil
}

// largest replaces marks by the largest ones of the ranks of a group. A mark is the bits of a float32
// that is 0 or more, or a NaN (see npu.Sums).
func largest(ctx context.Context, dev npu.Device, g *parallel.Group, marks npu.Buffer) error {
	values, done := integers(dev, marks)
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

// integers returns the values of a buffer, valid after the device's next Sync, and a function that
// writes them back. On a device of host memory both are the buffer's own memory.
func integers(dev npu.Device, b npu.Buffer) (values []int64, done func()) {
	if b.Space() == npu.Host {
		return b.Int64s(), func() {}
	}
	values = make([]int64, b.Len())
	words := unsafe.Slice((*int32)(unsafe.Pointer(&values[0])), 2*len(values))
	dev.DownloadInts(words, b.Words())
	return values, func() { dev.UploadInts(b.Words(), words) }
}

// floats is integers for a buffer of float32.
func floats(dev npu.Device, b npu.Buffer) (values []float32, done func()) {
	if b.Space() == npu.Host {
		return b.Float32s(), func() {}
	}
	values = make([]float32, b.Len())
	dev.Download(values, b)
	return values, func() { dev.Upload(b, values) }
}

const (
	words      = 4         // 64-bit words of a rank's sum of squares
	squaresLen = words + 1 // what ranks exchange: the sum, and 1 in place of it if a gradient is not finite
)

// squares returns the sum of squares of the gradients of the whole decoder, as Sum does. It is an
// exact integer, so the norm is that of one rank.
func (w *Ranks) squares(ctx context.Context, set *trimodel.Set) (*big.Int, error) {
	own, err := optim.SumSquares(w.Device, w.counted(set), w.Format)
	if err != nil && !errors.Is(err, optim.ErrNonFinite) {
		return nil, err
	}
	ranks := w.Mesh.Size()
	all, counts := make([]int64, ranks*squaresLen), make([]int, ranks)
	for i := range counts {
		counts[i] = squaresLen
	}
	mine := all[w.Rank*squaresLen:][:squaresLen]
	if err != nil {
		mine[words] = 1
	} else {
		rest := new(big.Int).Set(own)
		for i := range words {
			mine[i] = int64(new(big.Int).And(rest, new(big.Int).SetUint64(^uint64(0))).Uint64())
			rest.Rsh(rest, 64)
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
			err = RemoteError{fmt.Errorf("gradient of rank %d: %w", rank, optim.ErrNonFinite)}
		}
		for i := range words {
			part := new(big.Int).SetUint64(uint64(theirs[i]))
			total.Add(total, part.Lsh(part, 64*uint(i)))
		}
	}
	return total, err
}

// counted returns the parameters whose gradients this rank counts in the norm. Of several ranks
// with the same gradient, the first one does.
func (w *Ranks) counted(set *trimodel.Set) (own []optim.Param) {
	at := w.Mesh.Coord(w.Rank)
	if at.DP > 0 && !w.divides() {
		return nil
	}
	for i, p := range set.Params() {
		piece := &set.Pieces[i].Param
		if at.TP > 0 && piece.Whole.Share != tensor.Divided || !w.Shape.First() && w.Shape.TiedStages(piece) {
			continue
		}
		own = append(own, p)
	}
	return own
}
