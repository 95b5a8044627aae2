package model

import (
	"fmt"

	"github.com/easyrl/easyrl/model/layer"
	"github.com/easyrl/easyrl/npu"
)

// Runner runs prompts and single tokens forward through a cache, for sampling. It is
// not safe for concurrent use.
type Runner struct {
	dev      npu.Device
	cfg      *Config
	dtype    npu.DType // of activations
	maxRows  int       // rows per call
	mem      scratch   // memory of the activations and of head
	pass     layer.Pass
	branches branches
	kv       layer.Cache // the pass's
	x        npu.Buffer  // [maxRows, D] residual stream
	norm     npu.Buffer  // [maxRows, D] memory of pass.Norm
	acts     int         // words of mem before the activations of branches
	last     npu.Buffer  // [maxRows, D] picked rows of the last layer's output
	out      npu.Buffer  // [rows, V] logits, allocated when first needed
	// scores holds log-probabilities, entropies and statistics, [4, maxRows].
	scores  npu.Buffer
	head    *layer.Logits
	batch   *npu.Batch // index arrays of a pass
	after   *npu.Batch // index arrays of LogProbs, Logits and Sample, which follow a pass
	ids     npu.Buffer // [maxRows] sampled ids
	runRows int        // number of rows of the last pass
	steps   *graphCache[stepKey]
	step    step
	chunks  chunkArrays
}

// NewRunner returns a runner for up to maxRows rows per call.
func NewRunner(dev npu.Device, c *Config, maxRows int) (*Runner, error) {
	r := &Runner{dev: dev, cfg: c, dtype: activationType(dev), maxRows: maxRows,
		mem:  scratch{dev: dev, purpose: npu.Activations},
		pass: layer.Pass{Dev: dev, Width: c.HiddenSize, Eps: c.NormEps}, branches: newBranches(dev, c),
		head: c.Head().NewLogits(dev, nil), batch: npu.NewBatch(dev), after: npu.NewBatch(dev),
		steps: newGraphCache[stepKey](dev)}
	if err := r.mem.reserve(runnerWords(c, r.dtype, maxRows)); err != nil {
		return nil, fmt.Errorf("activations of %d rows: %w", maxRows, err)
	}
	var err error
	if r.ids, err = dev.Alloc(npu.Int32, maxRows, npu.Activations); err != nil {
		r.mem.free()
		return nil, fmt.Errorf("ids of %d rows: %w", maxRows, err)
	}
	r.carve(r.mem.take)
	r.acts = r.mem.used
	return r, nil
}

// carve takes the buffers for maxRows rows per call, without those of branches.
func (r *Runner) carve(take layer.Take) {
	d := r.maxRows * r.cfg.HiddenSize
	r.x, r.norm = take(npu.Float32, d), take(r.dtype, d)
	r.last, r.scores = take(npu.Float32, d), take(npu.Float32, 4*r.maxRows)
	r.head.Carve(r.maxRows, layer.Room{DType: r.dtype, Take: take})
}

// carveBranches takes the activations of branches for n rows.
func (r *Runner) carveBranches(n int, take layer.Take) {
	r.branches.carve(layer.Room{Rows: n, Own: n, Layers: 1, DType: r.dtype, Take: take})
}

// runnerWords returns the number of words of float32 of the activations of a runner for up to rows rows per call.
func runnerWords(c *Config, dtype npu.DType, rows int) int {
	r := &Runner{cfg: c, dtype: dtype, maxRows: rows, head: c.Head().NewLogits(nil, nil), branches: newBranches(nil, c)}
	return measure(func(take layer.Take) {
		r.carve(take)
		r.carveBranches(rows, take)
	})
}

// RunnerBytes returns the memory, in bytes, of a runner for up to rows rows per call, with logits for
// at most logits of them. It leaves out the table of rotary positions and the index arrays.
func RunnerBytes(c *Config, n npu.Numerics, rows, logits int) int64 {
	return int64(npu.Float32.Size()) * (int64(runnerWords(c, n.Type(), rows)) + int64(logits)*int64(c.VocabSize))
}

// Close frees the runner's memory.
func (r *Runner) Close() {
	r.steps.free()
	r.mem.free()
	r.branches.free()
	r.batch.Free()
	r.after.Free()
	r.dev.Free(r.ids)
	r.dev.Free(r.out)
}

// layers runs tokens through all layers and returns the output of the last one.
func (r *Runner) layers(w *Weights, tokens npu.Ints) npu.Buffer {
	x := r.x.Slice(0, r.pass.Rows*r.cfg.HiddenSize)
	r.dev.Embed(x, w.Embed, tokens)
	for i, block := range w.Layers {
		for s, branch := range r.branches {
			branch.Forward(&r.pass, i, block[s], x, x)
		}
	}
	return x
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
	if err := r.branches.prepare(last); err != nil {
		return npu.Buffer{}, err
	}
	r.mem.used = r.acts
	r.carveBranches(n, r.mem.take)
	p := &r.pass
	p.Rows, p.Norm, p.Cache = n, r.norm.Slice(0, n*r.cfg.HiddenSize), &r.kv
	p.Own.Set(nil, 0, n)
	return r.logits(want)
}

// project computes the logits of x, n rows of the last layer's output.
func (r *Runner) project(w *Weights, logits, x npu.Buffer, n int) {
	h := r.norm.Slice(0, n*r.cfg.HiddenSize)
	r.dev.RMSNorm(h, x, w.Head.Vectors[0], n, r.cfg.NormEps)
	r.dev.Linear(logits, h, w.Head.Matrices[0], npu.Buffer{}, n, npu.Fresh)
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
		r.head.Forward(scores, entropies, stats, h, w.Head.Matrices[0], wanted, 1/temperature)
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
	r.dev.Linear(buf, h, w.Head.Matrices[0], npu.Buffer{}, len(rows), npu.Fresh)
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
	x, h := r.last.Slice(0, n*d), r.norm.Slice(0, n*d)
	r.dev.GatherRows(x, r.x, picks, d)
	r.dev.RMSNorm(h, x, w.Head.Vectors[0], n, r.cfg.NormEps)
	return h, wanted, nil
}
