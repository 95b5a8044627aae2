package sharded

import (
	"context"
	"errors"
	"fmt"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/report/trace"
)

// execute runs a command that concerns no micro-batch. Its error ends the rank. The answer holds errors after which
// the rank continues.
func (w *worker) execute(ctx context.Context, c *command) error {
	switch c.Action {
	case score:
		return w.score(ctx, c)
	case hold:
		return w.snapshots.hold(c.Version)
	case sampled:
		return w.snapshots.holdSampled(int(c.Version))
	case fill:
		return w.models.Tensors(c.Tensors).Write(c.Param, c.Values, nil)
	case save:
		w.models.Sampled(int64(c.Steps))
		return w.save(c.Version)
	case barrier:
		return w.link.send(ctx, answer{Action: barrier})
	case discard:
		defer w.models.Discard()
		return w.share.EndStep(w.models.Policy)
	case swapOut, swapIn:
		return w.link.send(ctx, answer{Action: c.Action, Fault: faultOf(w.swap(c.Action))})
	case update:
		a := answer{Action: update}
		err := w.update(ctx, c.Update, &a)
		if err == nil {
			err = w.models.CheckFinite()
		}
		fault := faultOf(err)
		if fault != nil && fault.Is < 0 {
			return err
		}
		a.Fault, a.Memory = fault, w.models.Allocated()
		return w.link.send(ctx, a)
	}
	return fmt.Errorf("message is %d, expected a command", c.Action)
}

// swap runs swapOut or swapIn. swapOut also frees the activations of idle tapes.
func (w *worker) swap(direction action) error {
	if direction == swapIn {
		return w.models.SwapIn()
	}
	if w.dev.Space() != npu.Host {
		for _, t := range w.idleTapes {
			t.Close()
		}
		w.idleTapes = nil
	}
	return w.models.SwapOut()
}

// save copies the values that the rank owns to host memory, for the checkpoint of this number.
func (w *worker) save(number int64) error {
	var all []ownedTensors
	for _, s := range w.setup.Models.Stored() {
		perReplica := differsByReplica(s.Kind, w.setup.Zero)
		owned := func(p *tensor.Param) bool { return owns(w.shape, p, perReplica) }
		all = append(all, ownedTensors{tensors: w.models.Tensors(s.Tensors), owns: owned})
	}
	return w.snapshots.save(number, all)
}

// update sums the gradients over the ranks that share them and updates the rank's weights. With ZeRO,
// each replica updates its pieces and then receives the other replicas' pieces. It fills a's norm, that of
// trimodel.Set.Update, and its linear sums.
//
// If a gradient is not finite, Sum returns an error that wraps optim.ErrNonFinite on every rank, so
// either all ranks update or none does. Then Spread, a collective, is skipped on all of them.
func (w *worker) update(ctx context.Context, u backend.Update, a *answer) error {
	span := w.track.Begin(trace.NoStep, "reduce")
	total, err := w.share.Sum(ctx, w.models.Policy)
	span.End()
	if err != nil && !errors.Is(err, optim.ErrNonFinite) {
		return err
	}
	if passes, ok := w.models.LinearPasses(); ok {
		a.Passes = passes
		a.Total = w.models.Policy.LinearTotal(func(piece int) bool { return w.share.Counts(w.models.Policy, piece) })
	}
	norm := 0.0
	if err == nil {
		norm = optim.Norm(total, w.setup.Models.Format)
	}
	if a.Norm, err = w.models.Update(u, norm, err); err != nil {
		return err
	}
	return w.share.Spread(ctx, w.models.Policy)
}
