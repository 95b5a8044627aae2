package model

import (
	"fmt"
	"slices"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/model/head"
	"github.com/easyrl/easyrl/npu"
)

// Cache is the paged key-value cache of a decoder. Each layer holds keys and values
// for pages·npu.PageSize positions.
type Cache struct {
	dev    npu.Device
	k, v   []npu.Buffer // one per layer
	page   int          // values per page, in k and in v
	buffer npu.Buffer
}

// NewCache allocates a cache of the given number of pages.
func NewCache(dev npu.Device, c *Config, pages int) (*Cache, error) {
	page := npu.PageSize * c.KVHeads * c.HeadDim
	buf, err := dev.Alloc(2*c.Layers*pages*page, npu.KV)
	if err != nil {
		return nil, fmt.Errorf("allocate key-value cache of %d pages: %w", pages, err)
	}
	cache := &Cache{dev: dev, page: page, buffer: buf}
	for l := range c.Layers {
		at := 2 * l * pages * page
		cache.k = append(cache.k, buf.Slice(at, at+pages*page))
		cache.v = append(cache.v, buf.Slice(at+pages*page, at+2*pages*page))
	}
	return cache, nil
}

// CopyPage copies page src to page dst in all layers.
func (c *Cache) CopyPage(dst, src int32) {
	d, s := int(dst)*c.page, int(src)*c.page
	for l := range c.k {
		c.dev.Copy(c.k[l].Slice(d, d+c.page), c.k[l].Slice(s, s+c.page))
		c.dev.Copy(c.v[l].Slice(d, d+c.page), c.v[l].Slice(s, s+c.page))
	}
}

// Close frees the cache.
func (c *Cache) Close() { c.dev.Free(c.buffer) }

// Runner runs prompts and single tokens forward through a cache, for sampling. It is
// not safe for concurrent use.
type Runner struct {
	dev  npu.Device
	cfg  *Config
	max  int
	mem  rows
	rope ropeTable
	pass pass
	acts blockActs
	last npu.Buffer // [rows, D] picked rows, normed
	out  npu.Buffer // [rows, V]
	// scores holds log-probabilities, entropies and statistics, [4, rows], for LogProbs.
	scores npu.Buffer
	head   *head.Head
}

// NewRunner returns a runner for up to maxRows rows per call.
func NewRunner(dev npu.Device, c *Config, maxRows int) (*Runner, error) {
	r := &Runner{dev: dev, cfg: c, max: maxRows, mem: rows{dev: dev, purpose: npu.Activations}, head: head.New(dev)}
	d, qd, kd, f := c.HiddenSize, c.Heads*c.HeadDim, c.KVHeads*c.HeadDim, c.FFNSize
	if err := r.mem.reserve(runnerValues(c, maxRows)); err != nil {
		return nil, fmt.Errorf("activations of %d rows: %w", maxRows, err)
	}
	take := func(n int) npu.Buffer { return r.mem.take(n * maxRows) }
	x := take(d)
	r.pass = pass{dev: dev, cfg: c, norm: take(d), inner: take(f)}
	r.acts = blockActs{x: x, mid: x, q: take(qd), k: take(kd), v: take(kd), att: take(qd), gate: take(f), up: take(f)}
	r.acts.qRaw, r.acts.kRaw = r.acts.q, r.acts.k
	r.last, r.scores = take(d), take(4)
	r.head.Carve(maxRows, c.VocabSize, r.mem.take)
	return r, nil
}

// runnerValues returns the number of activation values of a runner for up to rows
// rows per call.
func runnerValues(c *Config, rows int) int {
	d, qd, kd, f := c.HiddenSize, c.Heads*c.HeadDim, c.KVHeads*c.HeadDim, c.FFNSize
	total := 0
	for _, n := range []int{d, d, f, qd, kd, kd, qd, f, f, d, 4} {
		total += padded(n * rows)
	}
	head.New(nil).Carve(rows, c.VocabSize, func(n int) npu.Buffer { total += padded(n); return npu.Buffer{} })
	return total
}

// RunnerBytes returns the memory of a runner for up to rows rows per call, of which
// at most logits produce logits. It does not include the table of rotary positions.
func RunnerBytes(c *Config, rows, logits int) int64 {
	return 4 * (int64(runnerValues(c, rows)) + int64(logits)*int64(c.VocabSize))
}

// Close frees the runner's memory.
func (r *Runner) Close() {
	r.mem.free()
	r.rope.free(r.dev)
	if !r.out.IsNil() {
		r.dev.Free(r.out)
	}
}

// Prefill runs a layout from scratch, writes the keys and values of row i to cache
// slot slots[i], and returns the logits [len(want), V] of the rows in want. The
// logits are valid until the next call.
func (r *Runner) Prefill(w *Weights, c *Cache, l *attention.Layout, slots, want []int32) (npu.Buffer, error) {
	return r.run(w, l.Tokens, l.Positions, want, func(layer int, a *blockActs) {
		r.dev.CacheWrite(c.k[layer], c.v[layer], a.k, a.v, slots, r.cfg.heads())
		r.dev.Attention(a.att, npu.Buffer{}, a.q, a.k, a.v, l.Segments, r.cfg.heads())
	})
}

