package model

import (
	"errors"
	"fmt"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/model/carry"
	"github.com/easyrl/easyrl/model/rope"
	"github.com/easyrl/easyrl/npu"
)

// Tape runs layouts forward and backward. It owns the activations, which grow to the
// largest layout. It is not safe for concurrent use.
type Tape struct {
	dev npu.Device
	cfg *Config
	// Recompute keeps only each block's input and recomputes the rest in the backward
	// pass. This saves memory, costs a third more work and gives the same bits.
	Recompute bool
	// In and Out are host memory for [OwnRows, D] values of a pipeline stage that is not the first or
	// the last one. Run reads the output of the stage before from In and writes that of this
	// stage to Out; Backward does the same with gradients, the other way round. Out is valid
	// after the next Wait.
	In, Out []float32

	mem     rows
	rope    rope.Table
	pass    pass
	acts    []blockActs // one per layer; they share buffers if nothing is kept
	last    npu.Buffer  // [T, D] output of the last block
	picked  npu.Buffer  // [N, D] rows of last that predict a target
	hidden  npu.Buffer  // [N, D] picked, normed
	logp    npu.Buffer  // [N]
	entropy npu.Buffer  // [N]
	stats   npu.Buffer  // [N, 2], see npu.Device.SoftmaxFinish
	head    *head
	dPicked npu.Buffer // [N, D]
	dx      npu.Buffer // [T, D]
	grads   blockGrads

	batch    *npu.Batch
	vocab    vocabulary
	index    layoutArrays // of the last Load
	targets  int          // of the last Load, without padding
	trained  bool         // of the last Load
	kept     bool         // Backward may follow
	invTemp  float32
	passes   *graphCache[passKey]
	gradient []float32 // of the log-probabilities, with padding
}

// passKey identifies the kernel calls of a pass: equal keys mean equal arguments.
type passKey struct {
	shape           arrayShape
	weights         *Weights
	gradients       *Gradients // of a backward pass, else nil
	fixed           npu.FixedPoint
	keep, recompute bool
	invTemp         float32
}

// NewTape returns a tape for decoders of shape c on dev.
func NewTape(dev npu.Device, c *Config) *Tape {
	return &Tape{dev: dev, cfg: c, acts: make([]blockActs, c.Layers), mem: rows{dev: dev, purpose: npu.Activations},
		head: newHead(dev), rope: c.RopeTable(), batch: npu.NewBatch(dev), vocab: vocabulary{size: c.Whole().VocabSize},
		passes: newGraphCache[passKey](dev)}
}

// Divide connects the tape to those of the other tensor ranks. All run the same layouts.
func (t *Tape) Divide(ranks *carry.Carry) {
	t.pass.carry, t.vocab.starts, t.vocab.rank = ranks, t.cfg.Part().VocabStarts(), t.cfg.Part().At.TP
	t.vocab.sequence = t.cfg.Part().Sequence
	t.head.divide(ranks, t.cfg.Part().Vocab.From)
}

// Close frees the activations.
func (t *Tape) Close() {
	t.passes.free()
	t.mem.free()
	t.rope.Free(t.dev)
	t.batch.Free()
}

// Wait waits for the device. If it returns nil, the results of earlier calls of Run are valid.
func (t *Tape) Wait() error { return errors.Join(t.pass.carry.Err(), t.dev.Sync()) }

// Load uploads the index arrays of l for Run. trained adds those that Backward needs. l may
// change when Load returns.
func (t *Tape) Load(l *attention.Layout, trained bool) error {
	t.kept, t.trained, t.targets = false, trained, len(l.Targets)
	return t.index.upload(t.batch, &t.vocab, l, trained, t.captures())
}

// captures reports whether kernels are captured. Those of several ranks wait for each other.
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
	t.invTemp = 1 / temperature
	if !t.cfg.First() {
		t.dev.Upload(t.acts[0].x, t.In)
	}
	if err := t.run(t.key(w, keep), func() { t.forward(w) }); err != nil {
		return err
	}
	if t.cfg.Last() {
		t.dev.Download(logp, t.logp.Slice(0, t.targets))
		t.dev.Download(entropy, t.entropy.Slice(0, t.targets))
	} else {
		t.dev.Download(t.Out, t.last)
	}
	t.kept = keep
	return nil
}

// run calls kernels, or replays them.
func (t *Tape) run(key passKey, kernels func()) error {
	if t.captures() {
		return t.passes.run(key, kernels)
	}
	kernels()
	return t.pass.carry.Err()
}

// key returns the key of a pass over the loaded layout.
func (t *Tape) key(w *Weights, keep bool) passKey {
	return passKey{shape: t.index.shape, weights: w, keep: keep, recompute: t.Recompute, invTemp: t.invTemp}
}

