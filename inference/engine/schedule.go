package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/easyrl/easyrl/npu"
)

// admit starts waiting responses in order, as rows and pages allow, and reports
// whether it changed anything.
func (e *Engine) admit() bool {
	changed := false
	batch, tokens, rows := e.buf.batch[:0], 0, 0
	for _, g := range e.groups {
		if e.rows+rows >= e.cfg.MaxRunning {
			break
		}
		if len(g.pending) == 0 {
			continue
		}
		if g.filled > 0 {
			if len(batch) > 0 {
				break // run the prompts first
			}
			started, blocked := e.forkAll(g, false, place{})
			changed = changed || started
			if blocked {
				break
			}
			continue
		}
		n := min(len(g.req.PromptIDs), e.cfg.PrefillRows)
		if tokens > 0 && tokens+n > e.cfg.PrefillRows || !e.takePrompt(g, n, rows) {
			break
		}
		batch, tokens = append(batch, g), tokens+n
		rows += len(g.pending)
	}
	e.buf.batch = batch
	if len(batch) > 0 {
		e.prefill(batch)
		changed = true
	}
	return changed
}

// takePrompt allocates pages for the first n tokens of g's prompt if that leaves
// a free page for each row. If nothing is running, it must succeed, and it takes
// pages from waiting groups.
func (e *Engine) takePrompt(g *group, n, rows int) bool {
	need := pagesFor(n)
	if e.rows+rows == 0 {
		for len(e.pages.free) < need && e.reclaim(g) {
		}
	}
	if left := len(e.pages.free) - need; left < 0 || e.rows+rows > 0 && left < e.rows+rows+1 {
		return false
	}
	for range need {
		page, _ := e.pages.take()
		g.cache = append(g.cache, page)
	}
	return true
}

// prefill runs the prompts of groups that have pages for them and starts their
// responses.
func (e *Engine) prefill(groups []*group) {
	e.endDecodeSpan()
	start := time.Now()
	b := &e.buf
	b.prompts, b.slots, b.want = b.prompts[:0], b.slots[:0], b.want[:0]
	for _, g := range groups {
		n := min(len(g.req.PromptIDs), e.cfg.PrefillRows)
		b.prompts = append(b.prompts, g.req.PromptIDs[:n])
		for p := range n {
			b.slots = append(b.slots, slot(g.cache, p))
		}
		b.want = append(b.want, int32(len(b.slots)-1))
	}
	e.acc.PrefillRows += int64(len(b.slots))
	logits, err := e.m.prefill(b.prompts, b.slots, b.want)
	if err != nil {
		for _, g := range groups {
			e.fail(g, fmt.Errorf("prefill: %w", err))
		}
		return
	}
	for i, g := range groups {
		g.filled = len(b.prompts[i])
		if !g.started { // set once: streams read these fields from then on, and a re-run prompt has the same values
			g.started, g.version, g.checksum = true, e.version, e.checksum
		}
		last := b.want[i]
		if !e.scorePrompt(g, int(last)+1-g.filled) {
			continue
		}
		e.forkAll(g, g.filled == len(g.req.PromptIDs), place{logits.Slice(i*e.vocab, (i+1)*e.vocab), last})
	}
	e.leave()
	e.prefilled(start, groups)
}

// prefilled emits a span for the prompts of groups. The span includes sampling
// their first tokens.
func (e *Engine) prefilled(start time.Time, groups []*group) {
	if e.cfg.Span == nil {
		return
	}
	seeds := e.decode.Seeds[:0] // free to use: no decode span is open
	for _, g := range groups {
		seeds = append(seeds, g.req.Seed)
	}
	e.span(Span{Name: "prefill", Start: start, Duration: time.Since(start), Tokens: len(e.buf.slots), Seeds: seeds})
	e.decode.Seeds = seeds[:0]
}

// forkAll starts waiting responses of g while there is room. If fresh, at is the
// place of the prompt's last token, and new responses sample their first token
// there. blocked reports that the groups after g must wait.
func (e *Engine) forkAll(g *group, fresh bool, at place) (started, blocked bool) {
	prompt := len(g.req.PromptIDs)
	for len(g.pending) > 0 && e.rows < e.cfg.MaxRunning && g.filled > 0 {
		if g.filled+npu.PageSize <= prompt && g.running > 0 {
			return started, false // one response runs the rest of the prompt for all
		}
		if e.rows > 0 && len(e.pages.free) < e.rows+1 {
			return started, true
		}
		s := g.pending[0]
		first := fresh && g.filled == prompt && len(s.ids) == 0
		e.fork(s, first)
		started = true
		if first && !e.sampleFirst(s, at) {
			return started, false
		}
	}
	return started, len(g.pending) > 0
}

