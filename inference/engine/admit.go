package engine

import (
	"fmt"
	"time"

	"github.com/easyrl/easyrl/npu"
)

// admit starts waiting responses in order, as rows and pages allow, and reports
// whether it changed anything.
func (r *sampler) admit() bool {
	changed := false
	batch, tokens, rows := r.buf.batch[:0], 0, 0
	for _, g := range r.sched.groups {
		if r.sched.rows+rows >= r.cfg.MaxRunning {
			break
		}
		if len(g.pending) == 0 {
			continue
		}
		if g.filled > 0 {
			if len(batch) > 0 {
				break // run the prompts first
			}
			started, blocked := r.forkAll(g, false, place{})
			changed = changed || started
			if blocked {
				break
			}
			continue
		}
		n := min(len(g.req.PromptIDs), r.cfg.PrefillRows)
		if tokens > 0 && tokens+n > r.cfg.PrefillRows || !r.sched.takePrompt(g, n, rows) {
			break
		}
		batch, tokens = append(batch, g), tokens+n
		rows += len(g.pending)
	}
	r.buf.batch = batch
	if len(batch) > 0 {
		r.prefill(batch)
		changed = true
	}
	return changed
}

// prefill runs the prompts of groups that have pages for them and starts their
// responses.
func (r *sampler) prefill(groups []*group) {
	r.trace.endDecode()
	start := time.Now()
	b := &r.buf
	b.prompts, b.slots, b.want = b.prompts[:0], b.slots[:0], b.want[:0]
	for _, g := range groups {
		n := min(len(g.req.PromptIDs), r.cfg.PrefillRows)
		b.prompts = append(b.prompts, g.req.PromptIDs[:n])
		for p := range n {
			b.slots = append(b.slots, slot(g.cache, p))
		}
		b.want = append(b.want, int32(len(b.slots)-1))
	}
	r.acc.PrefillRows += int64(len(b.slots))
	logits, err := r.m.prefill(b.prompts, b.slots, b.want)
	if err != nil {
		for _, g := range groups {
			r.sched.fail(g, fmt.Errorf("prefill: %w", err))
		}
		return
	}
	for i, g := range groups {
		g.filled = len(b.prompts[i])
		if !g.started { // set once: streams read these fields from then on, and a re-run prompt has the same values
			g.started, g.version, g.checksum = true, r.weights.version, r.weights.checksum
		}
		last := b.want[i]
		if err := r.scores.prompt(g, int(last)+1-g.filled); err != nil {
			r.sched.fail(g, err)
			continue
		}
		r.forkAll(g, g.filled == len(g.req.PromptIDs), place{logits.Slice(i*r.vocab, (i+1)*r.vocab), last})
	}
	r.sched.leave()
	r.trace.prefilled(start, groups, len(b.slots))
}

// forkAll starts waiting responses of g while there is room. If fresh, at is the
// place of the prompt's last token, and new responses sample their first token
// there. blocked reports that the groups after g must wait.
func (r *sampler) forkAll(g *group, fresh bool, at place) (started, blocked bool) {
	prompt := len(g.req.PromptIDs)
	for len(g.pending) > 0 && r.sched.rows < r.cfg.MaxRunning && g.filled > 0 {
		if g.filled+npu.PageSize <= prompt && g.running > 0 {
			return started, false // one response runs the rest of the prompt for all
		}
		if r.sched.rows > 0 && len(r.sched.pages.free) < r.sched.rows+1 {
			return started, true
		}
		s := g.pending[0]
		first := fresh && g.filled == prompt && len(s.ids) == 0
		r.sched.fork(s, first)
		started = true
		if first && !r.sampleFirst(s, at) {
			return started, false
		}
	}
	return started, len(g.pending) > 0
}
