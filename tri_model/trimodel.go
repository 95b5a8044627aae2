// Package trimodel keeps policy, old policy and reference on one device.
//
// It is the unified tri-model architecture of the Periodic Asynchrony paper, section 4.1: one call for a
// micro-batch gives the log-probabilities of all three. The old policy is a published version, so one copy
// serves sampling and training. A Set may hold one rank's parts of larger models; package sharded runs
// such ranks together.
package trimodel

import (
	"context"
	"fmt"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/report/trace"
)

// Models trains a Set of complete models on one device and implements backend.Models. Only one goroutine
// may use it at a time. Others may read a published snapshot while it is valid (see backend.Models).
type Models struct {
	backend.Serial
	*Set
	tape   *model.Tape
	linear *backend.LinearSums // see LinearSums
}

// New takes ownership of the policy's starting weights and allocates all other memory, as NewSet does.
func New(dev npu.Device, policy *model.Weights, cfg Config) (*Models, error) {
	s, err := NewSet(dev, policy, cfg, policy.Params.Pieces(0, 1), nil)
	if err != nil {
		return nil, err
	}
	m := &Models{Serial: backend.Serial{Numerics: dev.Info().Numerics}, Set: s, tape: model.NewTape(dev, policy.Config)}
	m.tape.Recompute = cfg.Recompute
	return m, nil
}

// Publish implements backend.Models with Hold. The result is a *model.Snapshot.
func (m *Models) Publish(_ context.Context, version int64) (inference.Weights, error) {
	if err := m.Hold(version); err != nil {
		return nil, err
	}
	if _, err := m.current.Sum(); err != nil { // computes the checksum, which waits for the copy
		return nil, fmt.Errorf("publish version %d: %w", version, err)
	}
	return m.current, nil
}

// MaxPositions returns the maximum length of a sequence.
func (m *Models) MaxPositions() int { return m.Policy.Weights.Config.MaxPositions }

// FLOPs returns the number of floating-point operations of the policy's forward and backward pass over l.
func (m *Models) FLOPs(l *attention.Layout) float64 { return m.Policy.Weights.Config.TrainFLOPs(l) }

// Forward runs the models over a micro-batch that the version sampler has sampled, 0 for none. Backward may
// follow.
func (m *Models) Forward(l *attention.Layout, sampler int64) (backend.Outputs, error) {
	if err := m.tape.Load(l, true); err != nil {
		return backend.Outputs{}, err
	}
	passes := m.Passes(sampler)
	logp := make([][]float32, len(passes))
	entropy := make([]float32, len(l.Targets))
	for i, p := range passes {
		logp[i] = make([]float32, len(entropy))
		if err := m.Run(m.tape, p, logp[i], entropy); err != nil {
			return backend.Outputs{}, err
		}
	}
	return m.Outputs(sampler, passes, logp, entropy), m.dev.Sync()
}

// Recompute implements backend.Models. It returns an error if the version is not held.
func (m *Models) Recompute(_ context.Context, l *attention.Layout, version int64) ([]float32, error) {
	defer m.track.Begin(trace.NoStep, "recompute").End()
	w := m.Version(version)
	if w == nil {
		return nil, fmt.Errorf("recompute: version %d is not held", version)
	}
	logp, err := m.score(w, l)
	if err != nil {
		return nil, fmt.Errorf("recompute: %w", err)
	}
	return logp, nil
}

// Score implements backend.Models.
func (m *Models) Score(_ context.Context, l *attention.Layout) ([]float32, error) {
	return m.score(m.Policy.Weights, l)
}

// score returns the log-probabilities of a layout's targets under w.
func (m *Models) score(w *model.Weights, l *attention.Layout) ([]float32, error) {
	logp := make([]float32, len(l.Targets))
	if err := m.tape.Forward(w, l, m.cfg.Temperature, false, logp, make([]float32, len(logp))); err != nil {
		return nil, err
	}
	return logp, m.dev.Sync()
}

// Pass implements backend.Models. It runs the micro-batch forward, calls derive and runs it backward.
func (m *Models) Pass(_ context.Context, l *attention.Layout, sampler int64, derive backend.Derive) error {
	forward := m.track.Begin(trace.NoStep, "forward")
	out, err := m.Forward(l, sampler)
	forward.End()
	if err != nil {
		return err
	}
	gradients, err := derive(out)
	if err != nil {
		return err
	}
	defer m.track.Begin(trace.NoStep, "backward").End()
	return m.Backward(gradients)
}

// Backward adds the gradients of a loss to the sums (see Set.Backward). gradients concerns the last Forward.
func (m *Models) Backward(gradients backend.Values) error { return m.Set.Backward(m.tape, gradients) }

// Step implements backend.Models.
func (m *Models) Step(_ context.Context, u backend.Update) (norm float64, err error) {
	reduce := m.track.Begin(trace.NoStep, "reduce")
	norm, err = optim.GradNorm(m.dev, m.Policy.Params(), m.cfg.Format)
	reduce.End()
	if passes, ok := m.LinearPasses(); ok {
		all := func(int) bool { return true }
		m.linear = &backend.LinearSums{Passes: passes, Total: m.Policy.LinearTotal(all)}
	}
	return m.Update(u, norm, err)
}

// LinearSums implements backend.Models.
func (m *Models) LinearSums() *backend.LinearSums { return m.linear }

// Close frees all memory, including the policy's and that of published snapshots, which no instance may
// be reading.
func (m *Models) Close() {
	m.tape.Close()
	m.Set.Close()
}
