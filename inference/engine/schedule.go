package engine

import (
	"fmt"
	"slices"

	"github.com/easyrl/easyrl/npu"
)

// scheduler decides which responses run and which pages of the cache they hold. It
// belongs to the loop.
//
// A stopped sequence stays in running until leave removes it, so that a loop over running may stop
// sequences. Code that calls stop, preempt or fail must therefore call leave before the next step.
type scheduler struct {
	cfg      *Config
	copyPage func(dst, src int32) // forward.copyPage
	groups   []*group             // in request order
	running  []*sequence          // the rows of a step, and stopped sequences
	rows     int                  // number of active sequences in running
	pages    pages
	lanes    []int32 // free lanes; see sequence.lane
	stats    *Stats  // the loop's counters
}

// takePrompt allocates pages for the first n tokens of g's prompt and reports whether it could. rows
// is the number of responses that start before those of g. If there are none and none runs,
// takePrompt frees the cached prompts of other groups if necessary, so that it succeeds. Otherwise it
// must leave a free page for each row and for one of g.
func (c *scheduler) takePrompt(g *group, n, rows int) bool {
	need := pagesFor(n)
	rows += c.rows
	if rows == 0 {
		for len(c.pages.free) < need && c.reclaim(g) {
		}
	}
	left := len(c.pages.free) - need
	if left < 0 || rows > 0 && left < rows+1 {
		return false
	}
	for range need {
		page, _ := c.pages.take()
		g.cache = append(g.cache, page)
	}
	return true
}

// fork starts s, the first pending response of its group, from the group's cache. hasLogits says that
// the logits after the prompt are there to sample the first token from. Without them, a response that
// has no token runs the prompt's last token again.
func (c *scheduler) fork(s *sequence, hasLogits bool) {
	g := s.g
	s.cached = g.filled
	if !hasLogits && len(s.ids) == 0 {
		s.cached = min(g.filled, len(g.req.PromptIDs)-1)
	}
	full := s.cached / npu.PageSize
	s.pages = append(s.pages[:0], g.cache[:full]...)
	for _, page := range s.pages {
		c.pages.hold(page)
	}
	if s.cached%npu.PageSize != 0 {
		if page, ok := c.tailPage(g, full); ok {
			s.pages = append(s.pages, page)
		} else {
			s.cached = full * npu.PageSize // this part of the prompt runs again
		}
	}
	g.pending = slices.Delete(g.pending, 0, 1)
	g.running++
	last := len(c.lanes) - 1
	s.lane = c.lanes[last]
	c.lanes = c.lanes[:last]
	s.active = true
	c.rows++
	c.running = append(c.running, s)
}

// tailPage returns a copy of the partly filled last page of g's cache, whose index is full. If g's
// last pending response starts, or no page is free for the copy, it takes the page itself out of the
// cache, provided that only the cache holds it. It reports false if neither is possible.
func (c *scheduler) tailPage(g *group, full int) (int32, bool) {
	tail := g.cache[full]
	shared := c.pages.refs[tail] > 1
	if len(g.pending) > 1 || shared {
		if page, ok := c.pages.take(); ok {
			c.copyPage(page, tail)
			return page, true
		}
	}
	if shared {
		return 0, false
	}
	g.cache = g.cache[:full]
	g.filled = full * npu.PageSize
	return tail, true
}

// donate adds the prompt pages that s has filled, and that the group's cache lacks, to that cache.
func (c *scheduler) donate(s *sequence) {
	g := s.g
	end := min(s.cached, len(g.req.PromptIDs)) / npu.PageSize // pages
	if end*npu.PageSize <= g.filled {
		return
	}
	full := g.filled / npu.PageSize
	c.pages.drop(g.cache[full:])
	g.cache = g.cache[:full]
	for _, page := range s.pages[full:end] {
		c.pages.hold(page)
		g.cache = append(g.cache, page)
	}
	g.filled = end * npu.PageSize
}

