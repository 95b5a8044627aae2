package engine

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/easyrl/easyrl/inference"
)

// loop serves requests until Close. It locks its OS thread, to keep its caches:
// on another core they would be cold.
func (e *Engine) loop() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(e.ended)
	for e.intake() {
		start := time.Now()
		e.dropCancelled()
		if !e.admit() && e.rows == 0 && len(e.groups) > 0 {
			// Cannot happen: newGroup refuses requests that do not fit.
			e.fail(e.groups[0], fmt.Errorf("request does not fit a cache of %d pages", e.cfg.CachePages))
		}
		e.step()
		e.acc.Busy += time.Since(start)
		e.report()
	}
	for len(e.groups) > 0 {
		e.fail(e.groups[0], inference.ErrClosed)
	}
	e.leave()
	e.endDecodeSpan()
	e.report()
	e.closeErr = e.m.close()
}

// intake takes new requests and publishes, and waits if there is no work. It
// reports false when the engine closes.
func (e *Engine) intake() bool {
	for {
		e.mu.Lock()
		inbox, orders, closing := e.inbox, e.orders, e.closing
		e.inbox, e.orders = nil, nil
		e.mu.Unlock()
		for _, o := range orders {
			o.done <- e.take(o)
		}
		for _, g := range inbox {
			e.enqueue(g)
		}
		if closing {
			return false
		}
		if len(e.groups) > 0 {
			return true
		}
		e.endDecodeSpan()
		e.report()
		idle := time.Now()
		e.rest(true)
		<-e.wake
		e.rest(false)
		e.span(Span{Name: "idle", Start: idle, Duration: time.Since(idle)})
	}
}

// enqueue adds a request to the queue, or refuses it.
func (e *Engine) enqueue(g *group) {
	e.order++
	g.order = e.order
	if err := e.refuse(g); err != nil {
		g.err = err
		close(g.done)
		return
	}
	e.groups = append(e.groups, g)
}

// refuse returns an error if the request asks for weights that the engine does
// not hold.
func (e *Engine) refuse(g *group) error {
	switch {
	case !e.serves:
		return fmt.Errorf("%w: no weights have been published yet", inference.ErrStale)
	case g.req.Version != 0 && g.req.Version != e.version:
		return fmt.Errorf("%w: request of version %d, the engine holds %d", inference.ErrStale, g.req.Version, e.version)
	}
	return nil
}

// take installs the weights of o.
func (e *Engine) take(o *order) error {
	if err := o.ctx.Err(); err != nil {
		return err
	}
	if o.weights.Version() < 0 {
		return fmt.Errorf("version %d, expected 0 or more", o.weights.Version())
	}
	e.endDecodeSpan()
	start := time.Now()
	if err := e.m.use(o.weights); err != nil {
		return err
	}
	defer func() { e.span(Span{Name: "publish", Start: start, Duration: time.Since(start)}) }()
	e.serves, e.version, e.checksum = true, o.weights.Version(), o.checksum
	for _, g := range slices.Clone(e.groups) {
		err := e.refuse(g)
		if g.started && err == nil {
			err = fmt.Errorf("%w: version %d was published while the request ran", inference.ErrStale, e.version)
		}
		if err != nil {
			e.fail(g, err)
		}
	}
	e.leave()
	return nil
}

// dropCancelled ends requests whose callers have cancelled.
func (e *Engine) dropCancelled() {
	for i := 0; i < len(e.groups); {
		if err := e.groups[i].ctx.Err(); err != nil {
			e.fail(e.groups[i], err)
		} else {
			i++
		}
	}
	e.leave()
}

// fail ends a request with an error and frees its pages. The caller must call
// leave to compact the rows.
func (e *Engine) fail(g *group, err error) {
	for i := range g.seqs {
		if s := &g.seqs[i]; s.active {
			e.stop(s)
		}
	}
	e.dropCache(g)
	g.err = err
	e.finish(g)
}

// finish removes g from the queue and releases its caller.
func (e *Engine) finish(g *group) {
	i := slices.Index(e.groups, g)
	e.groups = slices.Delete(e.groups, i, i+1)
	close(g.done)
}

// report publishes the counters for Stats.
func (e *Engine) report() {
	waiting := 0
	for _, g := range e.groups {
		waiting += len(g.pending)
	}
	e.acc.Running, e.acc.Waiting, e.acc.FreePages, e.acc.Version = e.rows, waiting, len(e.pages.free), e.version
	e.acc.CachePages = e.cfg.CachePages
	e.mu.Lock()
	e.stats = e.acc
	e.mu.Unlock()
}

func (e *Engine) rest(resting bool) {
	if e.cfg.Rest != nil {
		e.cfg.Rest(resting)
	}
}

func (e *Engine) span(s Span) {
	if e.cfg.Span != nil {
		e.cfg.Span(s)
	}
}

// decodeSpan adds a step with the given number of rows to the open span.
func (e *Engine) decodeSpan(start time.Time, rows int) {
	if e.cfg.Span == nil {
		return
	}
	if e.decode.Start.IsZero() {
		e.decode.Start = start
	}
	e.decode.Tokens += rows
	if e.decode.Duration = time.Since(e.decode.Start); e.decode.Duration >= time.Second {
		e.endDecodeSpan()
	}
}

// decoded records in the open span that a response of g has ended.
func (e *Engine) decoded(g *group) {
	if e.cfg.Span != nil && !slices.Contains(e.decode.Seeds, g.req.Seed) {
		e.decode.Seeds = append(e.decode.Seeds, g.req.Seed)
	}
}

func (e *Engine) endDecodeSpan() {
	if !e.decode.Start.IsZero() {
		e.decode.Name = "decode"
		e.span(e.decode)
	}
	e.decode = Span{Seeds: e.decode.Seeds[:0]}
}
