package model

import (
	"errors"
	"fmt"
	"slices"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/model/carry"
	"github.com/easyrl/easyrl/model/layer"
	"github.com/easyrl/easyrl/npu"
)

// Tape runs layouts forward and backward. It owns the activations, which grow to the
// largest layout. It is not safe for concurrent use.
type Tape struct {
	dev   npu.Device
	cfg   *Config
	dtype npu.DType // of activations
	// Recompute keeps only each block's input and recomputes the rest in the backward
	// pass. This saves memory, costs a third more work and gives the same bits.
	Recompute bool
	// In and Out are host memory of the caller for [OwnRows, D] values that pass between pipeline
	// stages. Run reads the previous stage's output from In, unless this stage is the first, and
	// writes this stage's output to Out, unless it is the last. Backward reads the next stage's
	// gradient from In, unless this stage is the last, and writes the gradient of this stage's
	// input to Out, unless it is the first. Out is valid after the next Wait.
	In, Out []float32

	mem      scratch // memory of all buffers below
	pass     layer.Pass
	branches branches
	inputs   [][]npu.Buffer // [T, D] by layer and sublayer, its input; all share one if no backward pass follows
	last     npu.Buffer     // [T, D] output of the last block
	head     *layer.HeadBranch
	picks    layer.Targets // of the loaded layout
	dx       npu.Buffer    // [T, D]

	batch       *npu.Batch // owns the memory of index
	vocab       vocabulary
	index       layoutArrays // arrays of the loaded layout
	targets     int          // number of targets of the loaded layout, without padding
	trained     bool         // Load uploaded the arrays that Backward needs
	kept        bool         // Run kept the activations that Backward needs
	passes      *graphCache[passKey]
	paddedDLogp []float32 // copy of Backward's dLogp with zeros for padding targets
}

// passKey identifies the kernel calls of a pass: equal keys mean equal arguments.
type passKey struct {
	shape           arrayShape
	weights         *Weights
	gradients       *Gradients // nil for a forward pass
	fixed           npu.FixedPoint
	keep, recompute bool
	invTemp         float32
}

// NewTape returns a tape for decoders of shape c on dev.
func NewTape(dev npu.Device, c *Config) *Tape {
	t := &Tape{dev: dev, cfg: c, dtype: activationType(dev), mem: scratch{dev: dev, purpose: npu.Activations},
		branches: newBranches(dev, c),
		pass:     layer.Pass{Dev: dev, Width: c.HiddenSize, Eps: c.NormEps}, head: c.Head().NewBranch(dev),
		batch: npu.NewBatch(dev),
		vocab: vocabulary{size: c.Whole().VocabSize}, passes: newGraphCache[passKey](dev)}
	for range c.Layers {
		t.inputs = append(t.inputs, make([]npu.Buffer, len(t.branches)))
	}
	return t
}

// Divide connects the tape to those of the other tensor ranks. All run the same layouts.
func (t *Tape) Divide(ranks *carry.Carry) {
	part := t.cfg.Part()
	t.pass.Carry = ranks
	t.vocab.starts = part.VocabStarts()
	t.vocab.rank = part.At.TP
	t.vocab.sequence = part.Sequence
	t.head.Divide(ranks)
}

// Close frees the activations.
func (t *Tape) Close() {
	t.passes.free()
	t.mem.free()
	t.branches.free()
	t.batch.Free()
}

// Wait waits for the device and returns the first failure of the tensor ranks or the device. If
// it returns nil, the results of earlier calls of Run are valid.
func (t *Tape) Wait() error { return errors.Join(t.pass.Carry.Err(), t.dev.Sync()) }

// Load uploads the index arrays of l for Run. trained adds those that Backward needs. l may
// change when Load returns.
func (t *Tape) Load(l *attention.Layout, trained bool) error {
	t.kept = false
	t.trained = trained
	t.targets = len(l.Targets)
	return t.index.upload(t.batch, &t.vocab, l, trained, t.captures())
}

// captures reports whether passes capture kernels. A part of a decoder does not, because its
// kernels wait for other ranks in the middle of a pass.
func (t *Tape) captures() bool { return t.cfg.Part() == nil && t.passes.captures() }

// OwnRows returns the number of rows of a layout that a rank of a decoder of shape c has between
// two stages.
func OwnRows(c *Config, l *attention.Layout) int {
	if p := c.Part(); p != nil && p.Sequence {
		bounds := leafBounds(l, p.Mesh.TP)
		return bounds[p.At.TP+1] - bounds[p.At.TP]
	}
	return l.Rows()
}

// Forward is Load and Run.
func (t *Tape) Forward(w *Weights, l *attention.Layout, temperature float32, keep bool, logp, entropy []float32) error {
	if err := t.Load(l, keep); err != nil {
		return err
	}
	return t.Run(w, temperature, keep, logp, entropy)
}

