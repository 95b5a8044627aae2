//go:build mpi

package mpi

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net"
	"sync"
	"time"

	"github.com/easyrl/easyrl/parallel"
)

const (
	headerSize = 24      // operation, count and length of a message, and its channel's hash
	piece      = 1 << 28 // bytes that are sent at once
)

var errClosed = fmt.Errorf("MPI: %w", net.ErrClosed)

// World is the transport of one rank.
type World struct {
	rank, size int
	jobs       chan *job
	ended      chan struct{} // closed when the engine has ended
	result     error         // of the engine

	mu      sync.Mutex
	err     *parallel.RankError
	closing bool
	closed  time.Time
	turns   map[turn]chan struct{}
}

// turn is a direction of a channel, which carries one message at a time.
type turn struct {
	send    bool
	peer    int
	channel string
}

// Open starts MPI, which a process can do once.
func Open() (*World, error) {
	w := &World{jobs: make(chan *job), ended: make(chan struct{}), turns: map[turn]chan struct{}{}}
	started := make(chan error)
	e := &engine{w: w}
	go e.run(started)
	if err := <-started; err != nil {
		<-w.ended
		return nil, fmt.Errorf("start MPI: %w", err)
	}
	return w, nil
}

// Rank returns this rank.
func (w *World) Rank() int { return w.rank }

// Size returns the number of ranks.
func (w *World) Size() int { return w.size }

// Send implements parallel.Transport.
func (w *World) Send(ctx context.Context, to parallel.Envelope, data []byte) error {
	tag, sum := tags(to.Channel)
	header := make([]byte, 0, headerSize)
	header = binary.LittleEndian.AppendUint32(header, uint32(to.Label.Op))
	header = binary.LittleEndian.AppendUint32(header, to.Label.Count)
	header = binary.LittleEndian.AppendUint64(header, uint64(len(data)))
	header = binary.LittleEndian.AppendUint64(header, sum)
	return w.exclusive(ctx, to, true, func() error {
		if err := w.do(ctx, to, true, header, tag); err != nil {
			return err
		}
		return w.pieces(ctx, to, true, data, tag+1)
	})
}

// Recv implements parallel.Transport.
func (w *World) Recv(ctx context.Context, from parallel.Envelope, into []byte) error {
	tag, sum := tags(from.Channel)
	return w.exclusive(ctx, from, false, func() error {
		header := make([]byte, headerSize)
		if err := w.do(ctx, from, false, header, tag); err != nil {
			return err
		}
		label := parallel.Label{Op: parallel.Op(binary.LittleEndian.Uint32(header)), Count: binary.LittleEndian.Uint32(header[4:])}
		err := parallel.Check(label, from.Label, binary.LittleEndian.Uint64(header[8:]), uint64(len(into)))
		if got := binary.LittleEndian.Uint64(header[16:]); err == nil && got != sum {
			err = fmt.Errorf("message is of another channel than %q with the same tag %d, expected other names", from.Channel, tag)
		}
		if err != nil {
			return w.fail(from.Peer, err)
		}
		return w.pieces(ctx, from, false, into, tag+1)
	})
}

// Abort implements parallel.Transport.
func (w *World) Abort(err error) { _ = w.fail(w.rank, err) }

// Close implements parallel.Transport. It waits until all ranks leave or one has failed.
func (w *World) Close() error {
	w.mu.Lock()
	if !w.closing {
		w.closing, w.closed = true, time.Now()
	}
	w.mu.Unlock()
	<-w.ended
	return w.result
}

// tags returns the tag of a channel's headers, which precedes that of its data, and its hash.
// MPI guarantees tags up to 32767.
func tags(channel string) (tag int, sum uint64) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(channel)) // never fails
	sum = h.Sum64()
	return 2 + 2*int(sum%16_000), sum
}

// exclusive runs a call while its channel carries no other message in that direction.
func (w *World) exclusive(ctx context.Context, at parallel.Envelope, send bool, call func() error) error {
	if at.Peer < 0 || at.Peer >= w.size || at.Peer == w.rank {
		return fmt.Errorf("rank is %d, expected one below %d and not this one, %d", at.Peer, w.size, w.rank)
	}
	w.mu.Lock()
	key := turn{send, at.Peer, at.Channel}
	own := w.turns[key]
	if own == nil {
		own = make(chan struct{}, 1)
		w.turns[key] = own
	}
	w.mu.Unlock()
	select {
	case own <- struct{}{}:
	case <-w.ended:
		return errClosed
	case <-ctx.Done():
		return w.fail(w.rank, ctx.Err())
	}
	defer func() { <-own }()
	return call()
}

// pieces sends or receives data in parts.
func (w *World) pieces(ctx context.Context, at parallel.Envelope, send bool, data []byte, tag int) error {
	for len(data) > 0 {
		part := data[:min(len(data), piece)]
		if err := w.do(ctx, at, send, part, tag); err != nil {
			return err
		}
		data = data[len(part):]
	}
	return nil
}

// do lets the engine send or receive part of a message.
func (w *World) do(ctx context.Context, at parallel.Envelope, send bool, data []byte, tag int) error {
	if err := w.failure(); err != nil {
		return err
	}
	j := &job{ctx: ctx, at: at, send: send, data: data, tag: tag, done: make(chan error, 1)}
	if at.Limit > 0 {
		j.until = time.Now().Add(at.Limit)
	}
	select {
	case w.jobs <- j:
		return <-j.done
	case <-w.ended:
		return errClosed
	}
}

// fail records the first failure, unless there is one, and returns it.
func (w *World) fail(rank int, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = &parallel.RankError{Rank: rank, Err: err}
	}
	return w.err
}

// failure returns the first failure, or nil.
func (w *World) failure() *parallel.RankError {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *World) isClosing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closing
}
