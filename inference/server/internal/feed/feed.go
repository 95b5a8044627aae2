// Package feed holds sampled tokens until they are sent to a client.
package feed

import (
	"slices"
	"sync"

	"github.com/easyrl/easyrl/inference"
)

// Feed queues tokens for a client. The backend never waits for it; the request bounds its
// size. It is safe for concurrent use.
type Feed struct {
	Ready chan struct{}          // holds a token when Take has something to return
	Out   []inference.Completion // all responses, valid once Take returns ended

	mu     sync.Mutex
	deltas []inference.Delta
	ended  bool
	err    error
}

// New returns an empty Feed.
func New() *Feed { return &Feed{Ready: make(chan struct{}, 1)} }

func (f *Feed) wake() {
	select {
	case f.Ready <- struct{}{}:
	default:
	}
}

// Add appends a copy of d.
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

// End records the result of the request.
func (f *Feed) End(out []inference.Completion, err error) {
	f.mu.Lock()
	f.ended, f.Out, f.err = true, out, err
	f.mu.Unlock()
	f.wake()
}

// Take returns the tokens added since the last call, and whether and how the request has
// ended.
func (f *Feed) Take() (deltas []inference.Delta, ended bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	deltas, f.deltas = f.deltas, nil
	return deltas, f.ended, f.err
}
