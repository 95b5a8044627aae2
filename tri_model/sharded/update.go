package sharded

import (
	"context"
	"errors"
	"fmt"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/report/trace"
	trimodel "github.com/easyrl/easyrl/tri_model"
	"github.com/easyrl/easyrl/tri_model/sharded/lend"
)

// obey does what the trainer asks, apart from training micro-batches.
func (w *worker) obey(ctx context.Context, c *command) error {
	switch c.Action {
	case score:
		return w.score(ctx, c)
	case hold:
		return w.shelf.Hold(c.Version)
	case sampled:
		return w.shelf.HoldSampled(int(c.Version))
	case fill:
		return weights(w.models, c.Which).Write(c.Param, c.Values, nil)
	case save:
		return w.save(c.Version)
	case settle:
		return w.link.send(ctx, answer{Action: settle})
	case discard:
		defer w.models.Discard()
		return w.share.EndStep(w.models)
	case swapOut, swapIn:
		return w.link.send(ctx, answer{Action: c.Action, Fault: faultOf(swap(w, c.Action))})
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

// swap frees the device's memory of what only training needs, or gets it again.
func swap(w *worker, to action) error {
	if to == swapIn {
		return w.models.SwapIn()
	}
	if w.dev.Space() != npu.Host {
		for _, t := range w.idle {
			t.Close()
		}
		w.idle = nil
	}
	return w.models.SwapOut()
}

// SwapOut implements backend.Swapper for all ranks. A rank that cannot swap does not fail: its
// values can still be gathered.
func (c *crew) SwapOut(ctx context.Context) error { return swapAll(ctx, c, swapOut) }

// SwapIn implements backend.Swapper.
func (c *crew) SwapIn(ctx context.Context) error { return swapAll(ctx, c, swapIn) }

func swapAll(ctx context.Context, c *crew, to action) error {
	if err := c.tell(ctx, c.ranks, command{Action: to}); err != nil {
		return err
	}
	var failed error
	for i, r := range c.ranks {
		a, err := c.answer(r, to)
		if err != nil {
			return err
		}
		if a.Fault != nil && failed == nil {
			failed = a.Fault.of(i)
		}
	}
	return failed
}

// weights returns the weights of a name.
func weights(m *trimodel.Set, name which) *model.Weights {
	return [...]*model.Weights{policy: m.Policy, reference: m.Reference, first: m.First, second: m.Second, held: m.Held(), old: m.Sampled()}[name]
}

// save copies what the rank lends for the checkpoint of this number.
func (w *worker) save(number int64) error {
	var kinds []lend.Saved
	for _, name := range saves(&w.setup.Models) {
		kinds = append(kinds, lend.Saved{Weights: weights(w.models, name), Lends: func(p *tensor.Param) bool { return sends(w.shape, p, divided(name, w.setup.Zero)) }})
	}
	return w.shelf.Save(number, kinds)
}

// update sums the gradients over the ranks that share them and updates the rank's weights. With
// ZeRO, each replica updates its pieces and all get the others'.
func (w *worker) update(ctx context.Context, u backend.Update) (norm float64, err error) {
	span := w.track.Begin(trace.NoStep, "reduce")
	total, err := w.share.Sum(ctx, w.models)
	span.End()
	if err != nil && !errors.Is(err, optim.ErrNonFinite) {
		return 0, err
	}
	if err == nil {
		norm = optim.Norm(total, w.setup.Models.Format)
	}
	if norm, err = w.models.Update(u, norm, err); err != nil {
		return norm, err
	}
	return norm, w.share.Spread(ctx, w.models)
}

var _ backend.Swapper = (*crew)(nil)
