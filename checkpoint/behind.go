package checkpoint

import (
	"io"
	"slices"
	"sync"
)

// A Behind writes blocks of values as little-endian float32 while its caller makes
// the next ones. It is used by one goroutine, which closes it.
type Behind struct {
	full, free chan []float32
	failed     chan struct{} // closed once err is set
	err        error
	writing    sync.WaitGroup
}

// WriteBehind writes to w until Close.
func WriteBehind(w io.Writer) *Behind {
	b := &Behind{full: make(chan []float32), free: make(chan []float32, numBlocks), failed: make(chan struct{})}
	for range numBlocks {
		b.free <- nil
	}
	b.writing.Go(func() {
		for vals := range b.full {
			if b.err = writeFloats(w, vals); b.err != nil {
				close(b.failed)
				return
			}
			b.free <- vals
		}
	})
	return b
}

// Room is memory for the next block of n values.
func (b *Behind) Room(n int) ([]float32, error) {
	select {
	case vals := <-b.free:
		return slices.Grow(vals[:0], n)[:n], nil
	case <-b.failed:
		return nil, b.err
	}
}

// Write takes a block whose memory Room gave.
func (b *Behind) Write(vals []float32) error {
	select {
	case b.full <- vals:
		return nil
	case <-b.failed:
		return b.err
	}
}

// Close waits for what is being written and returns the first failure.
func (b *Behind) Close() error {
	close(b.full)
	b.writing.Wait()
	return b.err
}
