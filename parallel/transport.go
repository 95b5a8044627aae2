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
// A call that fails fails the world: every later or pending call of every rank returns an
// error that wraps a *RankError with the first rank that failed. This includes a call whose
// ctx ends, because half a message may be on its way.
type Transport interface {
	Rank() int
	Size() int

	// Send returns when data may be changed. Then data may not have arrived.
	Send(ctx context.Context, e Envelope, data []byte) error

	// Recv fills into with the next message of a peer's channel, which must have its
	// length. Only the callee uses into until Recv returns.
	Recv(ctx context.Context, e Envelope, into []byte) error

	// Abort fails the world with this rank as the culprit. It waits at most for the other ranks to know.
	Abort(err error)

	// Close leaves the world and waits for all calls and goroutines of this rank. A rank
	// that still expects a message of this one fails.
	Close() error
}

// Viewer is a Transport that can show a message in its own memory instead of copying it.
type Viewer interface {
	// View calls use with the next message, which must have n bytes. use must not keep them.
	View(ctx context.Context, e Envelope, n int, use func(data []byte)) error
}

// Envelope addresses a message.
type Envelope struct {
	Peer    int           // the other rank of the world
	Channel string        // at most MaxChannel bytes
	Label   Label         // must be the same at both ends
	Limit   time.Duration // without progress, after which the peer has failed; 0 for none
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

// Label says which call a message belongs to, so that ranks that call different operations
// fail instead of mixing up their data.
type Label struct {
	Op    Op
	Count uint32 // earlier collectives of the group; wraps
}

func (l Label) String() string { return fmt.Sprintf("%s %d", l.Op, l.Count) }

// Check returns an error unless a message is the one that Recv expects.
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
}

// Error names the rank and, if known, its address.
func (e *RankError) Error() string {
	if e.Addr == "" {
		return fmt.Sprintf("rank %d: %v", e.Rank, e.Err)
	}
	return fmt.Sprintf("rank %d (%s): %v", e.Rank, e.Addr, e.Err)
}

func (e *RankError) Unwrap() error { return e.Err }

// Culprit returns the rank that keeps the others waiting, given one that is suspected
// because a message of it is overdue. waits returns the ranks that a rank waits for. If all
// that suspect depends on wait for each other, the result is suspect.
func Culprit(suspect int, waits func(rank int) []int) int {
	seen, next := map[int]bool{}, []int{suspect}
	for len(next) > 0 {
		rank := next[0]
		next = next[1:]
		if seen[rank] {
			continue
		}
		seen[rank] = true
		others := waits(rank)
		if len(others) == 0 {
			return rank
		}
		next = append(next, others...)
	}
	return suspect
}

// Waits counts the calls of one rank that wait for each other rank, for Culprit.
type Waits []atomic.Int32

// On records a call that waits for a rank until the result is called.
func (w Waits) On(peer int) (done func()) {
	w[peer].Add(1)
	return func() { w[peer].Add(-1) }
}

// List returns the ranks waited for.
func (w Waits) List() []int {
	var ranks []int
	for rank := range w {
		if w[rank].Load() > 0 {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}
