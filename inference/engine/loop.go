package engine

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/easyrl/easyrl/inference"
)

// loop serves the mailbox's requests until the engine closes. Only the engine's goroutine uses it,
// with its scheduler, sampler, scorer and trace, so these have no lock.
type loop struct {
	cfg        *Config
	mailbox    *mailbox
	m          forward
	weights    published
	sched      scheduler
	sampler    sampler
	trace      trace
	lastNumber int64 // number of the latest request
	stats      Stats // counters since the start
}

func newLoop(cfg Config, vocab int, tok Decoder, m forward, b *mailbox) *loop {
	l := &loop{cfg: &cfg, mailbox: b, m: m, trace: trace{emit: cfg.Span}}
	l.sched = scheduler{
		cfg: l.cfg, copyPage: m.copyPage, pages: newPages(cfg.CachePages), stats: &l.stats,
		running: make([]*sequence, 0, cfg.MaxRunning), lanes: make([]int32, cfg.MaxRunning),
	}
	for i := range l.sched.lanes {
		l.sched.lanes[i] = int32(i)
	}
	l.sampler = sampler{
		cfg: l.cfg, m: m, vocab: vocab, tok: tok, weights: &l.weights, sched: &l.sched, trace: &l.trace,
		scores: scorer{m: m, vocab: vocab}, buf: newBuffers(l.cfg), stats: &l.stats,
	}
	return l
}

// run serves requests until the engine closes, and then closes the model and returns its error. It
// locks its OS thread, so that the Go scheduler does not move the loop to a thread on another core,
// whose caches are cold.
func (l *loop) run() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for l.intake() {
		start := time.Now()
		l.dropCancelled()
		l.ensureMemory()
		if !l.sampler.admit() && l.sched.rows == 0 && len(l.sched.groups) > 0 {
			// This would be a bug, because newGroup refuses requests that do not fit. Do not spin.
			l.sched.fail(l.sched.groups[0], fmt.Errorf("request does not fit a cache of %d pages", l.cfg.CachePages))
		}
		l.sampler.step()
		l.stats.Busy += time.Since(start)
		l.report()
	}
	for len(l.sched.groups) > 0 {
		l.sched.fail(l.sched.groups[0], inference.ErrClosed)
	}
	l.sched.leave()
	l.trace.endDecode()
	l.report()
	return l.m.close()
}

// intake empties the mailbox, and waits while the engine has no requests. It returns false when the
// engine closes.
func (l *loop) intake() bool {
	for {
		inbox, orders, closing := l.mailbox.collect()
		for _, o := range orders {
			o.done <- l.take(o)
		}
		for _, g := range inbox {
			l.enqueue(g)
		}
		for _, r := range l.mailbox.takeMemoryOrders(len(l.sched.groups) == 0) {
			r.done <- l.setMemory(r)
		}
		if closing {
			return false
		}
		if len(l.sched.groups) > 0 {
			return true
		}
		l.trace.endDecode()
		l.report()
		idle := time.Now()
		l.rest(true)
		<-l.mailbox.wake
		l.rest(false)
		l.trace.span(Span{Name: "idle", Start: idle, Duration: time.Since(idle)})
	}
}

// enqueue adds a request to the queue, or refuses it.
func (l *loop) enqueue(g *group) {
	l.lastNumber++
	g.number = l.lastNumber
	if err := l.weights.refuse(g); err != nil {
		g.err = err
		close(g.done)
		return
	}
	l.sched.groups = append(l.sched.groups, g)
}

// setMemory allocates the memory for sampling, or frees it, for which the loop must be idle.
func (l *loop) setMemory(r *memoryOrder) error {
	if r.allocate {
		return l.m.allocate()
	}
	l.trace.endDecode()
	return l.m.release()
}

// ensureMemory allocates the memory for sampling if there are requests, and fails them all if it
// cannot.
func (l *loop) ensureMemory() {
	if len(l.sched.groups) == 0 {
		return
	}
	if err := l.m.allocate(); err != nil {
		for len(l.sched.groups) > 0 {
			l.sched.fail(l.sched.groups[0], err)
		}
	}
}

// take makes the weights of o current and fails the requests that they make stale.
func (l *loop) take(o *publishOrder) error {
	if err := o.ctx.Err(); err != nil {
		return err
	}
	if o.weights.Version() < 0 {
		return fmt.Errorf("version is %d, expected at least 0", o.weights.Version())
	}
	l.trace.endDecode()
	start := time.Now()
	if err := l.m.use(o.weights); err != nil {
		return err
	}
	defer func() { l.trace.span(Span{Name: "publish", Start: start, Duration: time.Since(start)}) }()
	l.weights = published{serves: true, version: o.weights.Version(), checksum: o.checksum}
	for _, g := range slices.Clone(l.sched.groups) {
		err := l.weights.refuse(g)
		if g.started && err == nil {
			err = fmt.Errorf("%w: version %d was published while the request ran", inference.ErrStale,
				l.weights.version)
		}
		if err != nil {
			l.sched.fail(g, err)
		}
	}
	l.sched.leave()
	return nil
}

// dropCancelled ends requests whose callers have cancelled.
func (l *loop) dropCancelled() {
	groups := &l.sched.groups
	for i := 0; i < len(*groups); {
		if err := (*groups)[i].ctx.Err(); err != nil {
			l.sched.fail((*groups)[i], err)
		} else {
			i++
		}
	}
	l.sched.leave()
}

// report publishes the counters for Stats.
func (l *loop) report() {
	waiting := 0
	for _, g := range l.sched.groups {
		waiting += len(g.pending)
	}
	l.stats.Running = l.sched.rows
	l.stats.Waiting = waiting
	l.stats.FreePages = len(l.sched.pages.free)
	l.stats.CachePages = l.cfg.CachePages
	l.stats.Version = l.weights.version
	l.mailbox.report(l.stats)
}

// rest calls Config.Rest.
func (l *loop) rest(resting bool) {
	if l.cfg.Rest != nil {
		l.cfg.Rest(resting)
	}
}

// published identifies the weights that an engine holds.
type published struct {
	serves   bool // weights have been published; the other fields are valid
	version  int64
	checksum string
}

// refuse returns an error unless the weights satisfy the request.
func (p *published) refuse(g *group) error {
	switch {
	case !p.serves:
		return fmt.Errorf("%w: no weights have been published yet", inference.ErrStale)
	case g.req.Version != 0 && g.req.Version != p.version:
		return fmt.Errorf("%w: request needs version %d, but the engine has %d", inference.ErrStale,
			g.req.Version, p.version)
	}
	return nil
}
