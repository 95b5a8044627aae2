package engine

import (
	"fmt"
	"math"
	"time"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
)

// sampler runs the model over the scheduler's responses and samples their tokens. It
// belongs to the loop, with which it shares weights, sched, trace and stats.
type sampler struct {
	cfg     *Config
	m       forward
	vocab   int
	tok     Decoder
	weights *published
	sched   *scheduler
	trace   *trace
	scores  scorer
	buf     buffers
	stats   *Stats
}

// buffers holds the arguments of model calls, so that their memory is reused.
type buffers struct {
	batch []*group // groups of a prefill

	// Arguments of forward.prefill.
	chunks []model.Chunk
	want   []int32 // the rows of the prompts' last tokens

	// Of replay.
	replayed []*sequence // sequence of each chunk
	tokens   []int32     // of all chunks

	// Arguments of forward.step and sample.
	rows    []model.Row
	params  []npu.SampleParams
	sampled []int32
	logp    []float32
}

// newBuffers returns buffers with the maximum sizes.
func newBuffers(c *Config) buffers {
	n := c.MaxRunning
	return buffers{
		tokens: make([]int32, 0, c.PrefillRows), rows: make([]model.Row, 0, n), params: make([]npu.SampleParams, 0, n),
		sampled: make([]int32, n), logp: make([]float32, n),
	}
}

// replay runs known tokens of running responses, of prompts longer than a prefill and of responses that were
// preempted, until each has one left for the step. It runs at most PrefillRows tokens, and none that need
// a page which is not free.
func (r *sampler) replay() {
	b := &r.buf
	b.chunks, b.replayed, b.tokens = b.chunks[:0], b.replayed[:0], b.tokens[:0]
	for _, s := range r.sched.running {
		n := min(s.known()-1-s.cached, r.cfg.PrefillRows-len(b.tokens))
		if n = r.sched.reserve(s, n); n == 0 {
			continue
		}
		first := len(b.tokens)
		for i := range n {
			b.tokens = append(b.tokens, s.token(s.cached+i))
		}
		b.chunks = append(b.chunks, model.Chunk{Tokens: b.tokens[first:], First: s.cached, Pages: s.pages})
		b.replayed = append(b.replayed, s)
	}
	if len(b.chunks) == 0 {
		return
	}
	r.trace.endDecode()
	start := time.Now()
	if _, err := r.m.prefill(b.chunks, nil); err != nil {
		r.sched.failRunning(fmt.Errorf("prefill: %w", err))
		return
	}
	r.stats.ReplayRows += int64(len(b.tokens))
	row := 0
	groups := r.buf.batch[:0]
	for i, s := range b.replayed {
		n := len(b.chunks[i].Tokens)
		if err := r.scores.scorePrompt(s.g, s.cached, n, row); err != nil {
			r.sched.fail(s.g, err)
		} else {
			s.cached += n
			r.sched.donate(s)
			groups = append(groups, s.g)
		}
		row += n
	}
	r.buf.batch = groups
	r.sched.leave()
	r.trace.prefilled(start, groups, len(b.tokens))
}

// step runs one token of each running response and accepts the sampled tokens of those that have no
// more known tokens to run.
func (r *sampler) step() {
	r.replay()
	r.sched.grow()
	if r.sched.rows == 0 {
		return
	}
	start := time.Now()
	b := &r.buf
	n := len(r.sched.running)
	r.fillStep()
	logits, err := r.m.step(b.rows, b.params, b.sampled[:n], b.logp[:n])
	if err != nil {
		r.sched.failRunning(fmt.Errorf("decode: %w", err))
		return
	}
	r.stats.Steps++
	for i, s := range r.sched.running {
		if !s.active {
			continue // its group failed in this step
		}
		ran := place{logits: logits.Slice(i*r.vocab, (i+1)*r.vocab), row: int32(i)}
		if err := r.scores.scorePrompt(s.g, s.cached, 1, i); err != nil {
			r.sched.fail(s.g, err)
			continue
		}
		s.cached++
		r.sched.donate(s)
		if s.cached < s.known() {
			r.stats.ReplayRows++
			continue
		}
		r.accept(s, b.sampled[i], b.logp[i], ran)
	}
	r.sched.leave()
	r.trace.decoded(start, n)
}

// fillStep sets the arguments of a step of the running sequences and passes their new pages to the
// model.
func (r *sampler) fillStep() {
	b := &r.buf
	b.rows, b.params = b.rows[:0], b.params[:0]
	for _, s := range r.sched.running {
		if s.tabled < len(s.pages) {
			r.m.setPages(s.lane, s.tabled, s.pages[s.tabled:])
			s.tabled = len(s.pages)
		}
		b.rows = append(b.rows, model.Row{Sequence: s.lane, ID: s.token(s.cached), Position: int32(s.cached),
			Slot: slot(s.pages, s.cached)})
		p := npu.SampleParams{TopP: 1} // valid, for a row whose sampled token is not used
		if s.cached+1 == s.known() {
			p = s.params()
		}
		b.params = append(b.params, p)
	}
}

// params returns the sampling parameters of the sequence's next token.
func (s *sequence) params() npu.SampleParams {
	r := &s.g.req
	return npu.SampleParams{
		Temperature: r.Sampling.Temperature, TopP: r.Sampling.TopP, MinP: r.Sampling.MinP, TopK: int32(r.Sampling.TopK),
		Uniform: inference.Uniform(r.Seed, uint32(r.FirstIndex+s.index), uint32(len(s.ids))),
	}
}

// place is where a token is sampled: the logits from which it is drawn, vocab values, and the row of
// the last pass that they belong to.
type place struct {
	logits npu.Buffer
	row    int32
}

// sampleFirst samples the first token of s after the prompt's last token, whose place is last. It
// reports false if the group failed.
func (r *sampler) sampleFirst(s *sequence, last place) bool {
	b := &r.buf
	b.params = append(b.params[:0], s.params())
	if err := r.m.sample(b.sampled[:1], b.logp[:1], last.logits, b.params); err != nil {
		r.sched.fail(s.g, fmt.Errorf("sample: %w", err))
		return false
	}
	return r.accept(s, b.sampled[0], b.logp[0], last)
}

// accept appends a token sampled at a place, and ends the response and its group when due. It reports
// false if the group failed. Call leave later.
func (r *sampler) accept(s *sequence, id int32, logp float32, sampled place) bool {
	if l := float64(logp); math.IsNaN(l) || math.IsInf(l, 0) || id < 0 || int(id) >= r.vocab {
		r.sched.fail(s.g, fmt.Errorf("response %d token %d: sampled token %d of %d with log-probability %v", s.index,
			len(s.ids), id, r.vocab, logp))
		return false
	}
	if s.ids == nil {
		n := min(s.g.limit, 256) // enough for many responses, and little if limit is large
		s.ids = make([]int32, 0, n)
		s.logp = make([]float32, 0, n)
	}
	s.ids = append(s.ids, id)
	s.logp = append(s.logp, logp)
	if err := r.scores.addTop(s, sampled); err != nil {
		r.sched.fail(s.g, err)
		return false
	}
	r.stats.Tokens++
	finish, ended := s.ended(r.tok)
	if s.g.feed != nil {
		s.g.feed.add(s, ended)
	}
	if !ended {
		return true
	}
	s.finish = finish
	r.trace.responseEnded(s.g)
	r.sched.stop(s)
	s.g.left--
	if s.g.left == 0 {
		r.sched.dropCache(s.g)
		r.sched.finish(s.g)
	} else if s.g.endings != nil {
		s.g.endings <- s.index // has room for all responses
	}
	return true
}
