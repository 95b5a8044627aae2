package run

import (
	"context"
	"fmt"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/run/instances"
	"github.com/easyrl/easyrl/run/ranks"
)

// swapping makes training and sampling take turns with the memory of a device. Training-only state
// moves to host memory while instances sample, which frees device memory for their caches: the
// allgather-swap of the MindSpeed RL paper. It needs a colocated run, whose instances have finished
// a step when its first pass begins. Only one goroutine may use it.
type swapping struct {
	backend.Models
	swapper   backend.Swapper // the same models as Models
	instances *instances.Instances
	out       bool // the instances may have a part of the device memory; takeBack resets it
}

// newSwapping returns models that swap. m must implement backend.Swapper.
func newSwapping(m backend.Models, in *instances.Instances) *swapping {
	return &swapping{Models: m, swapper: m.(backend.Swapper), instances: in}
}

// handToInstances publishes w, which Publish returned, to the instances and gives them the memory.
func (m *swapping) handToInstances(ctx context.Context, w inference.Weights) error {
	if err := publishTo(ctx, m.Models, m.instances, w); err != nil {
		return err // names the version
	}
	m.out = true
	err := m.swapper.SwapOut(ctx)
	if err == nil {
		err = m.instances.Allocate(ctx)
	}
	if err != nil {
		return fmt.Errorf("swap out after publishing version %d: %w", w.Version(), err)
	}
	return nil
}

// takeBack returns the device memory from the instances to the models, if the instances have it.
func (m *swapping) takeBack(ctx context.Context) error {
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

// End implements the interface that ranks.EndMesh looks for, which embedding backend.Models hides.
func (m *swapping) End(stopped bool) { ranks.EndMesh(m.Models, stopped) }

// Publish implements backend.Models.
func (m *swapping) Publish(ctx context.Context, version int64) (inference.Weights, error) {
	if err := m.takeBack(ctx); err != nil {
		return nil, err
	}
	return m.Models.Publish(ctx, version)
}

// Pass implements backend.Models.
func (m *swapping) Pass(ctx context.Context, l *attention.Layout, sampler int64, derive backend.Derive) error {
	if err := m.takeBack(ctx); err != nil {
		return err
	}
	return m.Models.Pass(ctx, l, sampler, derive)
}

// Step implements backend.Models.
func (m *swapping) Step(ctx context.Context, u backend.Update) (norm float64, err error) {
	if err := m.takeBack(ctx); err != nil {
		return 0, err
	}
	return m.Models.Step(ctx, u)
}

// Score implements backend.Models.
func (m *swapping) Score(ctx context.Context, l *attention.Layout) ([]float32, error) {
	if err := m.takeBack(ctx); err != nil {
		return nil, err
	}
	return m.Models.Score(ctx, l)
}

// Recompute implements backend.Models.
func (m *swapping) Recompute(ctx context.Context, l *attention.Layout, version int64) ([]float32, error) {
	if err := m.takeBack(ctx); err != nil {
		return nil, err
	}
	return m.Models.Recompute(ctx, l, version)
}
