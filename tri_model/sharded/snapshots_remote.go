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

// remoteSnapshots reads the snapshots of a rank in another process. Any goroutine may use it; mu makes
// each operation, with its answer, one exchange.
//
// A request is the operation, kind, number and parameter. opRead has an answer: the number of
// values and the length of an error's text, and then one of the two.
type remoteSnapshots struct {
	mu     sync.Mutex
	group  *parallel.Group // of all ranks; rank 0 has the trainer
	peer   int
	buffer []float32
	ended  bool
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
	if min(sizes[0], sizes[1]) < 0 || max(sizes[0], sizes[1]) > maxMessage {
		return fmt.Errorf("rank %d announced %d values and an error of %d bytes, expected at most %d",
			r.peer, sizes[0], sizes[1], maxMessage)
	}
	if sizes[1] > 0 {
		text := make([]byte, sizes[1])
		if err := parallel.Recv(ctx, r.group, r.peer, text); err != nil {
			return err
		}
		return fmt.Errorf("rank %d: %s", r.peer, text)
	}
	r.buffer = resize(r.buffer, int(sizes[0]))
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

// end makes the rank's serve return. Later calls fail.
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
	return parallel.Send(ctx, r.group, r.peer, []int64{op, int64(q.kind), q.number, int64(q.param)})
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
		q := query{kind: int(request[1]), number: request[2], param: int(request[3])}
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
	var sent error
	failed := s.read(ctx, q, func(values []float32) {
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
