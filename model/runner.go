package model

import (
	"fmt"
	"slices"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/attention/cache"
	"github.com/easyrl/easyrl/attention/rope"
	"github.com/easyrl/easyrl/npu"
)

// Runner runs prompts and single tokens forward through a cache, for sampling. It is
// not safe for concurrent use.
type Runner struct {
	dev     npu.Device
	cfg     *Config
	maxRows int     // rows per call
	mem     scratch // memory of the activations and of head
	rope    rope.Table
	pass    pass
	acts    blockActs
	last    npu.Buffer // [maxRows, D] picked rows of the last layer's output
	out     npu.Buffer // [rows, V] logits, allocated when first needed
	// scores holds log-probabilities, entropies and statistics, [4, maxRows].
	scores  npu.Buffer
	head    *head
	batch   *npu.Batch // index arrays of a pass
	after   *npu.Batch // index arrays of LogProbs, Logits and Sample, which follow a pass
	ids     npu.Buffer // [maxRows] sampled ids
	runRows int        // number of rows of the last pass
	steps   *graphCache[stepKey]
	step    step
}

// NewRunner returns a runner for up to maxRows rows per call.
func NewRunner(dev npu.Device, c *Config, maxRows int) (*Runner, error) {
	r := &Runner{dev: dev, cfg: c, maxRows: maxRows, mem: scratch{dev: dev, purpose: npu.Activations},
		head: newHead(dev), rope: c.RopeTable(), batch: npu.NewBatch(dev), after: npu.NewBatch(dev),
		steps: newGraphCache[stepKey](dev)}
	if err := r.mem.reserve(runnerValues(c, maxRows)); err != nil {
		return nil, fmt.Errorf("activations of %d rows: %w", maxRows, err)
	}
	var err error
	if r.ids, err = dev.Alloc(npu.Int32, maxRows, npu.Activations); err != nil {
		r.mem.free()
		return nil, fmt.Errorf("ids of %d rows: %w", maxRows, err)
	}
	r.carve(r.mem.take)
	return r, nil
}

// carve takes the buffers for maxRows rows per call.
func (r *Runner) carve(take func(n int) npu.Buffer) {
	c, rows := r.cfg, r.maxRows
	d, qd, kd, f := rows*c.HiddenSize, rows*c.Heads*c.HeadDim, rows*c.KVHeads*c.HeadDim, rows*c.FFNSize
	x := take(d)
	r.pass = pass{dev: r.dev, cfg: c, norm: take(d), inner: take(f)}
	r.acts = blockActs{x: x, mid: x, q: take(qd), k: take(kd), v: take(kd), att: take(qd), gate: take(f), up: take(f)}
	r.acts.qRaw, r.acts.kRaw = r.acts.q, r.acts.k
	r.last, r.scores = take(d), take(4*rows)
	r.head.carve(rows, c.VocabSize, take)
}

// runnerValues returns the number of activation values of a runner for up to rows rows per call.
func runnerValues(c *Config, rows int) int {
	total := 0
	r := &Runner{cfg: c, maxRows: rows, head: newHead(nil)}
	r.carve(func(n int) npu.Buffer {
		total += padded(n)
		return npu.Buffer{}
	})
	return total
}

// RunnerBytes returns the memory, in bytes, of a runner for up to rows rows per call, with logits for
// at most logits of them. It leaves out the table of rotary positions and the index arrays.
func RunnerBytes(c *Config, rows, logits int) int64 {
	return 4 * (int64(runnerValues(c, rows)) + int64(logits)*int64(c.VocabSize))
}

// Close frees the runner's memory.
func (r *Runner) Close() {
	r.steps.free()
	r.mem.free()
	r.rope.Free(r.dev)
	r.batch.Free()
	r.after.Free()
	r.dev.Free(r.ids)
	r.dev.Free(r.out)
}

