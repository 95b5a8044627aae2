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
		return w.read(ctx, weights(w.models, c.Which))
	case settle:
		return w.link.send(ctx, answer{Action: settle})
	case discard:
		w.models.Discard()
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

// read sends all values of weights, tensor by tensor.
func (w *worker) read(ctx context.Context, weights *model.Weights) error {
	for i := range weights.Params {
		p := &weights.Params[i]
		if !sends(w.shape, p) {
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

// update sums the gradients over the ranks that share them and updates the rank's weights.
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
	return w.models.Update(u, norm, err)
}

// reduce sums the gradients over the ranks that share them and returns the sum of squares of all.
// Each sum is one of 64-bit integers, so its order does not matter.
func reduce(ctx context.Context, w *worker) (*big.Int, error) {
	g := w.models.Gradients
	for i := range w.models.Policy.Params {
		p := &w.models.Policy.Params[i]
		if w.tensor != nil && p.Whole.Share == tensor.Summed {
			if err := sum(ctx, w.dev, w.tensor, g.Whole(i)); err != nil {
				return nil, err
			}
		}
		if w.tied != nil && w.shape.TiedStages(p) {
			if err := sum(ctx, w.dev, w.tied, g.Whole(i)); err != nil {
				return nil, err
			}
		}
	}
	if w.data != nil {
		if err := sum(ctx, w.dev, w.data, g.Arena()); err != nil {
			return nil, err
		}
	}
	return squares(ctx, w)
}

// bucket is how many sums pass through host memory at a time.
const bucket = 1 << 20

// sum adds sums of gradients over the ranks of a group.
func sum(ctx context.Context, dev npu.Device, g *parallel.Group, sums npu.Buffer) error {
	if err := dev.Sync(); err != nil {
		return err
	}
	if sums.Space() == npu.Host {
		return g.AllReduceSum(ctx, sums.Int64s())
	}
	values := make([]int64, min(bucket, sums.Len()))
	for at := 0; at < sums.Len(); at += len(values) {
		part := sums.Slice(at, min(at+len(values), sums.Len()))
		host := values[:part.Len()]
		words := unsafe.Slice((*int32)(unsafe.Pointer(&host[0])), 2*len(host))
		dev.DownloadInts(words, part.Words())
		if err := dev.Sync(); err != nil {
			return err
		}
		if err := g.AllReduceSum(ctx, host); err != nil {
			return err
		}
		dev.UploadInts(part.Words(), words)
	}
	return nil
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
	if at.DP > 0 {
		return nil
	}
	for i, p := range w.models.Params() {
		param := &w.models.Policy.Params[i]
		if at.TP > 0 && param.Whole.Share != tensor.Divided || !w.shape.First() && w.shape.TiedStages(param) {
			continue
		}
		own = append(own, p)
	}
	return own
}
