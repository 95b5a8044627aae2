package trimodel

import (
	"errors"
	"fmt"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/optim"
)

// Trained holds a role that training updates, or a rank's part of it: its weights, the sums of their
// gradients, and the optimizer with its moments. It owns all of them.
type Trained struct {
	Role      backend.Role
	Weights   *model.Weights
	Gradients *model.Gradients // nil while swapped out
	Pieces    []tensor.Piece   // the pieces of the weights that are updated here; other ranks update the others
	// Own holds, by piece, the sums of the pieces that belong to layers; nil without take. The caller fills it
	// before update, from the gradients that take gets.
	Own []npu.Sums
	// Masters are the pieces' weights in float32, which AdamW updates. Weights are their rounded values. nil if
	// Weights are float32 themselves.
	Masters *model.Weights
	First   *model.Weights // AdamW's first moment of each piece
	Second  *model.Weights // AdamW's second moment of each piece

	dev    npu.Device
	format npu.FixedPoint // format of the sums
	opt    *optim.AdamW
	take   func(layer int) // takes the gradients of layers; may be nil
	own    npu.Buffer      // memory of Own
	linear linear
	added  bool // whether the sums may differ from zero
}

// newTrained takes ownership of the weights, which are float32 or of the type of the device's numerics, and allocates
// all other memory. If take is not nil, it gets the gradients of each layer (see model.NewPassing). If newTrained
// fails, the caller closes the result, which is never nil.
func newTrained(
	dev npu.Device, role backend.Role, weights *model.Weights, cfg Config, pieces []tensor.Piece, take func(layer int),
) (t *Trained, err error) {
	t = &Trained{Role: role, Weights: weights, Pieces: pieces, dev: dev, format: cfg.Format, take: take}
	if cfg.LinearSums {
		t.openLinear()
	}
	if t.opt, err = optim.NewAdamW(cfg.Optim); err != nil {
		return t, err
	}
	if dev.Info().Numerics.Type() != npu.Float32 {
		if err := t.splitMasters(); err != nil {
			return t, err
		}
	}
	if err := t.allocateGradients(); err != nil {
		return t, err
	}
	for _, moment := range []**model.Weights{&t.First, &t.Second} {
		if *moment, err = t.newPieces(); err != nil {
			return t, err
		}
	}
	return t, nil
}

// newPieces allocates zeros of float32 for the values of each piece.
func (t *Trained) newPieces() (*model.Weights, error) {
	params := make(tensor.Params, len(t.Pieces))
	for i := range params {
		params[i] = t.Pieces[i].Param
	}
	return model.NewTensors(t.dev, t.Weights.Config, params, npu.Optimizer)
}

// splitMasters copies the weights to Masters. If they are float32, it replaces them by rounded ones.
func (t *Trained) splitMasters() (err error) {
	if t.Masters, err = t.newPieces(); err != nil {
		return err
	}
	for i := range t.Pieces {
		p := &t.Pieces[i]
		from, to := t.Weights.Span(p)
		t.dev.Convert(t.Masters.Params[i].Buffer, t.Weights.Params[p.Of].Buffer.Slice(from, to))
	}
	start := t.Weights
	if start.DType() != npu.Float32 {
		return nil
	}
	if t.Weights, err = model.NewWeights(t.dev, start.Config, npu.Weights); err != nil {
		t.Weights = start
		return err
	}
	t.Weights.CopyFrom(start)
	start.Free()
	return nil
}

// allocateGradients allocates Gradients and, with take, Own. All sums are zero.
func (t *Trained) allocateGradients() (err error) {
	if t.take == nil {
		t.Gradients, err = model.NewGradients(t.dev, t.Weights.Config)
		return err
	}
	if t.Gradients, err = model.NewPassing(t.dev, t.Weights.Config, t.take); err != nil {
		return err
	}
	total := 0
	lengths := make([]int, len(t.Pieces))
	for i := range t.Pieces {
		if p := &t.Pieces[i]; p.Layer >= 0 {
			from, to := t.Weights.Span(p)
			lengths[i] = to - from
			total += lengths[i]
		}
	}
	t.Own = make([]npu.Sums, len(t.Pieces))
	if total == 0 {
		return nil
	}
	if t.own, err = t.dev.Alloc(npu.Int64, total, npu.Gradients); err != nil {
		return fmt.Errorf("allocate gradients: %w", err)
	}
	t.dev.Zero(t.own)
	start := 0
	for i, n := range lengths {
		t.Own[i] = npu.Sums{Buffer: t.own.Slice(start, start+n), Mark: t.Gradients.Params[t.Pieces[i].Of].Mark}
		start += n
	}
	return nil
}

