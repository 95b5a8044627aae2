package sharded

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// Publish gathers the policy for the instances and makes it the old policy of the step that they
// sample with it.
func (m *Models) Publish(ctx context.Context, version int64) (inference.Weights, error) {
	if err := m.Flush(ctx); err != nil {
		return nil, err
	}
	slot := 0
	if m.current != nil && m.current == m.whole[0] {
		slot = 1
	}
	if m.whole[slot] == nil {
		w, err := model.NewWeights(m.dev, m.shape, npu.Weights)
		if err != nil {
			return nil, err
		}
		m.whole[slot] = w
	}
	w := m.whole[slot]
	if err := m.tell(ctx, m.ranks, command{Action: hold, Version: version}); err != nil {
		return nil, err
	}
	if err := m.gather(ctx, held, false, func(i int, _ *tensor.Param, values []float32) error { return w.Write(i, values) }); err != nil {
		return nil, fmt.Errorf("publish version %d: %w", version, err)
	}
	m.current = w
	snapshot := model.NewSnapshot(w, version)
	if _, err := snapshot.Sum(); err != nil {
		return nil, fmt.Errorf("publish version %d: %w", version, err)
	}
	return snapshot, nil
}

// Capture gathers policy and moments in host memory and returns a function that writes them to a
// folder.
func (m *Models) Capture(ctx context.Context) (write func(dir string) error, err error) {
	if err := m.Flush(ctx); err != nil {
		return nil, err
	}
	var c trimodel.Checkpoint
	for _, part := range []struct {
		to   *[]checkpoint.Source
		name which
	}{{&c.Policy, policy}, {&c.First, first}, {&c.Second, second}, {&c.Sampled, old}} {
		if part.name == old && m.cfg.Models.OldPolicy != loss.PreviousStep {
			break
		}
		err := m.gather(ctx, part.name, true, func(_ int, p *tensor.Param, values []float32) error {
			*part.to = append(*part.to, checkpoint.Source{Name: p.Name, Shape: p.Shape().RowShape(),
				Write: checkpoint.Filled(func(dst []float32) { copy(dst, values) })})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return c.Write, nil
}

// Restore distributes what Capture's function wrote after this many steps, on any mesh.
func (m *Models) Restore(ctx context.Context, dir string, steps, _ int) error {
	for i, place := range trimodel.Places(dir) {
		name := []which{policy, first, second, held}[i]
		if name == held {
			if err := m.tell(ctx, m.ranks, command{Action: sampled, Version: int64(steps)}); err != nil {
				return err
			}
		}
		if err := m.restore(ctx, filepath.Join(dir, place.File), place.Prefix, name); err != nil {
			return err
		}
	}
	return m.settle(ctx)
}
