package engine

import (
	"fmt"
	"slices"

	"github.com/easyrl/easyrl/npu"
)

// scheduler decides which responses run and which pages of the cache they hold. It
// belongs to the loop.
type scheduler struct {
	cfg      *Config
	copyPage func(dst, src int32)
	groups   []*group    // in request order
	running  []*sequence // rows of the next step
	rows     int         // number of active sequences in running
	pages    pages
	lanes    []int32 // free sequence numbers
	acc      *Stats  // the loop's counters
}

// takePrompt allocates pages for the first n tokens of g's prompt if that leaves
// a free page for each row. If nothing is running, it must succeed, and it takes
// pages from waiting groups.
func (c *scheduler) takePrompt(g *group, n, rows int) bool {
	need := pagesFor(n)
	if c.rows+rows == 0 {
		for len(c.pages.free) < need && c.reclaim(g) {
		}
	}
	if left := len(c.pages.free) - need; left < 0 || c.rows+rows > 0 && left < c.rows+rows+1 {
		return false
	}
	for range need {
		page, _ := c.pages.take()
		g.cache = append(g.cache, page)
	}
	return true
}

// fork starts a response from its group's cache. Unless its first token can be
// sampled from logits already computed (first), it runs the prompt's last token
// itself.
func (c *scheduler) fork(s *sequence, first bool) {
	g := s.g
	s.cached = g.filled
	if !first && len(s.ids) == 0 {
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
	s.lane, c.lanes = c.lanes[last], c.lanes[:last]
	s.active = true
	c.rows++
	c.running = append(c.running, s)
}

// tailPage returns a copy of page full of g's prompt, the partly filled one. The
// last response to start, or one for which no other page is free, takes the page
// itself if nobody else holds it.
func (c *scheduler) tailPage(g *group, full int) (int32, bool) {
	tail := g.cache[full]
	alone := c.pages.refs[tail] == 1
	if len(g.pending) > 1 || !alone {
		if page, ok := c.pages.take(); ok {
			c.copyPage(page, tail)
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
func (c *scheduler) donate(s *sequence) {
	g := s.g
	if s.cached%npu.PageSize != 0 || s.cached > len(g.req.PromptIDs) || s.cached <= g.filled {
		return
	}
	have := g.filled / npu.PageSize
	c.pages.drop(g.cache[have:])
	g.cache = g.cache[:have]
	for _, page := range s.pages[have : s.cached/npu.PageSize] {
		c.pages.hold(page)
		g.cache = append(g.cache, page)
	}
	g.filled = s.cached
}

// grow gives each row a page for its next position.
func (c *scheduler) grow() {
	for i := 0; i < len(c.running); i++ {
		s := c.running[i]
		if !s.active || s.cached < len(s.pages)*npu.PageSize {
			continue
		}
		if page, ok := c.pageFor(s); ok {
			s.pages = append(s.pages, page)
		}
	}
	c.leave()
}

// pageFor allocates a page for s. If none is free, it first drops the cached
// prompts of waiting groups, then preempts the youngest response, which may be s
// itself.
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

// reclaim frees the cached prompt of the youngest idle group other than but, and
// reports whether there was one.
func (c *scheduler) reclaim(but *group) bool {
	for _, g := range slices.Backward(c.groups) {
		if g != but && g.running == 0 && len(g.cache) > 0 {
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
	c.acc.Preemptions++
	g := s.g
	i, _ := slices.BinarySearchFunc(g.pending, s.index, func(p *sequence, index int) int { return p.index - index })
	g.pending = slices.Insert(g.pending, i, s)
}

// stop removes s from the rows and frees its pages; leave compacts the rows.
func (c *scheduler) stop(s *sequence) {
	c.pages.drop(s.pages)
	s.pages, s.sent, s.cached, s.active = s.pages[:0], 0, 0, false
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

// fail ends a request with an error and frees its pages. The caller must call
// leave to compact the rows.
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

// failRunning ends all requests that hold pages: a device failure invalidates the
// whole cache.
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
