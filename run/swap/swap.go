// Package swap makes training and sampling take turns with the memory of a device.
//
// While instances sample, what only training needs is in host memory, which leaves its room to
// their caches: the allgather-swap technique of the MindSpeed RL paper. It belongs to colocated
// runs, whose instances have finished a step when its first pass begins.
package swap

import (
	"context"
	"fmt"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/inference"
)

// Instances are the instances that share the device.
type Instances interface {
	// Publish makes w the weights that all instances sample with.
	Publish(ctx context.Context, w inference.Weights) error
	// Allocate allocates the memory for sampling, and Release frees it.
	Allocate(ctx context.Context) error
	Release(ctx context.Context) error
}

// models own the device's memory from a step's first computation until its weights are published to
// the instances. Only one goroutine may use them.
type models struct {
	backend.Models
	swapper   backend.Swapper // the same
	instances Instances
	out       bool // the instances have the memory
}

// With returns models that swap, and the function that publishes their weights to the instances and gives
// them the memory. If on is false, they are m and the instances' own function. Otherwise m must
// be a backend.Swapper.
func With(on bool, m backend.Models, instances Instances) (backend.Models, func(ctx context.Context, w inference.Weights) error) {
	if !on {
		return m, instances.Publish
	}
	s := &models{Models: m, swapper: m.(backend.Swapper), instances: instances}
	return s, s.leave
}

// leave publishes w, which Publish returned, to the instances and gives them the memory.
func (m *models) leave(ctx context.Context, w inference.Weights) error {
	if err := m.instances.Publish(ctx, w); err != nil {
		return err // names the version
	}
	m.out = true // at least in part
	if err := m.swapper.SwapOut(ctx); err != nil {
		return fmt.Errorf("swap out after publishing version %d: %w", w.Version(), err)
	}
	if err := m.instances.Allocate(ctx); err != nil {
		return fmt.Errorf("swap out after publishing version %d: %w", w.Version(), err)
	}
	return nil
}

// enter gives the memory to the models.
func (m *models) enter(ctx context.Context) error {
	if !m.out {
		return nil
	}
	err := m.instances.Release(ctx)
	if err == nil {
		err = m.swapper.SwapIn(ctx)
	}
	if err != nil {
		return fmt.Errorf("swap in: %w", err)
	}
	m.out = false
	return nil
}

// End says how the run ended, to models that tell other processes.
func (m *models) End(stopped bool) {
	if inner, ok := m.Models.(interface{ End(stopped bool) }); ok {
		inner.End(stopped)
	}
}

// Publish implements backend.Models.
func (m *models) Publish(ctx context.Context, version int64) (inference.Weights, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	return m.Models.Publish(ctx, version)
}

// Pass implements backend.Models.
func (m *models) Pass(ctx context.Context, l *attention.Layout, derive backend.Derive) error {
	if err := m.enter(ctx); err != nil {
		return err
	}
	return m.Models.Pass(ctx, l, derive)
}

// Step implements backend.Models.
func (m *models) Step(ctx context.Context, u backend.Update) (norm float64, err error) {
	if err := m.enter(ctx); err != nil {
		return 0, err
	}
	return m.Models.Step(ctx, u)
}

// Score implements backend.Models.
func (m *models) Score(ctx context.Context, l *attention.Layout) ([]float32, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	return m.Models.Score(ctx, l)
}

// Recompute implements backend.Models.
func (m *models) Recompute(ctx context.Context, l *attention.Layout) ([]float32, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	return m.Models.Recompute(ctx, l)
}
