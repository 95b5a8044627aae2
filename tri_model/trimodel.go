// Package trimodel keeps policy, old policy and reference on one device.
//
// It is the unified tri-model architecture of the Periodic Asynchrony paper, section 4.1:
// one pass over a micro-batch gives the log-probabilities of all three. The old policy's
// weights are those published for the step's sampling, so one copy serves both. A model is
// whole on its device; the paper's sharding is not part of this package.
package trimodel

import (
	"context"
	"fmt"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/report/trace"
)

// Config selects the models and sets how they are evaluated.
type Config struct {
	OldPolicy   string  // loss.Behaviour or loss.PreviousStep
	Reference   bool    // keep the starting weights, for a KL term
	Temperature float32 // of the policy's softmax, as in sampling
	Recompute   bool    // see model.Tape
	Optim       optim.Config
	Format      npu.FixedPoint // of the sums of gradients
}

// Models holds policy, old policy and reference, with the policy's gradients and optimizer
// state. Only one goroutine may use it at a time. Others may read a published snapshot
// until the second Publish after it.
type Models struct {
	backend.Serial

	Policy    *model.Weights
	Gradients *model.Gradients
	First     *model.Weights // AdamW's first moment
	Second    *model.Weights // AdamW's second moment
	Reference *model.Weights // nil without Config.Reference

	track     trace.Track // records spans within those of the caller
	cfg       Config
	dev       npu.Device
	opt       *optim.AdamW
	tape      *model.Tape
	published [2]*model.Weights
	current   *model.Snapshot // of the last Publish
	previous  *model.Snapshot // of the Publish before that; current after the first
	sampled   *model.Snapshot // current at the last Step
	fresh     bool            // the policy equals the last published weights
}

