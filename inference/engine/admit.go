package engine

import (
	"fmt"
	"time"

	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
)

// admit starts waiting responses in order, as far as rows and pages allow, and runs their prompts
// first if necessary. It reports whether it started or failed anything.
func (r *sampler) admit() bool {
	changed := false
	batch := r.buf.batch[:0] // groups whose prompts run in this prefill
	tokens, rows := 0, 0     // prompt tokens and responses of batch
	for _, g := range r.sched.groups {
		if r.sched.rows+rows >= r.cfg.MaxRunning {
			break
		}
		if len(g.pending) == 0 {
			continue
		}
		if g.filled > 0 {
			if len(batch) > 0 {
				break // run the prompts of earlier groups first
			}
			started, blocked := r.forkAll(g, nil)
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
		batch = append(batch, g)
		tokens += n
		rows += len(g.pending)
	}
	r.buf.batch = batch
	if len(batch) > 0 {
		r.prefill(batch)
		changed = true
	}
	return changed
}

// prefill runs the first PrefillRows tokens of the groups' prompts, for which the groups have pages,
// and starts their responses.
func (r *sampler) prefill(groups []*group) {
	r.trace.endDecode()
	start := time.Now()
	b := &r.buf
	b.chunks, b.want = b.chunks[:0], b.want[:0]
	rows := 0
	for _, g := range groups {
		n := min(len(g.req.PromptIDs), r.cfg.PrefillRows)
		b.chunks = append(b.chunks, model.Chunk{Tokens: g.req.PromptIDs[:n], Pages: g.cache})
		rows += n
		b.want = append(b.want, int32(rows-1))
	}
	r.stats.PrefillRows += int64(rows)
	logits, err := r.m.prefill(b.chunks, b.want)
	if err != nil {
		for _, g := range groups {
			r.sched.fail(g, fmt.Errorf("prefill: %w", err))
		}
		return
	}
	for i, g := range groups {
		g.filled = len(b.chunks[i].Tokens)
		if !g.started { // set once, because the caller reads these fields later; see group
			g.started = true
			g.version, g.checksum = r.weights.version, r.weights.checksum
		}
		last := place{logits: logits.Slice(i*r.vocab, (i+1)*r.vocab), row: b.want[i]}
		if err := r.scores.scorePrompt(g, 0, g.filled, int(last.row)+1-g.filled); err != nil {
			r.sched.fail(g, err)
			continue
		}
		if g.filled == len(g.req.PromptIDs) {
			r.forkAll(g, &last)
		} else {
			r.forkAll(g, nil)
		}
	}
	r.sched.leave()
	r.trace.prefilled(start, groups, rows)
}

// forkAll starts waiting responses of g while there is room. last is the place of the prompt's last
// token if the prompt has just run completely, and nil otherwise; new responses sample their first
// token there. started reports whether a response started. blocked reports that the groups after g
// must wait.
func (r *sampler) forkAll(g *group, last *place) (started, blocked bool) {
	prompt := len(g.req.PromptIDs)
	for len(g.pending) > 0 && r.sched.rows < r.cfg.MaxRunning && g.filled > 0 {
		if g.filled+npu.PageSize <= prompt && g.running > 0 {
			return started, false // the running response runs the remaining prompt for all and donates its pages
		}
		if r.sched.rows > 0 && len(r.sched.pages.free) < r.sched.rows+1 {
			return started, true // keep a free page for each row, so that none is preempted at once
		}
		s := g.pending[0]
		// fork may have taken the prompt's last page for an earlier response, which lowers filled.
		sampleFirst := last != nil && g.filled == prompt && len(s.ids) == 0
		r.sched.fork(s, sampleFirst)
		started = true
		if sampleFirst && !r.sampleFirst(s, *last) {
			return started, false
		}
	}
	return started, len(g.pending) > 0
}
