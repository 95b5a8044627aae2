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
	Temperature float32 // of the policy's softmax, as in sampling
	Recompute   bool    // see model.Tape
	Optim       optim.Config
	Format      npu.FixedPoint // of the sums of gradients
}

// Set holds policy, old policy and reference, or parts of them, with the policy's gradients and
// optimizer state. Only one goroutine may use it at a time. Others may read a held version through a
// queue of their own (model.Weights.Through), until the second Hold after it overwrites it.
type Set struct {
	Policy    *model.Weights
	Gradients *model.Gradients
	Pieces    []tensor.Piece // of the policy's tensors, which the set updates
	// Own are the sums of the pieces that belong to layers, if Gradients pass layers on. The caller
	// adds to them.
	Own       []npu.Sums
	First     *model.Weights // AdamW's first moment, of the pieces
	Second    *model.Weights // AdamW's second moment, of the pieces
	Reference *model.Weights // nil without Config.Reference

	track     trace.Track // records spans within those of the caller
	own       npu.Buffer  // memory of Own
	cfg       Config
	dev       npu.Device
	opt       *optim.AdamW
	published [2]*model.Weights // buffers of the last two versions, which Hold uses in turn
	current   *model.Snapshot   // of the last Hold
	previous  *model.Snapshot   // of the Hold before that; current after the first
	sampled   *model.Snapshot   // current at the last Update
	fresh     bool              // the policy equals the last held weights
	added     bool              // the sums of gradients may not be zero
	take      func(layer int)   // gets the gradients of layers; may be nil
}

// NewSet takes ownership of the policy's starting weights and allocates what else training needs.
// pieces are what it updates; other ranks update the rest. If take is not nil, it gets the gradients of
// each layer (see model.NewPassing). The reference is a copy of the starting weights. If NewSet fails,
// it frees everything, including the policy. It panics without cfg.Format.
func NewSet(
	dev npu.Device, policy *model.Weights, cfg Config, pieces []tensor.Piece, take func(layer int),
) (*Set, error) {
	if cfg.Format.Scale <= 0 || cfg.Format.Limit <= 0 {
		panic("trimodel: no format of the sums of gradients")
	}
	s := &Set{Policy: policy, Pieces: pieces, cfg: cfg, dev: dev, take: take}
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

// allocateGradients allocates Gradients and, if they pass layers on, Own.
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
	at := 0
	for i, n := range lengths {
		s.Own[i] = npu.Sums{Buffer: s.own.Slice(at, at+n), Mark: s.Gradients.Params[s.Pieces[i].Of].Mark}
		at += n
	}
	return nil
}

