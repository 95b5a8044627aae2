package lend

import (
	"context"
	"fmt"
	"sync"

	"github.com/easyrl/easyrl/parallel"
)

// What a message to a shelf in another process asks for.
const (
	lendValues int64 = iota
	dropSaved
	endShelf
)

// maxMessage limits what a peer may make this process allocate.
const maxMessage = 1 << 31

// Far is the shelf of a rank in another process. Any goroutine may use it.
//
// A message to the shelf has the operation, the kind, the version and the parameter. The answer to
// lendValues has the number of values and the length of an error, and then one of the two.
type Far struct {
	mu     sync.Mutex
	group  *parallel.Group // of all ranks; rank 0 has the trainer
	peer   int
	buffer []float32
	ended  bool
}

// NewFar returns the shelf of a rank of a group in which that rank serves.
func NewFar(group *parallel.Group, rank int) *Far { return &Far{group: group, peer: rank} }

// Lend implements Lender. A context that ends during a message fails all ranks.
func (f *Far) Lend(ctx context.Context, q Query, use func(values []float32)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.send(ctx, lendValues, q); err != nil {
		return err
	}
	var sizes [2]int64
	if err := parallel.Recv(ctx, f.group, f.peer, sizes[:]); err != nil {
		return err
	}
	if min(sizes[0], sizes[1]) < 0 || max(sizes[0], sizes[1]) > maxMessage {
		return fmt.Errorf("rank %d announced %d values and an error of %d bytes, expected at most %d", f.peer, sizes[0], sizes[1], maxMessage)
	}
	if sizes[1] > 0 {
		text := make([]byte, sizes[1])
		if err := parallel.Recv(ctx, f.group, f.peer, text); err != nil {
			return err
		}
		return fmt.Errorf("rank %d: %s", f.peer, text)
	}
	f.buffer = room(f.buffer, int(sizes[0]))
	if err := parallel.Recv(ctx, f.group, f.peer, f.buffer); err != nil {
		return err
	}
	use(f.buffer)
	return nil
}

// Release implements Lender.
func (f *Far) Release(ctx context.Context, number int64) error {
	return f.tell(ctx, dropSaved, Query{Version: number})
}

// End ends Serve. Later calls fail.
func (f *Far) End(ctx context.Context) error {
	err := f.tell(ctx, endShelf, Query{})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	return err
}

func (f *Far) tell(ctx context.Context, op int64, q Query) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.send(ctx, op, q)
}

func (f *Far) send(ctx context.Context, op int64, q Query) error {
	if f.ended {
		return fmt.Errorf("rank %d has ended", f.peer)
	}
	return parallel.Send(ctx, f.group, f.peer, []int64{op, int64(q.Kind), q.Version, int64(q.Param)})
}

// Serve answers rank 0 of a group until it calls End or ctx ends.
func (s *Shelf) Serve(ctx context.Context, group *parallel.Group) error {
	for {
		var m [4]int64
		if err := parallel.Recv(ctx, group, 0, m[:]); err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // the rank has ended
			}
			return err
		}
		switch m[0] {
		case endShelf:
			return nil
		case dropSaved:
			_ = s.Release(ctx, m[2]) // never fails
		default:
			if err := s.answer(ctx, group, Query{Kind: int(m[1]), Version: m[2], Param: int(m[3])}); err != nil {
				return err
			}
		}
	}
}

// answer sends the values that q asks for, or the error.
func (s *Shelf) answer(ctx context.Context, group *parallel.Group, q Query) error {
	var sent error
	failed := s.Lend(ctx, q, func(values []float32) {
		if sent = parallel.Send(ctx, group, 0, []int64{int64(len(values)), 0}); sent == nil {
			sent = parallel.Send(ctx, group, 0, values)
		}
	})
	if failed == nil {
		return sent
	}
	text := []byte(failed.Error())
	if err := parallel.Send(ctx, group, 0, []int64{0, int64(len(text))}); err != nil {
		return err
	}
	return parallel.Send(ctx, group, 0, text)
}