// freeGradients frees Gradients and Own.
func (t *Trained) freeGradients() {
	if t.Gradients != nil {
		t.Gradients.Free()
	}
	t.dev.Free(t.own)
	t.Gradients = nil
	t.own = npu.Buffer{}
	t.Own = nil
}

// backward adds the gradients of a loss to the sums. The last pass on tape must be one of this role that kept
// its activations. gradient is the derivative of the loss with respect to the pass's log-probabilities.
func (t *Trained) backward(tape *model.Tape, gradient []float32) error {
	t.added = true
	return tape.Backward(t.Weights, t.Gradients, gradient, t.format)
}

// discard clears the sums.
func (t *Trained) discard() {
	t.added = false
	t.linear.reset()
	if t.Gradients == nil { // swapped out
		return
	}
	t.Gradients.Zero()
	if !t.own.IsNil() {
		t.dev.Zero(t.own)
	}
}

// update updates the pieces. norm is the norm of the sums over all ranks. update returns the norm of the scaled
// gradients before clipping.
func (t *Trained) update(u backend.Update, norm float64) (scaled float64, err error) {
	norm *= u.Scale
	t.opt.Updates = u.Number - 1 // the number of earlier updates
	scale := u.Scale * optim.ClipScale(norm, u.Clip) / float64(t.format.Scale)
	return norm, t.opt.Step(t.dev, t.Params(), scale, u.LR)
}

// Params returns the pieces with their gradients and moments, in the order of Pieces.
func (t *Trained) Params() []optim.Param {
	out := make([]optim.Param, len(t.Pieces))
	for i := range out {
		p := &t.Pieces[i]
		from, to := t.Weights.Span(p)
		sums := t.Gradients.Params[p.Of].Slice(from, to)
		if t.Own != nil && p.Layer >= 0 {
			sums = t.Own[i]
		}
		u := npu.Update{
			W: t.Weights.Params[p.Of].Buffer.Slice(from, to), G: sums,
			M: t.First.Params[i].Buffer, V: t.Second.Params[i].Buffer, Decay: p.Decay(),
		}
		if t.Masters != nil {
			u.W, u.Copy = t.Masters.Params[i].Buffer, u.W
		}
		out[i] = optim.Param{Name: p.Name, Terms: max(1, p.Terms), Update: u}
	}
	return out
}

// checkFinite returns an error that wraps model.ErrNotFinite if a weight is not finite. With Masters it checks those of
// the pieces.
func (t *Trained) checkFinite() error {
	if t.Masters != nil {
		return t.Masters.CheckFinite()
	}
	return t.Weights.CheckFinite()
}

// unload frees the sums of gradients and moves weights and moments to host memory, until reload. If equal is
// not nil, it has the same values on the device: unload frees the weights without a copy, and reload copies
// equal back. unload fails if the sums are not zero. If it fails, no value is lost.
func (t *Trained) unload(equal *model.Weights) error {
	if t.added {
		return errors.New("the sums of gradients are not zero, expected a swap right after an update")
	}
	t.freeGradients()
	if err := t.Weights.Unload(equal); err != nil {
		return fmt.Errorf("%s: %w", t.Role, err)
	}
	for _, kind := range t.optimizer() {
		if err := t.tensors(kind).Unload(nil); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	return nil
}

// reload reverts unload, bit for bit. If it fails, it can be called again.
func (t *Trained) reload() error {
	if err := t.Weights.Reload(); err != nil {
		return fmt.Errorf("%s: %w", t.Role, err)
	}
	for _, kind := range t.optimizer() {
		if err := t.tensors(kind).Reload(); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	if t.Gradients != nil { // nothing was unloaded, or an earlier reload has finished
		return nil
	}
	err := t.allocateGradients()
	if err != nil {
		t.freeGradients()
	}
	return err
}

// tensors returns the tensors of a kind.
func (t *Trained) tensors(kind Kind) *model.Weights {
	return [...]*model.Weights{
		Weights: t.Weights, FirstMoment: t.First, SecondMoment: t.Second, Master: t.Masters,
	}[kind]
}

// optimizer returns the kinds of the optimizer's tensors.
func (t *Trained) optimizer() []Kind {
	if t.Masters == nil {
		return []Kind{FirstMoment, SecondMoment}
	}
	return []Kind{FirstMoment, SecondMoment, Master}
}

// close frees all memory, including the weights'.
func (t *Trained) close() {
	t.freeGradients()
	for _, kind := range []Kind{Weights, FirstMoment, SecondMoment, Master} {
		if w := t.tensors(kind); w != nil {
			w.Free()
		}
	}
}