// forward computes the log-probabilities and entropies of all targets.
func (t *Tape) forward(w *Weights) {
	x := &t.index
	if t.cfg.First() {
		t.embed(w.Embed)
	}
	for i := range t.acts {
		out := t.last
		if i+1 < len(t.acts) {
			out = t.acts[i+1].x
		}
		t.block(w, i, out)
	}
	if !t.cfg.Last() {
		return
	}
	lo, hi, picks := 0, x.shape.targets, x.picks
	if x.part.rows != nil {
		lo, hi, picks = x.part.targets[t.vocab.rank], x.part.targets[t.vocab.rank+1], x.part.picks
	}
	if d := t.cfg.HiddenSize; lo < hi {
		t.dev.GatherRows(t.picked.Slice(lo*d, hi*d), t.last, picks, d)
		t.dev.RMSNorm(t.hidden.Slice(lo*d, hi*d), t.picked.Slice(lo*d, hi*d), w.Norm, hi-lo, t.cfg.NormEps)
	}
	if x.part.rows != nil {
		t.pass.gather(t.hidden, x.part.targets, t.cfg.HiddenSize)
	}
	t.head.forward(t.logp, t.entropy, t.stats, t.hidden, w.Head, x.targets, t.invTemp)
}

// embed looks up the rows of the input. Each tensor rank looks up those of its tokens.
func (t *Tape) embed(table npu.Matrix) {
	x, d := t.acts[0].x, t.cfg.HiddenSize
	if t.pass.carry == nil {
		t.dev.Embed(x, table, t.index.tokens.IDs)
		return
	}
	owned, from := &t.index.owned, 0
	counts := make([]int, len(owned.counts))
	for r, n := range owned.counts {
		counts[r] = n * d
		if r < t.vocab.rank {
			from += counts[r]
		}
	}
	if n := counts[t.vocab.rank]; n > 0 {
		t.dev.Embed(t.pass.norm.Slice(from, from+n), table, owned.ids)
	}
	t.pass.carry.Gather(t.pass.norm, counts)
	if o := &t.pass.own; o.rows() > 0 {
		t.dev.GatherRows(x, t.pass.norm, owned.places.Slice(o.lo, o.hi), d)
	}
}

func (t *Tape) block(w *Weights, i int, out npu.Buffer) {
	a := &t.acts[i]
	t.pass.forward(&w.Layers[i], a, out, func() {
		t.dev.Attention(a.att, a.stats, a.q, a.k, a.v, t.index.segments, t.cfg.Attention())
	})
}