// Decode runs one new token for each of len(ids) sequences. Token i writes its keys
// and values to slots[i] and attends to the first lens[i] positions, itself included,
// of the pages tables[i·stride:]. Decode returns the logits [len(ids), V], valid
// until the next call.
func (r *Runner) Decode(w *Weights, c *Cache, ids, positions, slots, tables []int32, stride int, lens []int32) (npu.Buffer, error) {
	return r.run(w, ids, positions, nil, func(layer int, a *blockActs) {
		r.dev.CacheWrite(c.k[layer], c.v[layer], a.k, a.v, slots, r.cfg.heads())
		r.dev.AttentionCached(a.att, a.q, c.k[layer], c.v[layer], tables, stride, lens, r.cfg.heads())
	})
}

// run passes rows through all layers and returns the logits of the rows in want, or
// of all rows if want is nil.
func (r *Runner) run(w *Weights, ids, positions, want []int32, attend func(layer int, a *blockActs)) (npu.Buffer, error) {
	n, c := len(ids), r.cfg
	if n == 0 || n > r.max {
		return npu.Buffer{}, fmt.Errorf("run %d rows, expected 1 to %d", n, r.max)
	}
	if len(want) > n {
		return npu.Buffer{}, fmt.Errorf("logits requested for %d rows, expected at most the %d that run", len(want), n)
	}
	if err := checkTokens(c, ids); err != nil {
		return npu.Buffer{}, err
	}
	rope, err := r.rope.grow(r.dev, c, slices.Max(positions))
	if err != nil {
		return npu.Buffer{}, err
	}
	r.pass.t, r.pass.positions, r.pass.rope = n, positions, rope
	a, p := r.sized(n)
	r.dev.Embed(a.x, w.Embed, ids)
	for i := range w.Layers {
		p.forward(&w.Layers[i], &a, a.x, func(a *blockActs) { attend(i, a) })
	}
	x := a.x
	if want != nil {
		n = len(want)
		x = r.last.Slice(0, n*c.HiddenSize)
		r.dev.GatherRows(x, a.x, want, c.HiddenSize)
	}
	h := p.norm.Slice(0, n*c.HiddenSize)
	r.dev.RMSNorm(h, x, w.Norm, n, c.NormEps)
	logits, err := r.logits(n)
	if err != nil {
		return npu.Buffer{}, err
	}
	r.dev.Linear(logits, h, w.Head, npu.Buffer{}, n, false)
	return logits, r.dev.Sync()
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
		if !r.out.IsNil() {
			r.dev.Free(r.out)
			r.out = npu.Buffer{}
		}
		buf, err := r.dev.Alloc(need, npu.Activations)
		if err != nil {
			return npu.Buffer{}, fmt.Errorf("logits of %d rows: %w", n, err)
		}
		r.out = buf
	}
	return r.out.Slice(0, need), nil
}

// LogProbs sets logp[i] to the log-probability of targets[i] after row rows[i] of the
// last Prefill or Decode, at the given temperature. The bits equal those of sampling
// and of Tape.Forward. The logits of that call stay valid.
func (r *Runner) LogProbs(w *Weights, logp []float32, rows, targets []int32, temperature float32) error {
	if err := checkTokens(r.cfg, targets); err != nil {
		return err
	}
	for len(rows) > 0 {
		n := min(len(rows), r.max)
		h := r.normed(w, rows[:n])
		out, spread, stats := r.scores.Slice(0, n), r.scores.Slice(r.max, r.max+n), r.scores.Slice(2*r.max, 2*r.max+2*n)
		r.head.Forward(out, spread, stats, h, w.Head, targets[:n], 1/temperature)
		r.dev.Download(logp[:n], out)
		logp, rows, targets = logp[n:], rows[n:], targets[n:]
	}
	return r.dev.Sync()
}

// Logits sets logits, [len(rows), V] in host memory, to those after the given rows, at most
// the runner's maximum, of the last Prefill or Decode. The logits that it returned stay
// valid.
func (r *Runner) Logits(w *Weights, logits []float32, rows []int32) error {
	buf, err := r.dev.Alloc(len(logits), npu.Activations)
	if err != nil {
		return fmt.Errorf("logits of %d rows: %w", len(rows), err)
	}
	defer r.dev.Free(buf)
	r.dev.Linear(buf, r.normed(w, rows), w.Head, npu.Buffer{}, len(rows), false)
	r.dev.Download(logits, buf)
	return r.dev.Sync()
}

// normed returns the normalized outputs of the last layer for rows of the last pass.
func (r *Runner) normed(w *Weights, rows []int32) npu.Buffer {
	n, d := len(rows), r.cfg.HiddenSize
	x, h := r.last.Slice(0, n*d), r.pass.norm.Slice(0, n*d)
	r.dev.GatherRows(x, r.acts.x, rows, d)
	r.dev.RMSNorm(h, x, w.Norm, n, r.cfg.NormEps)
	return h
}
