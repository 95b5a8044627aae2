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
// belongs to the loop.
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
	acc     *Stats // the loop's counters; weights, sched and trace are the loop's too
}

// buffers holds the arguments of model calls; it is reused between calls.
type buffers struct {
	batch   []*group
	prompts [][]int32
	want    []int32
	slots   []int32
	rows    []model.Row
	params  []npu.SampleParams
	sampled []int32
	logp    []float32
}

func newBuffers(c *Config) buffers {
	n := c.MaxRunning
	return buffers{
		slots: make([]int32, 0, c.PrefillRows), rows: make([]model.Row, 0, n), params: make([]npu.SampleParams, 0, n),
		sampled: make([]int32, n), logp: make([]float32, n),
	}
}

// step runs one token of each running response.
func (r *sampler) step() {
	r.sched.grow()
	if r.sched.rows == 0 {
		return
	}
	start := time.Now()
	b, n := &r.buf, len(r.sched.running)
	r.fill()
	logits, err := r.m.step(b.rows, b.params, b.sampled[:n], b.logp[:n])
	if err != nil {
		r.sched.failRunning(fmt.Errorf("decode: %w", err))
		return
	}
	r.acc.Steps++
	for i, s := range r.sched.running {
		if !s.active {
			continue // its group failed in this step
		}
		s.cached++
		at := place{logits.Slice(i*r.vocab, (i+1)*r.vocab), int32(i)}
		if err := r.scores.next(s, at); err != nil {
			r.sched.fail(s.g, err)
			continue
		}
		if s.cached < s.known() {
			r.acc.ReplayRows++
			r.sched.donate(s)
			continue
		}
		r.sched.donate(s)
		r.accept(s, b.sampled[i], b.logp[i], at)
	}
	r.sched.leave()
	r.trace.decoded(start, n)
}

// fill lays out a step of the running sequences and passes new pages to the model.
func (r *sampler) fill() {
	b := &r.buf
	b.rows, b.params = b.rows[:0], b.params[:0]
	for _, s := range r.sched.running {
		if s.sent < len(s.pages) {
			r.m.setPages(s.lane, s.sent, s.pages[s.sent:])
			s.sent = len(s.pages)
		}
		b.rows = append(b.rows, model.Row{Sequence: s.lane, ID: s.token(s.cached), Position: int32(s.cached),
			Slot: slot(s.pages, s.cached)})
		p := npu.SampleParams{TopP: 1}
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

// place is where a token is sampled: its logits and its row in the pass.
type place struct {
	logits npu.Buffer
	row    int32
}

// sampleFirst samples the first token of s at the prompt's last token. It reports
// false if the group failed.
func (r *sampler) sampleFirst(s *sequence, at place) bool {
	b := &r.buf
	b.params = append(b.params[:0], s.params())
	if err := r.m.sample(b.sampled[:1], b.logp[:1], at.logits, b.params); err != nil {
		r.sched.fail(s.g, fmt.Errorf("sample: %w", err))
		return false
	}
	return r.accept(s, b.sampled[0], b.logp[0], at)
}

// accept appends a sampled token, and ends the response and its group when due.
// It reports false if the group failed.
func (r *sampler) accept(s *sequence, id int32, logp float32, at place) bool {
	if l := float64(logp); math.IsNaN(l) || math.IsInf(l, 0) || id < 0 || int(id) >= r.vocab {
		r.sched.fail(s.g, fmt.Errorf("response %d token %d: sampled token %d of %d with log-probability %v", s.index,
			len(s.ids), id, r.vocab, logp))
		return false
	}
	if s.ids == nil {
		n := min(s.g.limit, 256)
		s.ids, s.logp = make([]int32, 0, n), make([]float32, 0, n)
	}
	s.ids, s.logp = append(s.ids, id), append(s.logp, logp)
	if err := r.scores.addTop(s, at); err != nil {
		r.sched.fail(s.g, err)
		return false
	}
	r.acc.Tokens++
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
	if s.g.left--; s.g.left == 0 {
		r.sched.dropCache(s.g)
		r.sched.finish(s.g)
	} else if s.g.endings != nil {
		s.g.endings <- s.index // has room
	}
	return true
}
