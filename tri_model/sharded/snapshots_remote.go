package sharded

import (
	"context"
	"fmt"
	"sync"

	"github.com/easyrl/easyrl/parallel"
)

// Operations on the snapshots of another process.
const (
	opRead int64 = iota
	opRelease
	opEnd
)

// remoteSnapshots reads the snapshots of a rank in another process. Any goroutine may use it. mu is held
// from a request to its answer.
//
// A request holds the operation and the fields of a query. Only opRead has an answer: first the number
// of values and the length of an error's text, then the values or the text.
type remoteSnapshots struct {
	mu     sync.Mutex
	group  *parallel.Group // all ranks; the trainer is in the process of rank 0
	peer   int             // the rank
	buffer []float32       // values that read passes to use
	ended  bool            // whether end was called
}

// read implements snapshotReader. A context that ends during the exchange fails all ranks.
func (r *remoteSnapshots) read(ctx context.Context, q query, use func(values []float32)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.request(ctx, opRead, q); err != nil {
		return err
	}
	var sizes [2]int64
	if err := parallel.Recv(ctx, r.group, r.peer, sizes[:]); err != nil {
		return err
	}
	numValues, textLen := sizes[0], sizes[1]
	if min(numValues, textLen) < 0 || max(numValues, textLen) > maxMessage {
		return fmt.Errorf("rank %d announced %d values and an error of %d bytes, expected at most %d",
			r.peer, numValues, textLen, maxMessage)
	}
	if textLen > 0 {
		text := make([]byte, textLen)
		if err := parallel.Recv(ctx, r.group, r.peer, text); err != nil {
			return err
		}
		return fmt.Errorf("rank %d: %s", r.peer, text)
	}
	r.buffer = resize(r.buffer, int(numValues))
	if err := parallel.Recv(ctx, r.group, r.peer, r.buffer); err != nil {
		return err
	}
	use(r.buffer)
	return nil
}

// release implements snapshotReader.
func (r *remoteSnapshots) release(ctx context.Context, number int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.request(ctx, opRelease, query{number: number})
}

// end makes the rank's snapshots.serve return. Later calls fail.
func (r *remoteSnapshots) end(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.request(ctx, opEnd, query{})
	r.ended = true
	return err
}

// request sends a request. The caller holds mu.
func (r *remoteSnapshots) request(ctx context.Context, op int64, q query) error {
	if r.ended {
		return fmt.Errorf("rank %d has ended", r.peer)
	}
	return parallel.Send(ctx, r.group, r.peer, []int64{op, int64(q.which), q.number, int64(q.param)})
}

// serve answers rank 0's requests until it sends opEnd or ctx ends.
func (s *snapshots) serve(ctx context.Context, group *parallel.Group) error {
	for {
		var request [4]int64
		if err := parallel.Recv(ctx, group, 0, request[:]); err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // the rank has ended
			}
			return err
		}
		q := query{which: int(request[1]), number: request[2], param: int(request[3])}
		switch request[0] {
		case opEnd:
			return nil
		case opRelease:
			_ = s.release(ctx, q.number) // never fails
		default:
			if err := s.answer(ctx, group, q); err != nil {
				return err
			}
		}
	}
}

// answer sends the values that q asks for, or the error.
func (s *snapshots) answer(ctx context.Context, group *parallel.Group, q query) error {
	var sendErr error
	readErr := s.read(ctx, q, func(values []float32) {
		sendErr = parallel.Send(ctx, group, 0, []int64{int64(len(values)), 0})
		if sendErr == nil {
			sendErr = parallel.Send(ctx, group, 0, values)
		}
	})
	if readErr == nil {
		return sendErr
	}
	text := []byte(readErr.Error())
	if err := parallel.Send(ctx, group, 0, []int64{0, int64(len(text))}); err != nil {
		return err
	}
	return parallel.Send(ctx, group, 0, text)
}