// New takes ownership of the policy's starting weights and allocates what training needs
// beside them. The reference is a copy of the starting weights. If New fails, it frees
// everything, including the policy. It panics without cfg.Format.
func New(dev npu.Device, policy *model.Weights, cfg Config) (*Models, error) {
	if cfg.Format.Scale <= 0 || cfg.Format.Limit <= 0 {
		panic("trimodel: no format of the sums of gradients")
	}
	m := &Models{Policy: policy, cfg: cfg, dev: dev, tape: model.NewTape(dev, policy.Config)}
	m.tape.Recompute = cfg.Recompute
	var err error
	if m.opt, err = optim.NewAdamW(cfg.Optim); err == nil {
		err = m.allocate()
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

func (m *Models) allocate() (err error) {
	if m.Gradients, err = model.NewGradients(m.dev, m.Policy.Config); err != nil {
		return err
	}
	if m.First, err = model.NewWeights(m.dev, m.Policy.Config, npu.Optimizer); err != nil {
		return err
	}
	if m.Second, err = model.NewWeights(m.dev, m.Policy.Config, npu.Optimizer); err != nil {
		return err
	}
	if m.cfg.Reference {
		if m.Reference, err = model.NewWeights(m.dev, m.Policy.Config, npu.Weights); err != nil {
			return err
		}
		m.Reference.CopyFrom(m.Policy)
	}
	return m.dev.Sync()
}

// Publish freezes the policy as a version for the instances and makes it the old policy of
// the step that they sample with it.
func (m *Models) Publish(_ context.Context, version int64) (inference.Weights, error) {
	slot := 0
	if m.current != nil && m.current.Weights() == m.published[0] {
		slot = 1
	}
	w, err := m.slot(slot)
	if err != nil {
		return nil, err
	}
	w.CopyFrom(m.Policy)
	snapshot := model.NewSnapshot(w, version)
	if _, err := snapshot.Sum(); err != nil { // waits for the copy
		return nil, fmt.Errorf("publish version %d: %w", version, err)
	}
	m.previous, m.current = m.current, snapshot
	if m.previous == nil {
		m.previous = m.current
	}
	m.fresh = true
	return m.current, nil
}

// slot returns one of the two buffers of published weights, allocated on first use.
func (m *Models) slot(i int) (*model.Weights, error) {
	if m.published[i] == nil {
		w, err := model.NewWeights(m.dev, m.Policy.Config, npu.Weights)
		if err != nil {
			return nil, err
		}
		m.published[i] = w
	}
	return m.published[i], nil
}

// Sampled returns the weights that sampled the last Step's rollouts, even if newer ones
// have been published since. Before the first Step it returns the policy.
func (m *Models) Sampled() *model.Weights {
	if m.sampled == nil {
		return m.Policy
	}
	return m.sampled.Weights()
}

// MaxPositions returns the maximum length of a sequence.
func (m *Models) MaxPositions() int { return m.Policy.Config.MaxPositions }

// FLOPs returns the floating-point operations of the policy's forward and backward pass.
func (m *Models) FLOPs(l *attention.Layout) float64 { return m.Policy.Config.TrainFLOPs(l) }

// SetTrack sets the row of the trace that records passes.
func (m *Models) SetTrack(track trace.Track) { m.track = track }

// Allocated returns the device memory held, in bytes, by purpose.
func (m *Models) Allocated() [npu.NumPurposes]int64 { return m.dev.Allocated() }

// Forward runs the models over a micro-batch. Backward may follow.
//
// Forward skips the old policy's pass if its weights equal the policy's, because the result
// would be identical, bit for bit.
func (m *Models) Forward(l *attention.Layout) (backend.Logprobs, error) {
	n := len(l.Targets)
	var out backend.Logprobs
	run := func(w *model.Weights, name string, keep bool) ([]float32, error) {
		defer m.track.Begin(trace.NoStep, name).End()
		logp := make([]float32, n)
		out.Entropy = make([]float32, n) // the policy's, because it runs last
		return logp, m.tape.Run(w, m.cfg.Temperature, keep, logp, out.Entropy)
	}
	err := m.tape.Load(l, true)
	if err != nil {
		return out, err
	}
	if m.Reference != nil {
		if out.Reference, err = run(m.Reference, "reference", false); err != nil {
			return out, fmt.Errorf("reference: %w", err)
		}
	}
	if old := m.old(); old != nil {
		if out.Old, err = run(old, "old policy", false); err != nil {
			return out, fmt.Errorf("old policy: %w", err)
		}
	}
	if out.Policy, err = run(m.Policy, "policy", true); err != nil {
		return out, fmt.Errorf("policy: %w", err)
	}
	if out.Old == nil {
		out.Old = out.Policy
	}
	if err := m.dev.Sync(); err != nil {
		return out, err
	}
	switch {
	case m.fresh:
		out.Recomputed = out.Policy
	case m.cfg.OldPolicy == loss.Behaviour:
		out.Recomputed = out.Old
	}
	return out, nil
}

// Recompute returns the log-probabilities of a layout's targets under the last published
// version, which sampled the rollouts.
func (m *Models) Recompute(_ context.Context, l *attention.Layout) ([]float32, error) {
	defer m.track.Begin(trace.NoStep, "recompute").End()
	logp, err := score(m, m.current.Weights(), l)
	if err != nil {
		return nil, fmt.Errorf("recompute: %w", err)
	}
	return logp, nil
}

// Score returns the policy's log-probabilities of a layout's targets.
func (m *Models) Score(_ context.Context, l *attention.Layout) ([]float32, error) {
	return score(m, m.Policy, l)
}

func score(m *Models, w *model.Weights, l *attention.Layout) ([]float32, error) {
	logp := make([]float32, len(l.Targets))
	if err := m.tape.Forward(w, l, m.cfg.Temperature, false, logp, make([]float32, len(logp))); err != nil {
		return nil, err
	}
	return logp, m.dev.Sync()
}

// old returns the weights of the old policy, or nil if they equal the policy's.
func (m *Models) old() *model.Weights {
	if m.cfg.OldPolicy == loss.PreviousStep && m.previous != m.current {
		return m.previous.Weights()
	}
	if m.fresh || m.current == nil {
		return nil
	}
	return m.current.Weights()
}

// Pass runs a micro-batch forward and, with the gradient that derive returns, backward.
func (m *Models) Pass(_ context.Context, l *attention.Layout, derive backend.Derive) error {
	forward := m.track.Begin(trace.NoStep, "forward")
	lp, err := m.Forward(l)
	forward.End()
	if err != nil {
		return err
	}
	gradient, err := derive(lp)
	if err != nil {
		return err
	}
	defer m.track.Begin(trace.NoStep, "backward").End()
	return m.Backward(gradient)
}

// Backward accumulates the gradients of a loss. dLogp is the loss's derivative by the
// policy's log-probabilities of the last Forward. The device's next Sync reports failures.
func (m *Models) Backward(dLogp []float32) error {
	return m.tape.Backward(m.Policy, m.Gradients, dLogp, m.cfg.Format)
}

// Discard clears the accumulated gradients.
func (m *Models) Discard() { m.Gradients.Zero() }

// Step updates the policy from the accumulated gradients times u.Scale and clears them. It
// clips them to a global norm of u.Clip unless that is 0. norm is that of the scaled
// gradients before clipping. If a gradient is not finite, Step updates nothing but still
// clears the gradients; the error wraps optim.ErrNonFinite.
func (m *Models) Step(_ context.Context, u backend.Update) (norm float64, err error) {
	reduce := m.track.Begin(trace.NoStep, "reduce")
	defer m.Gradients.Zero()
	m.sampled = m.current
	params := params(m)
	norm, err = optim.GradNorm(m.dev, params, m.cfg.Format)
	reduce.End()
	if err != nil {
		return norm, err
	}
	norm *= u.Scale
	m.fresh = false
	m.opt.Updates = u.Number - 1
	return norm, m.opt.Step(m.dev, params, u.Scale*optim.ClipScale(norm, u.Clip)/float64(m.cfg.Format.Scale), u.LR)
}

// CheckFinite returns an error that wraps model.ErrNotFinite if a weight of the policy is not
// finite.
func (m *Models) CheckFinite() error { return m.Policy.CheckFinite() }

func params(m *Models) []optim.Param {
	out := make([]optim.Param, len(m.Policy.Params))
	for i := range out {
		p := &m.Policy.Params[i]
		out[i] = optim.Param{Name: p.Name, Update: npu.Update{W: p.Buffer, G: m.Gradients.Params[i],
			M: m.First.Params[i].Buffer, V: m.Second.Params[i].Buffer, Decay: p.Decay()}}
	}
	return out
}

// Close frees all memory, including the policy's. No instance may be reading a snapshot.
func (m *Models) Close() {
	m.tape.Close()
	if m.Gradients != nil {
		m.Gradients.Free()
	}
	for _, w := range []*model.Weights{m.Policy, m.First, m.Second, m.Reference, m.published[0], m.published[1]} {
		if w != nil {
			w.Free()
		}
	}
}