// Run computes, for each target of the loaded layout, the log-probability of its token under
// softmax(logits / temperature) and the entropy of that distribution. logp and entropy have
// an entry for each target and hold the results after the next Wait, or Sync of the device.
// keep allows one Backward before the next Load or Run; it requires Load with trained.
func (t *Tape) Run(w *Weights, temperature float32, keep bool, logp, entropy []float32) error {
	if keep && !t.trained {
		panic("model: Run with keep after Load without trained")
	}
	t.kept = false
	if t.targets == 0 {
		t.kept = keep
		return nil
	}
	if err := t.begin(keep); err != nil {
		return err
	}
	t.picks = t.index.picksOf(t.vocab.rank)
	t.picks.InvTemp = 1 / temperature
	if !t.cfg.First() {
		t.dev.Upload(t.inputs[0][0], t.In)
	}
	if err := t.run(t.key(w, keep), func() { t.forward(w) }); err != nil {
		return err
	}
	if t.cfg.Last() {
		t.dev.Download(logp, t.head.Logp.Slice(0, t.targets))
		t.dev.Download(entropy, t.head.Entropy.Slice(0, t.targets))
	} else {
		t.dev.Download(t.Out, t.last)
	}
	t.kept = keep
	return nil
}

// run calls kernels or replays the graph of an earlier call with this key.
func (t *Tape) run(key passKey, kernels func()) error {
	if t.captures() {
		return t.passes.run(key, kernels)
	}
	kernels()
	return t.pass.Carry.Err()
}

// key returns the key of a pass over the loaded layout.
func (t *Tape) key(w *Weights, keep bool) passKey {
	return passKey{shape: t.index.shape, weights: w, keep: keep, recompute: t.Recompute, invTemp: t.picks.InvTemp}
}

// forward computes the log-probabilities and entropies of all targets.
func (t *Tape) forward(w *Weights) {
	if t.cfg.First() {
		t.embed(w.Embed)
	}
	for i := range t.inputs {
		out := t.last
		if i+1 < len(t.inputs) {
			out = t.inputs[i+1][0]
		}
		t.block(w, i, out)
	}
	if t.cfg.Last() {
		t.head.Forward(&t.pass, w.Head, t.last, &t.picks)
	}
}

// embed looks up this rank's rows of the input. If tensor ranks divide the vocabulary, each looks
// up the rows of its tokens, packed by owner (see tokenOwners), and gets all others.
func (t *Tape) embed(table npu.Matrix) {
	x, d := t.inputs[0][0], t.cfg.HiddenSize
	if t.pass.Carry == nil {
		t.dev.Embed(x, table, t.index.tokens.IDs)
		return
	}
	owned := &t.index.owned
	from := 0                                // first value of this rank's packed rows
	counts := make([]int, len(owned.counts)) // values of each rank's packed rows
	for r, n := range owned.counts {
		counts[r] = n * d
		if r < t.vocab.rank {
			from += counts[r]
		}
	}
	if n := counts[t.vocab.rank]; n > 0 {
		t.dev.Embed(t.pass.Sum.Slice(from, from+n), table, owned.ids)
	}
	t.pass.Carry.Gather(t.pass.Sum, counts)
	if o := &t.pass.Own; o.Rows() > 0 {
		t.dev.GatherRows(x, t.pass.Sum, owned.places.Slice(o.Lo, o.Hi), d)
	}
}

// block runs layer i forward from t.inputs[i][0].
func (t *Tape) block(w *Weights, i int, out npu.Buffer) {
	for s, branch := range t.branches {
		to := out
		if s+1 < len(t.branches) {
			to = t.inputs[i][s+1]
		}
		branch.Forward(&t.pass, i, w.Layers[i][s], t.inputs[i][s], to)
	}
}

// blockBackward replaces t.dx, the gradient of layer i's output, by that of its input.
func (t *Tape) blockBackward(w *Weights, g *Gradients, i int) {
	for s, branch := range slices.Backward(t.branches) {
		branch.Backward(&t.pass, i, w.Layers[i][s], g.Layers[i][s], t.inputs[i][s], t.dx)
	}
}

// Backward adds the gradients of a loss to g, leaf by leaf, in the given format. dLogp is
// the derivative of the loss with respect to each target's log-probability in the last Run, whose
// weights must be w. It panics unless that Run kept its activations. The next Wait reports
// failures.
func (t *Tape) Backward(w *Weights, g *Gradients, dLogp []float32, fixed npu.FixedPoint) error {
	if !t.kept {
		panic("model: Backward without a kept Forward")
	}
	t.kept = false
	if t.targets == 0 {
		return nil
	}
	if n := t.index.shape.targets; t.cfg.Last() && len(dLogp) < n {
		t.paddedDLogp = append(append(t.paddedDLogp[:0], dLogp...), make([]float32, n-len(dLogp))...)
		dLogp = t.paddedDLogp
	}
	if t.cfg.Last() {
		t.dev.Upload(t.head.Logp, dLogp) // reuses the buffer, whose log-probabilities Run has downloaded
	} else {
		t.dev.Upload(t.dx, t.In)
	}
	key := t.key(w, true)
	key.gradients, key.fixed = g, fixed
	if err := t.run(key, func() { t.backward(w, g, fixed) }); err != nil {
		return err
	}
	if !t.cfg.First() {
		t.dev.Download(t.Out, t.dx)
	}
	return nil
}

