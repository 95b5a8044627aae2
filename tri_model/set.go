package trimodel

import (
	"cmp"
	"fmt"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/report/trace"
)

// Config selects the models and sets how they are evaluated.
type Config struct {
	OldPolicy   string  // loss.Behaviour or loss.PreviousStep
	Reference   bool    // keep the starting weights, for a KL term
	Temperature float32 // divides the logits of all models, as in sampling
	Recompute   bool    // see model.Tape
	Optim       optim.Config
	Format      npu.FixedPoint // format of the sums of gradients
	Versions    int            // number of published versions to keep, at least model.MinVersions
}

// Set holds the weights of all roles, or parts of them. Only one goroutine may use it at a time. Others may
// read a held version through a queue of their own (model.Weights.Through), until the Hold that overwrites it,
// Config.Versions Holds later.
type Set struct {
	Policy    *Trained
	Reference *model.Weights // a copy of the starting weights, nil without Config.Reference

	track    trace.Track // records spans within those of the caller
	cfg      Config
	dev      npu.Device
	versions *model.Versions // published versions of the policy: the sampler's weights and the old policy's
	current  *model.Snapshot // version of the last Hold; nil before the first
	previous *model.Snapshot // version of the Hold before the last, or current after only one Hold
	sampled  *model.Snapshot // value of current at the last Update; nil before the first
	fresh    bool            // whether the policy equals the version of the last Hold
}

