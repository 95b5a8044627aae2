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

// Set holds policy, old policy and reference, or parts of them, with the policy's gradients and
// optimizer state. Only one goroutine may use it at a time. Others may read a held version through a
// queue of their own (model.Weights.Through), until the Hold that overwrites it, Config.Versions Holds later.
type Set struct {
	Policy    *model.Weights
	Gradients *model.Gradients // nil while swapped out
	Pieces    []tensor.Piece   // the pieces of the policy's tensors that this set updates
	// Own holds, by piece, the sums of pieces that belong to layers, if NewSet got a function take. The
	// caller, to which take passes each layer's gradients, fills it before Update. It is nil without take.
	Own       []npu.Sums
	First     *model.Weights // AdamW's first moment of each piece
	Second    *model.Weights // AdamW's second moment of each piece
	Reference *model.Weights // nil without Config.Reference

	track    trace.Track // records spans within those of the caller
	own      npu.Buffer  // memory of Own
	cfg      Config
	dev      npu.Device
	opt      *optim.AdamW
	versions *model.Versions // published versions
	current  *model.Snapshot // version of the last Hold; nil before the first
	previous *model.Snapshot // version of the Hold before the last, or current after only one Hold
	sampled  *model.Snapshot // value of current at the last Update; nil before the first
	fresh    bool            // whether the policy equals the version of the last Hold
	added    bool            // whether the sums of gradients may differ from zero
	take     func(layer int) // takes the gradients of layers; may be nil
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
	s := &Set{Policy: policy, Pieces: pieces, cfg: cfg, dev: dev, take: take}
	s.versions = model.NewVersions(cfg.Versions, nil, func() (*model.Weights, error) {
		return model.NewWeights(dev, policy.Config, npu.Weights)
	})
	var err error
	if s.opt, err = optim.NewAdamW(cfg.Optim); err == nil {
		err = s.allocate()
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// allocate allocates gradients, moments and reference.
func (s *Set) allocate() (err error) {
	if err := s.allocateGradients(); err != nil {
		return err
	}
	for _, moment := range []**model.Weights{&s.First, &s.Second} {
		params := make(tensor.Params, len(s.Pieces))
		for i := range params {
			params[i] = s.Pieces[i].Param
		}
		if *moment, err = model.NewTensors(s.dev, s.Policy.Config, params, npu.Optimizer); err != nil {
			return err
		}
	}
	if s.cfg.Reference {
		if s.Reference, err = model.NewWeights(s.dev, s.Policy.Config, npu.Weights); err != nil {
			return err
		}
		s.Reference.CopyFrom(s.Policy)
	}
	return s.dev.Sync()
}

// allocateGradients allocates Gradients and, with take, Own. All sums are zero.
func (s *Set) allocateGradients() (err error) {
	if s.take == nil {
		s.Gradients, err = model.NewGradients(s.dev, s.Policy.Config)
		return err
	}
	if s.Gradients, err = model.NewPassing(s.dev, s.Policy.Config, s.take); err != nil {
		return err
	}
	total := 0
	lengths := make([]int, len(s.Pieces))
	for i := range s.Pieces {
		if p := &s.Pieces[i]; p.Layer >= 0 {
			from, to := s.Policy.Span(p)
			lengths[i] = to - from
			total += lengths[i]
		}
	}
	s.Own = make([]npu.Sums, len(s.Pieces))
	if total == 0 {
		return nil
	}
	if s.own, err = s.dev.Alloc(npu.Int64, total, npu.Gradients); err != nil {
		return fmt.Errorf("allocate gradients: %w", err)
	}
	s.dev.Zero(s.own)
	start := 0
	for i, n := range lengths {
		s.Own[i] = npu.Sums{Buffer: s.own.Slice(start, start+n), Mark: s.Gradients.Params[s.Pieces[i].Of].Mark}
		start += n
	}
	return nil
}

// Hold copies the policy as a version and makes it the old policy of the step that the version
// samples. Once Config.Versions are held, it overwrites the oldest. It does not wait for the copy.
func (s *Set) Hold(version int64) error {
	w, err := s.versions.Next()
	if err != nil {
		return err
	}
	w.CopyFrom(s.Policy)
	s.previous = s.current
	s.current = model.NewSnapshot(w, version)
	s.versions.Hold(s.current)
	if s.previous == nil {
		s.previous = s.current
	}
	s.fresh = true
	return nil
}

// Held returns the weights of the last version, or the policy before the first one.
func (s *Set) Held() *model.Weights {
	if s.current == nil {
		return s.Policy
	}
	return s.current.Weights()
}

// Version returns the weights of a version, or nil if s does not hold that version.
func (s *Set) Version(version int64) *model.Weights {
	if held := s.versions.Find(version); held != nil {
		return held.Weights()
	}
	return nil
}

// HoldSampled makes room for the weights that sampled the last step of a checkpoint. steps is the number
// of that step. Held and Sampled then return the weights, and the caller sets their values. It is called
// before the first Hold.
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

// Sampled returns the weights that sampled the rollouts of the last Update, even after one later Hold.
// Before the first Update it returns the policy.
func (s *Set) Sampled() *model.Weights {
	if s.sampled == nil {
		return s.Policy
	}
	return s.sampled.Weights()
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

// Passes returns the passes of a micro-batch in their order; the policy's is the last one. If the old
// policy's weights equal the policy's, it has no pass, because the result would be the same bit for bit.
func (s *Set) Passes() (all []Pass) {
	if s.Reference != nil {
		all = append(all, Pass{Role: backend.Reference, Weights: s.Reference})
	}
	if old := s.old(); old != nil {
		all = append(all, Pass{Role: backend.OldPolicy, Weights: old})
	}
	return append(all, Pass{Role: backend.Policy, Weights: s.Policy, Keep: true})
}

// Outputs returns the outputs of passes, in their order, by role. Roles without a pass have the outputs of the
// role whose weights equal theirs. The result shares the memory of the arguments.
func (s *Set) Outputs(passes []Pass, logp [][]float32, entropy []float32) backend.Outputs {
	out := backend.Outputs{Values: backend.Values{}, Entropy: entropy}
	for i, p := range passes {
		out.Values[p.Role] = logp[i]
	}
	if out.Values[backend.OldPolicy] == nil {
		out.Values[backend.OldPolicy] = out.Values[backend.Policy]
	}
	switch {
	case s.fresh:
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

// old returns the weights of the old policy, or nil if they equal the policy's or there is no version yet.
func (s *Set) old() *model.Weights {
	if s.cfg.OldPolicy == loss.PreviousStep && s.previous != s.current {
		return s.previous.Weights()
	}
	if s.fresh || s.current == nil {
		return nil
	}
	return s.current.Weights()
}

// Backward adds the gradients of a loss to the sums. Run has run the policy's pass on t before. dLogp is
// the loss's derivative by the policy's log-probabilities. The device's next Sync reports failures.
func (s *Set) Backward(t *model.Tape, dLogp []float32) error {
	s.added = true
	return t.Backward(s.Policy, s.Gradients, dLogp, s.cfg.Format)
}

// Discard clears the sums of gradients.
func (s *Set) Discard() {
	s.added = false
	if s.Gradients == nil { // swapped out
		return
	}
	s.Gradients.Zero()
	if !s.own.IsNil() {
		s.dev.Zero(s.own)
	}
}

// Update updates the policy's pieces and clears the sums of gradients. norm is that of the sums, of all
// ranks together. The result is the norm of the scaled gradients before clipping. failed is the error of
// computing norm: if it is not nil, Update only clears the sums and returns norm and failed.
func (s *Set) Update(u backend.Update, norm float64, failed error) (scaled float64, err error) {
	defer s.Discard()
	s.sampled = s.current
	if failed != nil {
		return norm, failed
	}
	norm *= u.Scale
	s.fresh = false
	s.opt.Updates = u.Number - 1 // the number of earlier updates
	scale := u.Scale * optim.ClipScale(norm, u.Clip) / float64(s.cfg.Format.Scale)
	return norm, s.opt.Step(s.dev, s.Params(), scale, u.LR)
}

// CheckFinite returns an error that wraps model.ErrNotFinite if a weight of the policy is not
// finite.
func (s *Set) CheckFinite() error { return s.Policy.CheckFinite() }

// Params returns the pieces with their gradients and moments, in the order of Pieces.
func (s *Set) Params() []optim.Param {
	out := make([]optim.Param, len(s.Pieces))
	for i := range out {
		p := &s.Pieces[i]
		from, to := s.Policy.Span(p)
		sums := s.Gradients.Params[p.Of].Slice(from, to)
		if s.Own != nil && p.Layer >= 0 {
			sums = s.Own[i]
		}
		out[i] = optim.Param{
			Name: p.Name, Terms: s.Policy.Config.Terms(p.Name),
			Update: npu.Update{
				W: s.Policy.Params[p.Of].Buffer.Slice(from, to), G: sums,
				M: s.First.Params[i].Buffer, V: s.Second.Params[i].Buffer, Decay: p.Decay(),
			},
		}
	}
	return out
}

// SetTrack sets the row of the trace on which Run records its passes.
func (s *Set) SetTrack(track trace.Track) { s.track = track }

// Close frees all memory, including the policy's.
func (s *Set) Close() {
	s.freeGradients()
	s.versions.Free()
	for _, w := range []*model.Weights{s.Policy, s.First, s.Second, s.Reference} {
		if w != nil {
			w.Free()
		}
	}
}