// backward queues the kernels of Backward.
func (t *Tape) backward(w *Weights, g *Gradients, fixed npu.FixedPoint) {
	x := &t.index
	x.leaves.FixedPoint = fixed
	if t.cfg.Last() {
		t.picks.Leaves.FixedPoint, t.picks.Own.FixedPoint = fixed, fixed
		t.head.Backward(&t.pass, w.Head, g.Head, t.dx, &t.picks)
	}
	s := &t.pass.Gradients
	s.Leaves, s.Heads, s.Own = x.leaves, x.leaves, x.leaves
	if x.part.rows != nil {
		s.Own = x.part.leaves
		s.Own.FixedPoint = fixed
	}
	s.Heads.FixedPoint = fixed.Split(t.cfg.Whole().Heads)
	for i := range slices.Backward(t.inputs) {
		if t.Recompute && i < len(t.inputs)-1 { // the shared buffers have the activations of the last layer
			t.block(w, i, t.last)
		}
		g.begin(i)
		t.blockBackward(w, g, i)
		g.end(i)
	}
	if t.cfg.First() {
		dx := t.pass.ResidualRows(t.dx)
		if x.tokens.Lists() > 0 {
			t.dev.EmbedBackward(g.Embed, dx, &x.tokens, fixed)
		}
	}
}

// begin reserves memory for a pass over the loaded layout and assigns its buffers.
func (t *Tape) begin(keep bool) error {
	n, targets := t.index.shape.rows, t.index.shape.targets
	if err := t.branches.prepare(t.index.positions.Max); err != nil {
		return err
	}
	p := &t.pass
	p.Own.Set(t.index.part.rows, t.vocab.rank, n)
	own := p.Own.Rows()
	words := measure(func(take layer.Take) { t.carve(n, own, targets, keep, take) })
	if err := t.mem.reserve(words); err != nil {
		return fmt.Errorf("activations of %d rows: %w", n, err)
	}
	t.carve(n, own, targets, keep, t.mem.take)
	p.Rows, p.Positions, p.Segments = n, t.index.positions, t.index.segments
	return nil
}

// carve assigns the buffers of a pass. n is the number of rows, own the number of those that this rank has in the
// residual stream, and picks the number of targets.
func (t *Tape) carve(n, own, picks int, keep bool, take layer.Take) {
	c, d := t.cfg, t.cfg.HiddenSize
	residual := func(rows int) npu.Buffer { return take(npu.Float32, rows*d) }
	room := layer.Room{Rows: n, Own: own, Layers: 1, Backward: keep, DType: t.dtype, Take: take}
	t.pass.Norm = room.Activations(n * d)
	t.pass.Sum = t.pass.Norm
	rounds := room.DType != npu.Float32
	if rounds && c.Part() != nil {
		t.pass.Sum = residual(n)
	}
	t.last = residual(own)
	if c.Last() {
		t.head.Carve(room, picks)
	}
	if keep && !t.Recompute {
		room.Layers = c.Layers
	}
	t.branches.carve(room)
	for i, inputs := range t.inputs {
		for s := range inputs {
			switch {
			case !keep:
				inputs[s] = t.last
			case s > 0 && i >= room.Layers: // recomputed
				inputs[s] = t.inputs[0][s]
			default:
				inputs[s] = residual(own)
			}
		}
	}
	if keep {
		t.dx = residual(own)
		s := &t.pass.Gradients
		s.Norm = room.Activations(n * d)
		s.Part = s.Norm
		if rounds || t.vocab.sequence {
			s.All = room.Activations(n * d)
		}
		if t.vocab.sequence {
			s.Part = room.Activations(own * d)
		}
	}
}

// ActivationBytes returns the maximum memory, in bytes, of a tape of shape c for a micro-batch of
// rows tokens, in leaves of up to leaf rows, with targets predicted tokens. It leaves out the table
// of rotary positions and the index arrays.
func ActivationBytes(c *Config, n npu.Numerics, rows, leaf, targets int, recompute bool) int64 {
	t := NewTape(nil, c)
	t.dtype, t.Recompute = n.Type(), recompute
	own := rows
	if p := c.Part(); p != nil && p.Sequence {
		// Cuts are between leaves, so a rank may have up to one leaf more than an even share.
		own = min(rows, (rows+p.Mesh.TP-1)/p.Mesh.TP+leaf)
		t.vocab.sequence = true
	}
	const keep = true
	words := measure(func(take layer.Take) { t.carve(rows, own, targets, keep, take) })
	return int64(words) * int64(npu.Float32.Size())
}