// fork starts a response from its group's cache. Unless its first token can be
// sampled from logits already computed (first), it runs the prompt's last token
// itself.
func (e *Engine) fork(s *sequence, first bool) {
	g := s.g
	s.cached = g.filled
	if !first && len(s.ids) == 0 {
		s.cached = min(g.filled, len(g.req.PromptIDs)-1)
	}
	full := s.cached / npu.PageSize
	s.pages = append(s.pages[:0], g.cache[:full]...)
	for _, page := range s.pages {
		e.pages.hold(page)
	}
	if s.cached%npu.PageSize != 0 {
		if page, ok := e.tailPage(g, full); ok {
			s.pages = append(s.pages, page)
		} else {
			s.cached = full * npu.PageSize // this part of the prompt runs again
		}
	}
	g.pending = slices.Delete(g.pending, 0, 1)
	g.running++
	s.active = true
	e.rows++
	e.running = append(e.running, s)
}

// tailPage returns a copy of page full of g's prompt, the partly filled one. The
// last response to start, or one for which no other page is free, takes the page
// itself if nobody else holds it.
func (e *Engine) tailPage(g *group, full int) (int32, bool) {
	tail := g.cache[full]
	alone := e.pages.refs[tail] == 1
	if len(g.pending) > 1 || !alone {
		if page, ok := e.pages.take(); ok {
			e.m.copyPage(page, tail)
			return page, true
		}
	}
	if !alone {
		return 0, false
	}
	g.cache, g.filled = g.cache[:full], full*npu.PageSize
	return tail, true
}

// donate shares with the group a prompt page that s has just filled.
func (e *Engine) donate(s *sequence) {
	g := s.g
	if s.cached%npu.PageSize != 0 || s.cached > len(g.req.PromptIDs) || s.cached <= g.filled {
		return
	}
	have := g.filled / npu.PageSize
	e.pages.drop(g.cache[have:])
	g.cache = g.cache[:have]
	for _, page := range s.pages[have : s.cached/npu.PageSize] {
		e.pages.hold(page)
		g.cache = append(g.cache, page)
	}
	g.filled = s.cached
}

// grow gives each row a page for its next position.
func (e *Engine) grow() {
	for i := 0; i < len(e.running); i++ {
		s := e.running[i]
		if !s.active || s.cached < len(s.pages)*npu.PageSize {
			continue
		}
		if page, ok := e.pageFor(s); ok {
			s.pages = append(s.pages, page)
		}
	}
	e.leave()
}

// pageFor allocates a page for s. If none is free, it first drops the cached
// prompts of waiting groups, then preempts the youngest response, which may be s
// itself.
func (e *Engine) pageFor(s *sequence) (int32, bool) {
	for {
		if page, ok := e.pages.take(); ok {
			return page, true
		}
		if e.reclaim(s.g) {
			continue
		}
		if e.rows == 1 {
			if len(s.g.cache) == 0 {
				e.fail(s.g, fmt.Errorf("response does not fit a cache of %d pages", e.cfg.CachePages))
				return 0, false
			}
			e.dropCache(s.g) // s holds its own references
			continue
		}
		youngest := s
		for _, r := range e.running {
			if r.active && r.younger(youngest) {
				youngest = r
			}
		}
		e.preempt(youngest)
		if youngest == s {
			return 0, false
		}
	}
}

// reclaim frees the cached prompt of the youngest idle group other than but, and
// reports whether there was one.
func (e *Engine) reclaim(but *group) bool {
	for _, g := range slices.Backward(e.groups) {
		if g != but && g.running == 0 && len(g.cache) > 0 {
			e.dropCache(g)
			return true
		}
	}
	return false
}

// dropCache releases g's cached prompt.
func (e *Engine) dropCache(g *group) {
	e.pages.drop(g.cache)
	g.cache, g.filled = g.cache[:0], 0
}

// preempt returns a running response to its place in the queue.
func (e *Engine) preempt(s *sequence) {
	e.stop(s)
	e.acc.Preemptions++
	g := s.g
	i, _ := slices.BinarySearchFunc(g.pending, s.index, func(p *sequence, index int) int { return p.index - index })
	g.pending = slices.Insert(g.pending, i, s)
}

// stop removes s from the rows and frees its pages; leave compacts the rows.
func (e *Engine) stop(s *sequence) {
	e.pages.drop(s.pages)
	s.pages, s.cached, s.active = s.pages[:0], 0, false
	s.g.running--
	e.rows--
}

// leave removes stopped sequences from the rows.
func (e *Engine) leave() {
	if e.rows < len(e.running) {
		e.running = slices.DeleteFunc(e.running, func(s *sequence) bool { return !s.active })
	}
}