// Backward adds to g the gradients of a loss, leaf by leaf, in the given format. dLogp is
// the derivative of the loss by each target's log-probability in the last Forward. w must
// be the weights of that Forward. The next Wait reports failures.
func (t *Tape) Backward(w *Weights, g *Gradients, dLogp []float32, fixed npu.FixedPoint) error {
	if !t.kept {
		panic("model: Backward without a kept Forward")
	}
	t.kept = false
	if t.targets == 0 {
		return nil
	}
	if n := t.index.shape.targets; t.cfg.Last() && len(dLogp) < n {
		t.gradient = append(append(t.gradient[:0], dLogp...), make([]float32, n-len(dLogp))...)
		dLogp = t.gradient
	}
	if t.cfg.Last() {
		t.dev.Upload(t.logp, dLogp)
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

func (t *Tape) backward(w *Weights, g *Gradients, fixed npu.FixedPoint) {
	x := &t.index
	x.leaves.FixedPoint, x.picked.FixedPoint = fixed, fixed
	if t.cfg.Last() {
		t.head.backward(t.dPicked, g.Head, t.logp, t.stats, t.hidden, w.Head, x.targets, t.invTemp, &x.picked)
		t.spread(w, g, fixed)
	}
	t.grads.segments, t.grads.leaves, t.grads.heads, t.grads.own = x.segments, x.leaves, x.leaves, x.leaves
	if x.part.rows != nil {
		t.grads.own = x.part.leaves
		t.grads.own.FixedPoint = fixed
	}
	t.grads.heads.FixedPoint = fixed.Split(t.cfg.Whole().Heads)
	for i := len(t.acts) - 1; i >= 0; i-- {
		if t.Recompute && i < len(t.acts)-1 {
			t.block(w, i, t.last)
		}
		g.begin(i)
		t.pass.backward(&w.Layers[i], &g.Layers[i], &t.acts[i], &t.grads, t.dx)
		g.end(i)
	}
	if t.cfg.First() {
		dx := t.pass.whole(t.dx, t.grads.whole)
		if !x.tokens.Firsts.IsNil() {
			t.dev.EmbedBackward(g.Embed, dx, &x.tokens, fixed)
		}
	}
}

// spread turns t.dPicked from the gradient of t.hidden into that of t.last, in t.dx.
func (t *Tape) spread(w *Weights, g *Gradients, fixed npu.FixedPoint) {
	x, d := &t.index, t.cfg.HiddenSize
	lo, hi, picks, leaves := 0, x.shape.targets, x.picks, x.picked
	if x.part.rows != nil {
		lo, hi, picks, leaves = x.part.targets[t.vocab.rank], x.part.targets[t.vocab.rank+1], x.part.picks,
			x.part.picked
		leaves.FixedPoint = fixed
	}
	if !t.dx.IsNil() {
		t.dev.Zero(t.dx)
	}
	if lo == hi {
		return
	}
	part := t.dPicked.Slice(lo*d, hi*d)
	t.dev.RMSNormBackward(part, g.Norm, part, t.picked.Slice(lo*d, hi*d), w.Norm, 1, t.cfg.NormEps, false, &leaves)
	t.dev.ScatterAddRows(t.dx, part, picks, d)
}

// begin reserves memory for a pass over the loaded layout and lays out its buffers.
func (t *Tape) begin(keep bool) error {
	n, targets := t.index.shape.rows, t.index.shape.targets
	table, err := t.rope.Grow(t.dev, t.index.positions.Max)
	if err != nil {
		return err
	}
	t.pass.own.set(t.index.part.rows, t.vocab.rank, n)
	own := t.pass.own.rows()
	if err := t.mem.reserve(t.carve(n, own, targets, keep, nil)); err != nil {
		return fmt.Errorf("activations of %d rows: %w", n, err)
	}
	t.carve(n, own, targets, keep, &t.mem)
	t.pass.dev, t.pass.cfg, t.pass.t, t.pass.positions, t.pass.rope = t.dev, t.cfg, n, t.index.positions, table
	return nil
}

// carve assigns the buffers of a pass over n rows, of whose residual stream this rank has own
// rows, from mem and returns the number of values. With mem nil it only counts.
func (t *Tape) carve(n, own, picks int, keep bool, mem *rows) int {
	total := 0
	take := func(n int) npu.Buffer {
		total += padded(n)
		if mem == nil {
			return npu.Buffer{}
		}
		return mem.take(n)
	}
	c := t.cfg
	d, qd, kd, f := c.HiddenSize, c.Heads*c.HeadDim, c.KVHeads*c.HeadDim, c.FFNSize
	t.pass.norm, t.pass.inner = take(n*d), take(n*f)
	t.last = take(own * d)
	t.picked, t.hidden, t.logp, t.entropy, t.stats = take(picks*d), take(picks*d), take(picks), take(picks),
		take(2*picks)
	if c.Last() {
		t.head.carve(picks, c.MaxVocabShard(), take)
	}
	var shared blockActs
	for i := range t.acts {
		if keep && !t.Recompute || i == 0 {
			shared = t.carveBlock(n, own, keep, take)
		}
		t.acts[i] = shared
		if keep {
			t.acts[i].x = take(own * d)
		} else {
			t.acts[i].x, t.acts[i].mid = t.last, t.last
		}
	}
	if keep {
		t.dPicked, t.dx = take(picks*d), take(own*d)
		s := &t.grads
		s.norm, s.att, s.q, s.k, s.v = take(n*d), take(n*qd), take(n*qd), take(n*kd), take(n*kd)
		if s.part = s.norm; t.vocab.sequence {
			s.whole, s.part = take(n*d), take(own*d)
		}
	}
	return total
}

// carveBlock takes what one block keeps, except its input.
func (t *Tape) carveBlock(n, own int, keep bool, take func(int) npu.Buffer) blockActs {
	c := t.cfg
	qd, kd := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	a := blockActs{q: take(n * qd), k: take(n * kd), v: take(n * kd), att: take(n * qd),
		gate: take(n * c.FFNSize), up: take(n * c.FFNSize)}
	a.qRaw, a.kRaw = a.q, a.k
	if keep {
		a.mid, a.stats = take(own*c.HiddenSize), take(n*c.Heads*2)
		if c.QKNorm {
			a.qRaw, a.kRaw = take(n*qd), take(n*kd)
		}
	}
	return a
}

// ActivationBytes returns the most memory of a tape of shape c for a micro-batch of rows tokens, in
// leaves of up to leaf rows, with targets predicted tokens. It leaves out the table of rotary positions
// and index arrays.
func ActivationBytes(c *Config, rows, leaf, targets int, recompute bool) int64 {
	t := NewTape(nil, c)
	t.Recompute = recompute
	own := rows
	if p := c.Part(); p != nil && p.Sequence {
		own, t.vocab.sequence = min(rows, (rows+p.Mesh.TP-1)/p.Mesh.TP+leaf), true
	}
	return int64(t.carve(rows, own, targets, true, nil)) * 4
}
