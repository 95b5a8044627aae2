// Package feed holds parts of an answer until they are sent to a client.
package feed

import (
	"slices"
	"sync"

	"github.com/easyrl/easyrl/inference"
)

// Feed queues parts of an answer for a client. The backend never waits for it; the request
// bounds its size. It is safe for concurrent use.
type Feed[T any] struct {
	Ready chan struct{}          // holds a token when Take has something to return
	Out   []inference.Completion // all responses, valid once Take returns ended

	mu    sync.Mutex
	parts []T
	ended bool
	err   error
}

// New returns an empty Feed.
func New[T any]() *Feed[T] { return &Feed[T]{Ready: make(chan struct{}, 1)} }

func (f *Feed[T]) wake() {
	select {
	case f.Ready <- struct{}{}:
	default:
	}
}

// Add appends a part.
func (f *Feed[T]) Add(part T) {
	f.mu.Lock()
	f.parts = append(f.parts, part)
	f.mu.Unlock()
	f.wake()
}

// End records the result of the request.
func (f *Feed[T]) End(out []inference.Completion, err error) {
	f.mu.Lock()
	f.ended, f.Out, f.err = true, out, err
	f.mu.Unlock()
	f.wake()
}

// Take returns the parts added since the last call, and whether and how the request has
// ended.
func (f *Feed[T]) Take() (parts []T, ended bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	parts, f.parts = f.parts, nil
	return parts, f.ended, f.err
}

// Copy returns a copy of d that stays valid.
func Copy(d inference.Delta) inference.Delta {
	d.IDs, d.Logprobs, d.Top = slices.Clone(d.IDs), slices.Clone(d.Logprobs), slices.Clone(d.Top)
	for i := range d.Top {
		d.Top[i] = slices.Clone(d.Top[i])
	}
	return d
}
