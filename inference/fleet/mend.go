package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/easyrl/easyrl/inference"
)

// fall takes m out of service for a fault of its own: to state, or to RETIRED
// where it has fallen too often. f is locked.
func (f *Fleet) fall(m *member, to State, cause error) {
	m.restarts++
	if m.restarts > f.cfg.MaxRestarts {
		to, cause = Retired, fmt.Errorf("fell %d times, expected at most %d: %w", m.restarts, f.cfg.MaxRestarts, cause)
	}
	f.setState(m, to, cause)
}

// heal publishes the current weights again to an instance that turned out not
// to hold them. f is locked.
func (f *Fleet) heal(m *member) {
	if f.closed || !m.mayReturn() {
		return
	}
	refresh := f.refresh(f.gen.ctx, m)
	f.gen.reads.Go(func() { _ = refresh() }) // the outcome is m's state
}

// mend probes m until it answers and takes the weights, for as long as they are
// the current ones. f is locked.
func (f *Fleet) mend(m *member) {
	p, ok := m.inst.(inference.Prober)
	gen := f.gen
	if !ok || f.closed || !m.mayReturn() || m.mending == gen {
		return
	}
	m.mending = gen
	gen.reads.Go(func() {
		for !f.mended(gen, m, p) {
		}
	})
}

// mended waits, probes once, publishes where that succeeds and reports whether
// no more is to be done.
func (f *Fleet) mended(gen *generation, m *member, p inference.Prober) bool {
	t := time.NewTimer(f.cfg.ProbeEvery)
	defer t.Stop()
	ctx, cancel := context.WithTimeoutCause(gen.ctx, f.cfg.ProbeEvery+f.cfg.ProbeTimeout, overdue(f.cfg.ProbeTimeout))
	defer cancel()
	select {
	case <-t.C:
	case <-gen.ctx.Done():
	case <-m.ctx.Done():
	}
	if f.restored(gen, m) {
		return true
	}
	if _, err := within(ctx, f.cfg.Watchdog, func() (struct{}, error) { return struct{}{}, p.Probe(ctx) }); err != nil {
		return false
	}
	f.mu.Lock()
	if f.gen != gen {
		f.mu.Unlock()
		return true
	}
	refresh := f.refresh(gen.ctx, m)
	f.mu.Unlock()
	if err := refresh(); err != nil {
		f.mu.Lock()
		if f.gen == gen && m.mayReturn() {
			f.fall(m, m.state, err) // it answers and does not take them: not for ever
		}
		f.mu.Unlock()
	}
	return f.restored(gen, m)
}

// restored reports that m serves, or that it is not for this mending to bring it
// back.
func (f *Fleet) restored(gen *generation, m *member) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gen == gen && m.mayReturn() && !m.serves() && gen.ctx.Err() == nil {
		return false
	}
	if m.mending == gen {
		m.mending = nil
	}
	return true
}
