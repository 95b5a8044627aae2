// Package feed holds what has been sampled for a client and not yet been sent.
package feed

import (
	"slices"
	"sync"

	"github.com/easyrl/easyrl/inference"
)

// Feed is what waits for a client. The backend never does: what is held is bounded
// by what was asked for. It is safe for concurrent use.
type Feed struct {
	Ready chan struct{}          // holds a token where there is something to take
	Out   []inference.Completion // all responses, once Take has said that the end has come

	mu     sync.Mutex
	deltas []inference.Delta
	ended  bool
	err    error
}

// New is an empty Feed.
func New() *Feed { return &Feed{Ready: make(chan struct{}, 1)} }

func (f *Feed) wake() {
	select {
	case f.Ready <- struct{}{}:
	default:
	}
}

// Add appends d, whose slices stay the caller's.
func (f *Feed) Add(d inference.Delta) {
	d.IDs, d.Logprobs, d.Top = slices.Clone(d.IDs), slices.Clone(d.Logprobs), slices.Clone(d.Top)
	for i := range d.Top {
		d.Top[i] = slices.Clone(d.Top[i])
	}
	f.mu.Lock()
	f.deltas = append(f.deltas, d)
	f.mu.Unlock()
	f.wake()
}

// End says how it all ended.
func (f *Feed) End(out []inference.Completion, err error) {
	f.mu.Lock()
	f.ended, f.Out, f.err = true, out, err
	f.mu.Unlock()
	f.wake()
}

// Take is what has come since the last call, and whether and how it has ended.
func (f *Feed) Take() (deltas []inference.Delta, ended bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	deltas, f.deltas = f.deltas, nil
	return deltas, f.ended, f.err
}
