package parallel

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// Transport carries messages between one rank and all others of its world. Its methods may
// be called concurrently.
//
// Messages of one sender on one channel arrive in the order in which they were sent.
// Channels do not block each other.
//
// The failure of one call fails the world: every pending or later call of every rank returns an error
// that wraps a *RankError with the first rank that failed. A call also fails the world if its ctx ends,
// because it may have sent half of a message.
type Transport interface {
	Rank() int // this rank, 0 to Size()-1
	Size() int // number of ranks

	// Send sends data. When it returns, the caller may change data, which may not have arrived yet.
	Send(ctx context.Context, e Envelope, data []byte) error

	// Recv fills into with the next message of a peer's channel. It fails if the message has another
	// length. The caller must not use into before Recv returns.
	Recv(ctx context.Context, e Envelope, into []byte) error

	// Abort fails the world with this rank as the culprit. It may block until other ranks know of it, for
	// a time that the transport limits.
	Abort(err error)

	// Close leaves the world and waits for all calls and goroutines of this rank. A rank
	// that still expects a message of this one fails.
	Close() error
}

// Viewer is a Transport that can show a message in its own memory instead of copying it.
type Viewer interface {
	// View calls use with the next message, which must have n bytes. use must not keep or change data.
	View(ctx context.Context, e Envelope, n int, use func(data []byte)) error
}

// Envelope addresses a message.
type Envelope struct {
	Peer    int           // the other rank of the world
	Channel string        // at most MaxChannel bytes
	Label   Label         // must be the same at both ends
	Limit   time.Duration // time without progress after which the peer has failed; 0 for no limit
}

// MaxChannel limits a channel's name.
const MaxChannel = 64

// In describes the call, as in "all-reduce over tp".
func (e Envelope) In() string { return e.Label.Op.String() + " over " + e.Channel }

// Op is an operation of a Group.
type Op uint32

// The operations.
const (
	OpSend Op = iota
	OpAllReduce
	OpAllGather
	OpReduceScatter
	OpBroadcast
	OpBarrier
)

func (o Op) String() string {
	names := [...]string{"send", "all-reduce", "all-gather", "reduce-scatter", "broadcast", "barrier"}
	if int(o) >= len(names) {
		return fmt.Sprintf("operation %d", uint32(o))
	}
	return names[o]
}

// Label identifies the call that a message belongs to, so that ranks that call different operations
// fail instead of mixing up their data.
type Label struct {
	Op    Op
	Count uint32 // number of earlier collectives of the group, which wraps; 0 for OpSend
}

func (l Label) String() string { return fmt.Sprintf("%s %d", l.Op, l.Count) }

// Check returns an error unless a received message has the label and the number of bytes that Recv wants.
func Check(got, want Label, gotBytes, wantBytes uint64) error {
	switch {
	case got != want:
		return fmt.Errorf("message is of %s, expected %s", got, want)
	case gotBytes != wantBytes:
		return fmt.Errorf("message of %s is %d bytes, expected %d", got, gotBytes, wantBytes)
	}
	return nil
}

// RankError names the rank that failed.
type RankError struct {
	Rank int
	Addr string // empty if the transport has no addresses
	Err  error
	// Lost is set on rank 0 if others have lost the rank, for example because its process was killed. It is
	// not set if the rank itself has reported Err (Transport.Abort), and on transports that do not know.
	Lost bool
}

// Error names the rank and, if known, its address.
func (e *RankError) Error() string {
	if e.Addr == "" {
		return fmt.Sprintf("rank %d: %v", e.Rank, e.Err)
	}
	return fmt.Sprintf("rank %d (%s): %v", e.Rank, e.Addr, e.Err)
}

func (e *RankError) Unwrap() error { return e.Err }

// Culprit returns the rank that keeps the others waiting. A message from suspect is overdue, but suspect
// may itself wait for other ranks, and these for others. waitsFor returns the ranks that a rank waits
// for. Culprit searches them breadth first and returns the first rank that waits for none, or suspect
// if there is no such rank.
func Culprit(suspect int, waitsFor func(rank int) []int) int {
	seen := map[int]bool{}
	queue := []int{suspect}
	for len(queue) > 0 {
		rank := queue[0]
		queue = queue[1:]
		if seen[rank] {
			continue
		}
		seen[rank] = true
		others := waitsFor(rank)
		if len(others) == 0 {
			return rank
		}
		queue = append(queue, others...)
	}
	return suspect
}

// Waits counts, for each peer, the calls of this rank that wait for it. Culprit needs it. It is safe for
// concurrent use.
type Waits []atomic.Int32

// On records a call that waits for peer. The caller calls done once, when the call ends.
func (w Waits) On(peer int) (done func()) {
	w[peer].Add(1)
	return func() { w[peer].Add(-1) }
}

// List returns the ranks that at least one call waits for, in ascending order.
func (w Waits) List() []int {
	var ranks []int
	for rank := range w {
		if w[rank].Load() > 0 {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}
