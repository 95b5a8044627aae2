package sharded

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"unsafe"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/report/trace"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// obey does what the trainer asks, apart from training micro-batches.
func (w *worker) obey(ctx context.Context, c *command) error {
	switch c.Action {
	case score:
		return w.score(ctx, c)
	case hold:
		return w.models.Hold(c.Version)
	case sampled:
		return w.models.HoldSampled(int(c.Version))
	case fill:
		return weights(w.models, c.Which).Write(c.Param, c.Values)
	case read:
		return w.read(ctx, weights(w.models, c.Which), w.setup.Zero > 0 && (c.Which == first || c.Which == second))
	case settle:
		return w.link.send(ctx, answer{Action: settle})
	case discard:
		defer w.models.Discard()
		if w.owners != nil {
			return w.owners.end(w.models)
		}
		return nil
	case update:
		norm, err := w.update(ctx, c.Update)
		if err == nil {
			err = w.models.CheckFinite()
		}
		if err != nil && faultOf(err).Is < 0 {
			return err
		}
		return w.link.send(ctx, answer{Action: update, Norm: norm, Fault: faultOf(err), Memory: w.models.Allocated()})
	}
	return fmt.Errorf("message is %d, expected a command", c.Action)
}

// weights returns the weights of a name.
func weights(m *trimodel.Set, name which) *model.Weights {
	return [...]*model.Weights{policy: m.Policy, reference: m.Reference, first: m.First, second: m.Second, held: m.Held(), old: m.Sampled()}[name]
}

// read sends all values of weights, tensor by tensor. divided means that replicas have different
// values.
func (w *worker) read(ctx context.Context, weights *model.Weights, divided bool) error {
	for i := range weights.Params {
		p := &weights.Params[i]
		if !sends(w.shape, p, divided) {
			continue
		}
		values := make([]float32, p.Rows*max(p.Cols, 1))
		if err := weights.Read(i, values); err != nil {
			return err
		}
		if err := w.link.send(ctx, answer{Action: read, Values: values}); err != nil {
			return err
		}
	}
	return nil
}

// update sums the gradients over the ranks that share them and updates the rank's weights. With
// ZeRO, each replica updates its pieces and all get the others'.
func (w *worker) update(ctx context.Context, u backend.Update) (norm float64, err error) {
	span := w.track.Begin(trace.NoStep, "reduce")
	total, err := reduce(ctx, w)
	span.End()
	if err != nil && !errors.Is(err, optim.ErrNonFinite) {
		return 0, err
	}
	if err == nil {
		norm = optim.Norm(total, w.setup.Models.Format)
	}
	if norm, err = w.models.Update(u, norm, err); err != nil || !divides(w) {
		return norm, err
	}
	policy := w.models.Policy
	values, done := floats(w.dev, policy.Arena())
	if err := w.dev.Sync(); err != nil {
		return norm, err
	}
	if err := parallel.AllGather(ctx, w.data, values, model.Counts(policy, w.data.Size())); err != nil {
		return norm, err
	}
	done()
	return norm, nil
}

// divides reports whether replicas update different pieces.
func divides(w *worker) bool { return w.setup.Zero > 0 && w.data != nil }

// reduce sums the gradients over the ranks that share them and returns the sum of squares of all.
// Each sum is one of 64-bit integers, so its order does not matter.
func reduce(ctx context.Context, w *worker) (*big.Int, error) {
	g := w.models.Gradients
	for i := range w.models.Policy.Params {
		p := &w.models.Policy.Params[i]
		shared := w.tensor
		switch {
		case w.owners != nil && p.Layer >= 0: // take has summed them
			continue
		case w.tensor != nil && p.Whole.Share == tensor.Summed:
		case w.tied != nil && w.shape.TiedStages(p):
			shared = w.tied
		default:
			continue
		}
		for _, sums := range []npu.Buffer{g.Params[i].Buffer, g.Params[i].Mark} {
			if err := sum(ctx, w.dev, shared, sums); err != nil {
				return nil, err
			}
		}
	}
	if w.data != nil {
		if err := reduceData(ctx, w, g); err != nil {
			return nil, err
		}
	}
	return squares(ctx, w)
}

// reduceData sums the gradients over replicas. With ZeRO, each gets the sums of its pieces.
func reduceData(ctx context.Context, w *worker, g *model.Gradients) error {
	if err := sum(ctx, w.dev, w.data, g.Marks()); err != nil {
		return err
	}
	if w.owners != nil {
		if err := w.owners.end(w.models); err != nil {
			return err
		}
		for i := range g.Params {
			if w.models.Policy.Params[i].Layer < 0 {
				if err := sum(ctx, w.dev, w.data, g.Params[i].Buffer); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if !divides(w) {
		return sum(ctx, w.dev, w.data, g.Sums())
	}
	values, done := integers(w.dev, g.Sums())
	if err := w.dev.Sync(); err != nil {
		return err
	}
	if err := w.data.ReduceScatterSum(ctx, values, model.Counts(w.models.Policy, w.data.Size())); err != nil {
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

// words is the number of 64-bit words of a sum of squares of all ranks, and squaresLen that of what
// ranks exchange: the sum, and whether it is none.
const (
	words      = 4
	squaresLen = words + 1
)

// squares returns the sum of squares of the gradients of the whole decoder. If a gradient is not
// finite, the error wraps optim.ErrNonFinite on all ranks, and it names the parameter on those
// that have it.
func squares(ctx context.Context, w *worker) (*big.Int, error) {
	own, err := optim.SumSquares(w.dev, counted(w), w.setup.Models.Format)
	if err != nil && !errors.Is(err, optim.ErrNonFinite) {
		return nil, err
	}
	ranks := w.setup.Mesh.Size()
	all, counts := make([]int64, ranks*squaresLen), make([]int, ranks)
	for i := range counts {
		counts[i] = squaresLen
	}
	mine := all[w.rank*squaresLen:][:squaresLen]
	if err != nil {
		mine[words] = 1
	} else {
		rest := new(big.Int).Set(own)
		for i := range words {
			mine[i] = int64(new(big.Int).And(rest, new(big.Int).SetUint64(^uint64(0))).Uint64())
			rest.Rsh(rest, 64)
		}
	}
	if w.world != nil {
		if err := parallel.AllGather(ctx, w.world, all, counts); err != nil {
			return nil, err
		}
	}
	total := new(big.Int)
	for rank := range ranks {
		theirs := all[rank*squaresLen:][:squaresLen]
		if theirs[words] != 0 && err == nil {
			err = elsewhere{fmt.Errorf("gradient of rank %d: %w", rank, optim.ErrNonFinite)}
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
func counted(w *worker) (own []optim.Param) {
	at := w.setup.Mesh.Coord(w.rank)
	if at.DP > 0 && !divides(w) {
		return nil
	}
	for i, p := range w.models.Params() {
		piece := &w.models.Pieces[i].Param
		if at.TP > 0 && piece.Whole.Share != tensor.Divided || !w.shape.First() && w.shape.TiedStages(piece) {
			continue
		}
		own = append(own, p)
	}
	return own
}