// Prefill runs a layout from scratch, writes the keys and values of row i to cache
// slot slots[i], and returns the logits [len(want), V] of the rows in want. The
// logits are valid until the next call. The device's next Sync reports failures.
func (r *Runner) Prefill(w *Weights, c *cache.Cache, l *attention.Layout, slots, want []int32) (npu.Buffer, error) {
	n := l.Rows()
	if err := r.check(n); err != nil {
		return npu.Buffer{}, err
	}
	if len(want) > n {
		return npu.Buffer{}, fmt.Errorf("logits requested for %d rows, expected at most the %d that run", len(want), n)
	}
	if err := checkTokens(r.cfg.VocabSize, l.Tokens); err != nil {
		return npu.Buffer{}, err
	}
	if err := r.batch.Begin(2*n + len(want) + len(slots) + 3*len(l.Segments)); err != nil {
		return npu.Buffer{}, err
	}
	logits, err := r.begin(n, len(want), slices.Max(l.Positions))
	if err != nil {
		return npu.Buffer{}, err
	}
	r.runRows = n
	b, d := r.batch, r.cfg.HiddenSize
	ids, wanted, cacheSlots, segments := b.Ints(l.Tokens), b.Ints(want), b.Ints(slots), b.Segments(l.Segments)
	r.pass.positions = b.Ints(l.Positions)
	b.Upload()
	a, p := r.sized(n)
	p.layers(w, &a, ids, func(layer int) {
		r.dev.CacheWrite(c.K[layer], c.V[layer], a.k, a.v, cacheSlots, r.cfg.Attention())
		r.dev.Attention(a.att, npu.Buffer{}, a.q, a.k, a.v, segments, r.cfg.Attention())
	})
	x := r.last.Slice(0, len(want)*d)
	r.dev.GatherRows(x, a.x, wanted, d)
	r.project(w, logits, x, len(want))
	return logits, nil
}

// check requires n, a number of rows, to be within the runner's limit.
func (r *Runner) check(n int) error {
	if n == 0 || n > r.maxRows {
		return fmt.Errorf("run %d rows, expected 1 to %d", n, r.maxRows)
	}
	return nil
}

// begin makes room for a pass of n rows whose largest position is last, and returns a buffer for
// the logits of want rows.
func (r *Runner) begin(n, want int, last int32) (npu.Buffer, error) {
	table, err := r.rope.Grow(r.dev, last)
	if err != nil {
		return npu.Buffer{}, err
	}
	r.pass.t, r.pass.rope = n, table
	r.pass.own.set(nil, 0, n)
	return r.logits(want)
}

// project computes the logits of x, n rows of the last layer's output.
func (r *Runner) project(w *Weights, logits, x npu.Buffer, n int) {
	h := r.pass.norm.Slice(0, n*r.cfg.HiddenSize)
	r.dev.RMSNorm(h, x, w.Norm, n, r.cfg.NormEps)
	r.dev.Linear(logits, h, w.Head, npu.Buffer{}, n, false)
}

// Sample draws a token from each row of logits, as npu.Device.Sample does, and waits.
func (r *Runner) Sample(ids []int32, logp []float32, logits npu.Buffer, params []npu.SampleParams) error {
	n := len(params)
	if err := r.after.Begin(5 * n); err != nil {
		return err
	}
	list := r.after.Params(params)
	r.after.Upload()
	sampled, scores := r.ids.Slice(0, n), r.scores.Slice(0, n)
	r.dev.Sample(sampled, scores, logits, r.cfg.VocabSize, list)
	r.dev.DownloadInts(ids, sampled)
	r.dev.Download(logp, scores)
	return r.dev.Sync()
}