// Hold copies the policy as a version and makes it the old policy of the step that the version
// samples. It overwrites the version before the last one and does not wait for the copy.
func (s *Set) Hold(version int64) error {
	slot := 0
	if s.current != nil && s.current.Weights() == s.published[0] {
		slot = 1
	}
	w, err := s.slot(slot)
	if err != nil {
		return err
	}
	w.CopyFrom(s.Policy)
	s.previous, s.current = s.current, model.NewSnapshot(w, version)
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

// Version returns the weights of a version that s has held, or nil if Hold has overwritten them.
func (s *Set) Version(version int64) *model.Weights {
	for _, held := range []*model.Snapshot{s.current, s.previous} {
		if held != nil && held.Version() == version {
			return held.Weights()
		}
	}
	return nil
}

// HoldSampled makes room for the weights that sampled the last step, whose number is steps. The
// caller sets the values of Held.
func (s *Set) HoldSampled(steps int) error {
	w, err := s.slot(0)
	if err != nil {
		return err
	}
	s.current = model.NewSnapshot(w, int64(steps))
	s.sampled = s.current
	return nil
}

// slot returns one of the two buffers of published weights, allocated on first use.
func (s *Set) slot(i int) (*model.Weights, error) {
	if s.published[i] == nil {
		w, err := model.NewWeights(s.dev, s.Policy.Config, npu.Weights)
		if err != nil {
			return nil, err
		}
		s.published[i] = w
	}
	return s.published[i], nil
}

// Sampled returns the weights that sampled the last Step's rollouts, even if newer ones
// have been published since. Before the first Step it returns the policy.
func (s *Set) Sampled() *model.Weights {
	if s.sampled == nil {
		return s.Policy
	}
	return s.sampled.Weights()
}

// Allocated returns the device memory held, in bytes, by purpose.
func (s *Set) Allocated() [npu.NumPurposes]int64 { return s.dev.Allocated() }

// Pass is one model's part in a micro-batch.
type Pass struct {
	Name    string
	Weights *model.Weights
	Keep    bool // a backward pass follows

	Temperature float32 // of the softmax; 0 for Config's
}

// Passes returns the passes of a micro-batch in their order; the policy's is the last one. There is
// none of the old policy if its weights equal the policy's, because the result would be
// identical, bit for bit.
func (s *Set) Passes() (all []Pass) {
	if s.Reference != nil {
		all = append(all, Pass{Name: "reference", Weights: s.Reference})
	}
	if old := s.old(); old != nil {
		all = append(all, Pass{Name: "old policy", Weights: old})
	}
	return append(all, Pass{Name: "policy", Weights: s.Policy, Keep: true})
}

// Logprobs arranges the log-probabilities of Passes' models.
func (s *Set) Logprobs(logp [][]float32, entropy []float32) backend.Logprobs {
	out := backend.Logprobs{Policy: logp[len(logp)-1], Entropy: entropy}
	out.Old = out.Policy
	if s.Reference != nil {
		out.Reference, logp = logp[0], logp[1:]
	}
	if len(logp) > 1 {
		out.Old = logp[0]
	}
	switch {
	case s.fresh:
		out.Recomputed = out.Policy
	case s.cfg.OldPolicy == loss.Behaviour:
		out.Recomputed = out.Old
	}
	return out
}

// Run runs a pass on a tape with a loaded layout. logp and entropy hold its results after the
// device's next Sync.
func (s *Set) Run(t *model.Tape, p Pass, logp, entropy []float32) error {
	defer s.track.Begin(trace.NoStep, p.Name).End()
	if err := t.Run(p.Weights, cmp.Or(p.Temperature, s.cfg.Temperature), p.Keep, logp, entropy); err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	return nil
}

// old returns the weights of the old policy, or nil if they equal the policy's.
func (s *Set) old() *model.Weights {
	if s.cfg.OldPolicy == loss.PreviousStep && s.previous != s.current {
		return s.previous.Weights()
	}
	if s.fresh || s.current == nil {
		return nil
	}
	return s.current.Weights()
}

// Backward accumulates the gradients of a loss on a tape on which Run ran the policy. dLogp is the
// loss's derivative by the policy's log-probabilities. The device's next Sync reports failures.
func (s *Set) Backward(t *model.Tape, dLogp []float32) error {
	s.added = true
	return t.Backward(s.Policy, s.Gradients, dLogp, s.cfg.Format)
}

// Discard clears the accumulated gradients.
func (s *Set) Discard() {
	if s.added = false; s.Gradients == nil { // swapped out
		return
	}
	s.Gradients.Zero()
	if !s.own.IsNil() {
		s.dev.Zero(s.own)
	}
}

// Update updates the policy's pieces, given the norm of the sums of gradients, and clears the sums. It
// returns the norm of the scaled gradients. If failed is not nil, it only clears the sums and returns
// failed.
func (s *Set) Update(u backend.Update, norm float64, failed error) (scaled float64, err error) {
	defer s.Discard()
	s.sampled = s.current
	if failed != nil {
		return norm, failed
	}
	norm *= u.Scale
	s.fresh = false
	s.opt.Updates = u.Number - 1
	scale := u.Scale * optim.ClipScale(norm, u.Clip) / float64(s.cfg.Format.Scale)
	return norm, s.opt.Step(s.dev, s.Params(), scale, u.LR)
}

// CheckFinite returns an error that wraps model.ErrNotFinite if a weight of the policy is not
// finite.
func (s *Set) CheckFinite() error { return s.Policy.CheckFinite() }

// Params returns the pieces with their gradients and moments.
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

// SetTrack sets the row of the trace that records passes.
func (s *Set) SetTrack(track trace.Track) { s.track = track }

// Close frees all memory, including the policy's.
func (s *Set) Close() {
	s.freeGradients()
	for _, w := range []*model.Weights{s.Policy, s.First, s.Second, s.Reference, s.published[0], s.published[1]} {
		if w != nil {
			w.Free()
		}
	}
}
