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
	Recompute   bool    // see model.Tape.Recompute
	Optim       optim.Config
	Numerics    npu.Numerics   // the devices'
	Format      npu.FixedPoint // format of the sums of gradients
	Versions    int            // number of published versions to keep, at least model.MinVersions
	// LinearSums makes the set compute backend.LinearSums, with keys from Seed and the number of the current
	// version. The device must use host memory.
	LinearSums bool
	Seed       uint64 // of the run
}

// Set holds the weights of all roles, or a rank's parts of them. Only one goroutine may use it at a time. Others
// may read a held version through a queue of their own (model.Weights.Through) until a Hold overwrites it: the
// one that is Config.Versions Holds later.
type Set struct {
	Policy    *Trained
	Reference *model.Weights // a copy of the starting weights, nil without Config.Reference

	track    trace.Track // records spans within those of the caller
	cfg      Config
	dev      npu.Device
	versions *model.Versions // published versions of the policy: the sampler's weights and the old policy's
	current  *model.Snapshot // version of the last Hold; nil before the first
	previous *model.Snapshot // version of the Hold before the last, or current after only one Hold
	sampled  *model.Snapshot // see Sampled; nil if that version is not held
	fresh    bool            // whether the policy equals the version of the last Hold
}

// NewSet takes ownership of the policy's starting weights and allocates all other memory, except that of
// versions, which Hold allocates. The set updates only the given pieces of the policy; other ranks update the
// others. If take is not nil, the set passes it the gradients of each layer (see model.NewPassing). If NewSet
// fails, it frees everything, including the policy. It panics without cfg.Format.
func NewSet(
	dev npu.Device, policy *model.Weights, cfg Config, pieces []tensor.Piece, take func(layer int),
) (*Set, error) {
	if cfg.Format.Scale <= 0 || cfg.Format.Limit <= 0 {
		panic("trimodel: no format of the sums of gradients")
	}
	s := &Set{cfg: cfg, dev: dev}
	if err := checkLinear(dev); cfg.LinearSums && err != nil {
		policy.Free()
		return nil, err
	}
	shape := policy.Config
	s.versions = model.NewVersions(cfg.Versions, nil, func() (*model.Weights, error) {
		return model.NewWeights(dev, shape, npu.Weights)
	})
	var err error
	s.Policy, err = newTrained(dev, backend.Policy, policy, cfg, pieces, take)
	if err == nil && cfg.Reference {
		if s.Reference, err = model.NewWeights(dev, shape, npu.Weights); err == nil {
			s.Reference.CopyFrom(s.Policy.Weights)
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

// Hold copies the policy as the current version. Passes takes the old policy from the held versions. Once
// Config.Versions are held, Hold overwrites the oldest. It does not wait for the copy.
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

// Sampled records the version before the last completed step, which sampled it: the next step's old policy with
// loss.PreviousStep. Tensors returns it as the old policy.
func (s *Set) Sampled(version int64) { s.sampled = s.versions.Find(version) }

// HoldSampled allocates the version that sampled the last step of a checkpoint. steps is the number of that
// step and of the version. The caller then fills it: it is the Tensors of the old policy. Call HoldSampled before
// the first Hold.
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
// version that sampled the micro-batch, or 0 if none did. If the old policy's weights equal the policy's, it
// has no pass, because the result would be the same bit for bit. Passes panics if the old policy is the
// version sampler and s does not hold it.
func (s *Set) Passes(sampler int64) (all []Pass) {
	if s.Reference != nil {
		all = append(all, Pass{Role: backend.Reference, Weights: s.Reference})
	}
	if old := s.old(sampler); old != nil {
		all = append(all, Pass{Role: backend.OldPolicy, Weights: old})
	}
	return append(all, Pass{Role: backend.Policy, Weights: s.Policy.Weights, Keep: true})
}

// Outputs returns the outputs of Passes(sampler) by role. logp has the log-probabilities of each pass. A role
// without a pass has the output of the role whose weights equal its own; the sampler is absent if there is
// none. The result shares the memory of the arguments.
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

// Run runs a pass on a tape with a loaded layout. logp and entropy have an element for each target; Run fills
// them by the device's next Sync.
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

// Backward adds the gradients of a loss to the sums. The last pass on t must be the policy's. gradients has the
// derivatives of the loss with respect to the outputs of trained roles. The device's next Sync reports failures.
func (s *Set) Backward(t *model.Tape, gradients backend.Values) error {
	if s.cfg.LinearSums {
		s.Policy.linear.key = tensor.LinearKey(s.cfg.Seed, s.current.Version())
	}
	err := s.Policy.backward(t, gradients[backend.Policy])
	if err == nil && s.cfg.LinearSums {
		err = s.Policy.addPass()
	}
	return err
}

// Discard clears the sums of gradients.
func (s *Set) Discard() { s.Policy.discard() }

// Update updates the policy's pieces and clears the sums of gradients. norm is the norm of the sums over all
// ranks. Update returns the norm of the scaled gradients before clipping. failed is the error of computing norm:
// if it is not nil, Update only clears the sums and returns norm and failed.
func (s *Set) Update(u backend.Update, norm float64, failed error) (scaled float64, err error) {
	defer s.Discard()
	if failed != nil {
		return norm, failed
	}
	s.fresh = false
	return s.Policy.update(u, norm)
}

// CheckFinite returns an error that wraps model.ErrNotFinite if a weight of the policy is not
// finite.
func (s *Set) CheckFinite() error { return s.Policy.checkFinite() }

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