// reserve gives s pages for its next n positions, as long as more pages are free than there are rows. It returns
// the number of these positions that have pages.
func (c *scheduler) reserve(s *sequence, n int) int {
	for s.cached+n > len(s.pages)*npu.PageSize && len(c.pages.free) > c.rows {
		page, _ := c.pages.take()
		s.pages = append(s.pages, page)
	}
	return max(0, min(n, len(s.pages)*npu.PageSize-s.cached))
}

// grow gives each row a page for its next position. To do so it may preempt or fail other rows.
func (c *scheduler) grow() {
	for _, s := range c.running {
		if !s.active || s.cached < len(s.pages)*npu.PageSize {
			continue
		}
		if page, ok := c.pageFor(s); ok {
			s.pages = append(s.pages, page)
		}
	}
	c.leave()
}

// pageFor allocates a page for s. If none is free, it first frees the cached prompts of waiting
// groups and then preempts the youngest running responses. It reports false if s itself has been
// preempted, or fails because the cache is too small for it.
func (c *scheduler) pageFor(s *sequence) (int32, bool) {
	for {
		if page, ok := c.pages.take(); ok {
			return page, true
		}
		if c.reclaim(s.g) {
			continue
		}
		if c.rows == 1 {
			if len(s.g.cache) == 0 {
				c.fail(s.g, fmt.Errorf("response does not fit a cache of %d pages", c.cfg.CachePages))
				return 0, false
			}
			c.dropCache(s.g) // s holds its own references
			continue
		}
		youngest := s
		for _, r := range c.running {
			if r.active && r.younger(youngest) {
				youngest = r
			}
		}
		c.preempt(youngest)
		if youngest == s {
			return 0, false
		}
	}
}

// reclaim frees the cached prompt of the youngest group other than except that has no running
// response. It reports whether there was one.
func (c *scheduler) reclaim(except *group) bool {
	for _, g := range slices.Backward(c.groups) {
		if g != except && g.running == 0 && len(g.cache) > 0 {
			c.dropCache(g)
			return true
		}
	}
	return false
}

// dropCache releases g's cached prompt.
func (c *scheduler) dropCache(g *group) {
	c.pages.drop(g.cache)
	g.cache, g.filled = g.cache[:0], 0
}

// preempt returns a running response to its place in the queue.
func (c *scheduler) preempt(s *sequence) {
	c.stop(s)
	c.stats.Preemptions++
	g := s.g
	i, _ := slices.BinarySearchFunc(g.pending, s.index, func(p *sequence, index int) int { return p.index - index })
	g.pending = slices.Insert(g.pending, i, s)
}

// stop frees the pages and the lane of a running response. Call leave later.
func (c *scheduler) stop(s *sequence) {
	c.pages.drop(s.pages)
	s.pages = s.pages[:0]
	s.tabled, s.cached = 0, 0
	s.active = false
	c.lanes = append(c.lanes, s.lane)
	s.g.running--
	c.rows--
}

// leave removes stopped sequences from the rows.
func (c *scheduler) leave() {
	if c.rows < len(c.running) {
		c.running = slices.DeleteFunc(c.running, func(s *sequence) bool { return !s.active })
	}
}

// fail ends a request with an error and frees its pages. Call leave later.
func (c *scheduler) fail(g *group, err error) {
	for i := range g.seqs {
		if s := &g.seqs[i]; s.active {
			c.stop(s)
		}
	}
	c.dropCache(g)
	g.err = err
	c.finish(g)
}

// failRunning ends all requests that hold pages, because a device failure invalidates the complete
// cache.
func (c *scheduler) failRunning(err error) {
	for _, g := range slices.Clone(c.groups) {
		if g.running > 0 || len(g.cache) > 0 {
			c.fail(g, err)
		}
	}
	c.leave()
}

// finish removes g from the queue and releases its caller.
func (c *scheduler) finish(g *group) {
	i := slices.Index(c.groups, g)
	c.groups = slices.Delete(c.groups, i, i+1)
	close(g.done)
}