// NewSet takes ownership of the policy's starting weights and allocates all other memory. The set updates
// only pieces of the policy; other ranks update the other pieces. If take is not nil, the set passes it
// the gradients of each layer (see model.NewPassing). The reference is a copy of the starting weights. If
// NewSet fails, it frees everything, including the policy. It panics without cfg.Format.
func NewSet(
	dev npu.Device, policy *model.Weights, cfg Config, pieces []tensor.Piece, take func(layer int),
) (*Set, error) {
	if cfg.Format.Scale <= 0 || cfg.Format.Limit <= 0 {
		panic("trimodel: no format of the sums of gradients")
	}
	s := &Set{cfg: cfg, dev: dev}
	s.versions = model.NewVersions(cfg.Versions, nil, func() (*model.Weights, error) {
		return model.NewWeights(dev, policy.Config, npu.Weights)
	})
	var err error
	s.Policy, err = newTrained(dev, backend.Policy, policy, cfg.Optim, cfg.Format, pieces, take)
	if err == nil && cfg.Reference {
		if s.Reference, err = model.NewWeights(dev, policy.Config, npu.Weights); err == nil {
			s.Reference.CopyFrom(policy)
		}
	}
	if err == nil {
		err = dev.Sync()
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Hold copies the policy as a version and makes it the old policy of the step that the version
// samples. Once Config.Versions are held, it overwrites the oldest. It does not wait for the copy.
func (s *Set) Hold(version int64) error {
	w, err := s.versions.Next()
	if err != nil {
		return err
	}
	w.CopyFrom(s.Policy.Weights)
	s.previous = s.current
	s.current = model.NewSnapshot(w, version)
	s.versions.Hold(s.current)
	if s.previous == nil {
		s.previous = s.current
	}
	s.fresh = true
	return nil
}

// Version returns the weights of a version, or nil if s does not hold that version.
func (s *Set) Version(version int64) *model.Weights {
	if held := s.versions.Find(version); held != nil {
		return held.Weights()
	}
	return nil
}

// HoldSampled makes room for the weights that sampled the last step of a checkpoint, the Tensors of the old
// policy, whose values the caller then sets. steps is the number of that step. It is called before the first
// Hold.
func (s *Set) HoldSampled(steps int) error {
	w, err := s.versions.Next()
	if err != nil {
		return err
	}
	s.current = model.NewSnapshot(w, int64(steps))
	s.sampled = s.current
	s.versions.Hold(s.current)
	return nil
}

// Allocated returns the device's allocated memory, in bytes, by purpose.
func (s *Set) Allocated() [npu.NumPurposes]int64 { return s.dev.Allocated() }

// Pass is a forward pass of one model over a micro-batch.
type Pass struct {
	Role    backend.Role
	Name    string // name in traces and errors; that of Role if empty
	Weights *model.Weights
	Keep    bool // whether to keep the activations for a backward pass

	Temperature float32 // divides the logits; 0 for Config.Temperature
}

// Passes returns the passes of a micro-batch in their order; the policy's is the last one. sampler is the
// version that sampled the micro-batch, which must be held, or 0 if none did. If the old policy's weights
// equal the policy's, it has no pass, because the result would be the same bit for bit.
func (s *Set) Passes(sampler int64) (all []Pass) {
	if s.Reference != nil {
		all = append(all, Pass{Role: backend.Reference, Weights: s.Reference})
	}
	if old := s.old(sampler); old != nil {
		all = append(all, Pass{Role: backend.OldPolicy, Weights: old})
	}
	return append(all, Pass{Role: backend.Policy, Weights: s.Policy.Weights, Keep: true})
}

// Outputs returns the outputs of Passes(sampler), in their order, by role. Roles without a pass have the
// outputs of the role whose weights equal theirs. The result shares the memory of the arguments.
func (s *Set) Outputs(sampler int64, passes []Pass, logp [][]float32, entropy []float32) backend.Outputs {
	out := backend.Outputs{Values: backend.Values{}, Entropy: entropy}
	for i, p := range passes {
		out.Values[p.Role] = logp[i]
	}
	if out.Values[backend.OldPolicy] == nil {
		out.Values[backend.OldPolicy] = out.Values[backend.Policy]
	}
	switch {
	case s.isPolicy(sampler):
		out.Values[backend.Sampler] = out.Values[backend.Policy]
	case s.cfg.OldPolicy == loss.Behaviour:
		out.Values[backend.Sampler] = out.Values[backend.OldPolicy]
	}
	return out
}

// Run runs a pass on a tape with a loaded layout. logp and entropy have an element for each target and
// hold the results after the device's next Sync.
func (s *Set) Run(t *model.Tape, p Pass, logp, entropy []float32) error {
	name := cmp.Or(p.Name, string(p.Role))
	defer s.track.Begin(trace.NoStep, name).End()
	if err := t.Run(p.Weights, cmp.Or(p.Temperature, s.cfg.Temperature), p.Keep, logp, entropy); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// old returns the weights of the old policy, or nil if they equal the policy's or nothing was sampled.
func (s *Set) old(sampler int64) *model.Weights {
	switch {
	case sampler == 0:
		return nil
	case s.cfg.OldPolicy == loss.PreviousStep && s.previous != s.current:
		return s.previous.Weights()
	case s.isPolicy(sampler):
		return nil
	}
	w := s.Version(sampler)
	if w == nil {
		panic(fmt.Sprintf("trimodel: version %d sampled a micro-batch, but is not held", sampler))
	}
	return w
}

// isPolicy reports whether the policy equals the version sampler.
func (s *Set) isPolicy(sampler int64) bool {
	return s.fresh && s.current != nil && s.current.Version() == sampler
}

// Backward adds the gradients of a loss to the sums. The last pass on t is the policy's. gradients are the
// loss's derivatives by the outputs of trained roles. The device's next Sync reports failures.
func (s *Set) Backward(t *model.Tape, gradients backend.Values) error {
	return s.Policy.backward(t, gradients[backend.Policy])
}

// Discard clears the sums of gradients.
func (s *Set) Discard() { s.Policy.discard() }

// Update updates the policy's pieces and clears the sums of gradients. norm is that of the sums, of all
// ranks together. The result is the norm of the scaled gradients before clipping. failed is the error of
// computing norm: if it is not nil, Update only clears the sums and returns norm and failed.
func (s *Set) Update(u backend.Update, norm float64, failed error) (scaled float64, err error) {
	defer s.Discard()
	s.sampled = s.current
	if failed != nil {
		return norm, failed
	}
	s.fresh = false
	return s.Policy.update(u, norm)
}

// CheckFinite returns an error that wraps model.ErrNotFinite if a weight of the policy is not
// finite.
func (s *Set) CheckFinite() error { return s.Policy.Weights.CheckFinite() }

// SetTrack sets the row of the trace on which Run records its passes.
func (s *Set) SetTrack(track trace.Track) { s.track = track }

// Close frees all memory, including the policy's.
func (s *Set) Close() {
	if s.Policy != nil {
		s.Policy.close()
	}
	s.versions.Free()
	if s.Reference != nil {
		s.Reference.Free()
	}
}
