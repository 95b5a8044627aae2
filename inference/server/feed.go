package server

import (
	"slices"
	"sync"

	"github.com/easyrl/easyrl/inference"
)

// feed queues parts of an answer for a client. The backend never waits for the client; the request
// bounds the size of the queue. Methods may be called concurrently.
type feed[T any] struct {
	ready chan struct{}          // has room for one token, which add and end put there
	out   []inference.Completion // all responses; may be read once take has returned ended

	mu    sync.Mutex
	parts []T   // added since the last take
	ended bool  // end was called
	err   error // passed to end
}

// newFeed returns an empty feed.
func newFeed[T any]() *feed[T] { return &feed[T]{ready: make(chan struct{}, 1)} }

// wake puts a token into ready.
func (f *feed[T]) wake() {
	select {
	case f.ready <- struct{}{}:
	default:
	}
}

// add appends a part.
func (f *feed[T]) add(part T) {
	f.mu.Lock()
	f.parts = append(f.parts, part)
	f.mu.Unlock()
	f.wake()
}

// end records the result of the request.
func (f *feed[T]) end(out []inference.Completion, err error) {
	f.mu.Lock()
	f.ended, f.out, f.err = true, out, err
	f.mu.Unlock()
	f.wake()
}

// take returns the parts added since the last call, and whether and how the request has
// ended.
func (f *feed[T]) take() (parts []T, ended bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	parts, f.parts = f.parts, nil
	return parts, f.ended, f.err
}

// copyOf returns a copy of d that stays valid after emit has returned; see inference.Streamer.
func copyOf(d inference.Delta) inference.Delta {
	d.IDs, d.Logprobs, d.Top = slices.Clone(d.IDs), slices.Clone(d.Logprobs), slices.Clone(d.Top)
	for i := range d.Top {
		d.Top[i] = slices.Clone(d.Top[i])
	}
	return d
}