// sized returns the activations and the pass sliced to n rows.
func (r *Runner) sized(n int) (blockActs, pass) {
	c, a, p := r.cfg, r.acts, r.pass
	d, qd, kd, f := n*c.HiddenSize, n*c.Heads*c.HeadDim, n*c.KVHeads*c.HeadDim, n*c.FFNSize
	a.x, a.mid = a.x.Slice(0, d), a.mid.Slice(0, d)
	a.q, a.k, a.v, a.att = a.q.Slice(0, qd), a.k.Slice(0, kd), a.v.Slice(0, kd), a.att.Slice(0, qd)
	a.qRaw, a.kRaw = a.q, a.k
	a.gate, a.up = a.gate.Slice(0, f), a.up.Slice(0, f)
	p.norm, p.inner = p.norm.Slice(0, d), p.inner.Slice(0, f)
	return a, p
}

// logits returns a buffer for n rows of logits and grows it if needed.
func (r *Runner) logits(n int) (npu.Buffer, error) {
	need := n * r.cfg.VocabSize
	if r.out.Len() < need {
		r.dev.Free(r.out)
		r.out = npu.Buffer{}
		buf, err := r.dev.Alloc(npu.Float32, need, npu.Activations)
		if err != nil {
			return npu.Buffer{}, fmt.Errorf("logits of %d rows: %w", n, err)
		}
		r.out = buf
	}
	return r.out.Slice(0, need), nil
}

// LogProbs sets logp[i] to the log-probability of targets[i] after row rows[i] of the
// last Prefill or Step, at the given temperature. The bits equal those of sampling
// and of Tape.Forward. The logits that the Prefill or Step returned stay valid.
func (r *Runner) LogProbs(w *Weights, logp []float32, rows, targets []int32, temperature float32) error {
	if err := checkTokens(r.cfg.VocabSize, targets); err != nil {
		return err
	}
	for len(rows) > 0 {
		n := min(len(rows), r.maxRows)
		h, wanted, err := r.normed(w, rows[:n], targets[:n])
		if err != nil {
			return err
		}
		scores := r.scores.Slice(0, n)
		entropies := r.scores.Slice(r.maxRows, r.maxRows+n)
		stats := r.scores.Slice(2*r.maxRows, 2*r.maxRows+2*n)
		r.head.forward(scores, entropies, stats, h, w.Head, wanted, 1/temperature)
		r.dev.Download(logp[:n], scores)
		logp, rows, targets = logp[n:], rows[n:], targets[n:]
	}
	return r.dev.Sync()
}

// Logits sets logits, [len(rows), V] in host memory, to the logits of the given rows of the last
// Prefill or Step. There are at most as many rows as a call of the runner may have. The logits
// that the Prefill or Step returned stay valid.
func (r *Runner) Logits(w *Weights, logits []float32, rows []int32) error {
	buf, err := r.dev.Alloc(npu.Float32, len(logits), npu.Activations)
	if err != nil {
		return fmt.Errorf("logits of %d rows: %w", len(rows), err)
	}
	defer r.dev.Free(buf)
	h, _, err := r.normed(w, rows, nil)
	if err != nil {
		return err
	}
	r.dev.Linear(buf, h, w.Head, npu.Buffer{}, len(rows), false)
	r.dev.Download(logits, buf)
	return r.dev.Sync()
}

// normed returns the normalized outputs [len(rows), D] of the last layer for rows of the last pass,
// and targets in device memory.
func (r *Runner) normed(w *Weights, rows, targets []int32) (npu.Buffer, npu.Ints, error) {
	n, d := len(rows), r.cfg.HiddenSize
	for _, row := range rows {
		if row < 0 || int(row) >= r.runRows {
			return npu.Buffer{}, npu.Ints{}, fmt.Errorf("row %d of the last pass, expected 0 to %d", row, r.runRows-1)
		}
	}
	if err := r.after.Begin(n + len(targets)); err != nil {
		return npu.Buffer{}, npu.Ints{}, err
	}
	picks, wanted := r.after.Ints(rows), r.after.Ints(targets)
	r.after.Upload()
	x, h := r.last.Slice(0, n*d), r.pass.norm.Slice(0, n*d)
	r.dev.GatherRows(x, r.acts.x, picks, d)
	r.dev.RMSNorm(h, x, w.Norm, n, r.cfg.NormEps)
	return h, wanted, nil
}
