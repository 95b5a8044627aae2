package main

import (
	"errors"
	"fmt"
	"sync"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/report"
)

// mostNews is how many lines wait to be written before the oldest are dropped.
const mostNews = 1000

// news are what a run says of its instances as they come, fail and go. Who tells
// it something does not wait until that is written: a terminal that is stopped
// must not stop the fleet.
type news struct {
	warn  func(format string, args ...any)
	wake  chan struct{} // holds a token where there is something to write; closed at the end
	wrote sync.WaitGroup

	mu      sync.Mutex
	control *report.Control
	ill     map[string]bool // instances of which the last was a fault
	lines   []string        // to be written
	dropped int             // of them
	closed  bool
}

func newNews(warn func(format string, args ...any)) *news {
	n := &news{warn: warn, wake: make(chan struct{}, 1), ill: map[string]bool{}}
	n.wrote.Go(func() {
		for range n.wake {
			n.write()
		}
		n.write()
	})
	return n
}

// close writes what is left.
func (n *news) close() {
	n.mu.Lock()
	if !n.closed {
		n.closed = true
		close(n.wake)
	}
	n.mu.Unlock()
	n.wrote.Wait()
}

// write writes the lines that wait.
func (n *news) write() {
	n.mu.Lock()
	lines, dropped := n.lines, n.dropped
	n.lines, n.dropped = nil, 0
	n.mu.Unlock()
	if dropped > 0 {
		n.warn("%d lines about instances are left out here", dropped)
	}
	for _, line := range lines {
		n.warn("%s", line)
	}
}

// line has a line written. n is locked.
func (n *news) line(format string, args ...any) {
	if n.closed {
		return
	}
	if len(n.lines) >= mostNews {
		n.lines = n.lines[1:]
		n.dropped++
	}
	n.lines = append(n.lines, fmt.Sprintf(format, args...))
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// tellTo lets those at the control address hear of it too.
func (n *news) tellTo(control *report.Control) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.control = control
}

func (n *news) note(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.line(format, args...)
}

// hear is told by the fleet of each change of a state. What every publish does
// to every instance is no news.
func (n *news) hear(e inference.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	event := report.InstanceEvent{ID: e.ID, From: e.From.String(), To: e.To.String()}
	switch {
	case e.ID == "":
		n.line("%s", oneLine(errors.New(e.String())))
		event = report.InstanceEvent{}
		if e.Err != nil {
			event.Cause = oneLine(e.Err).Error()
		}
	case e.Err != nil:
		event.Cause = oneLine(e.Err).Error()
		n.ill[e.ID] = true
		n.line("instance %s: %s, was %s: %s", e.ID, e.To, e.From, event.Cause)
	case e.To == inference.Healthy && n.ill[e.ID]:
		delete(n.ill, e.ID)
		n.line("instance %s: %s again", e.ID, e.To)
	case e.To != inference.Draining:
		return
	}
	n.control.Instance(event)
}

// came tells of a server that joined, with the fault that keeps it from its work
// where there is one.
func (n *news) came(m report.Member, fault error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	event := report.InstanceEvent{ID: m.ID, To: m.State}
	switch {
	case fault != nil:
		event.Cause = oneLine(fault).Error()
		n.ill[m.ID] = true
		n.line("instance %s (%s) joined, %s: %s", m.ID, m.Kind, m.State, event.Cause)
	case m.Version > 0:
		n.line("instance %s (%s) joined: it serves version %d", m.ID, m.Kind, m.Version)
	default:
		n.line("instance %s (%s) joined", m.ID, m.Kind)
	}
	n.control.Instance(event)
}

func (n *news) left(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.ill, id)
	n.line("instance %s left", id)
	n.control.Instance(report.InstanceEvent{ID: id, From: inference.Draining.String()})
}
