package parallel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// maxPosts limits the messages of Post to one rank that are not sent.
const maxPosts = 16

// Group is a set of ranks that communicate. Each rank makes its own Group with the same name
// and ranks. All ranks call the same collectives in the same order, one at a time; a label of each
// message makes ranks fail that do not. Send, Post and Recv may run concurrently with collectives, on a
// channel of their own. Messages of one rank to another arrive in the order of Send and Post.
//
// A collective uses the caller's data as buffer, from the call until it returns. After an error its
// content is meaningless, and the transport has failed for all ranks.
//
// Ranks in the arguments are positions in the group. A group of one rank communicates
// nothing.
type Group struct {
	t     Transport
	name  string
	ranks []int
	rank  int // of ranks, this one
	limit time.Duration

	collective sync.Mutex // held by the collective that runs; guards count and scratch
	count      uint32     // of collectives
	scratch    []byte     // one chunk, if the transport is no Viewer
	lanes      []lane     // by receiver
}

// lane keeps the messages to one rank in order.
type lane struct {
	mu   sync.Mutex
	last chan struct{} // closed when the last message is sent; nil before the first
	free chan struct{} // holds a token for each message of Post that is not sent
}

// NewGroup returns the group of ranks, which contain t's own and are distinct. The groups
// that a rank is in have different names. A call fails if a peer makes no progress for
// limit; 0 means that it waits until its ctx ends.
func NewGroup(t Transport, name string, ranks []int, limit time.Duration) (*Group, error) {
	g := &Group{
		t: t, name: name, ranks: slices.Clone(ranks), rank: slices.Index(ranks, t.Rank()),
		limit: limit, lanes: make([]lane, len(ranks)),
	}
	var errs []error
	if name == "" || len(name+postSuffix) > MaxChannel {
		errs = append(errs, fmt.Errorf("name is %q, expected 1 to %d bytes", name, MaxChannel-len(postSuffix)))
	}
	if g.rank < 0 {
		errs = append(errs, fmt.Errorf("ranks are %v, expected them to contain this rank, %d", ranks, t.Rank()))
	}
	for i, rank := range ranks {
		if rank < 0 || rank >= t.Size() || slices.Contains(ranks[:i], rank) {
			errs = append(errs, fmt.Errorf("ranks are %v, expected distinct ones below %d", ranks, t.Size()))
			break
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("make group %q: %w", name, err)
	}
	for i := range g.lanes {
		g.lanes[i].free = make(chan struct{}, maxPosts)
	}
	return g, nil
}

// Join returns t's group along an axis of m.
func (m Mesh) Join(t Transport, a Axis, limit time.Duration) (*Group, error) {
	if m.Size() != t.Size() {
		return nil, fmt.Errorf("join %s: mesh has %d ranks, expected the world's %d", a, m.Size(), t.Size())
	}
	return NewGroup(t, a.String(), m.Group(t.Rank(), a), limit)
}

// Rank returns this rank's position in the group.
func (g *Group) Rank() int { return g.rank }

// Size returns the number of ranks.
func (g *Group) Size() int { return len(g.ranks) }

// postSuffix separates Send's channel from that of the collectives.
const postSuffix = "/send"

// direct addresses a message of Send.
func (g *Group) direct(peer int) Envelope {
	return Envelope{Peer: g.ranks[peer], Channel: g.name + postSuffix, Limit: g.limit}
}

// other returns an error unless peer is another rank of the group.
func (g *Group) other(peer int) error {
	if peer < 0 || peer >= len(g.ranks) || peer == g.rank {
		return fmt.Errorf("rank is %d, expected one below %d and not this one, %d", peer, len(g.ranks), g.rank)
	}
	return nil
}

// Send sends data to a rank of g, which must call Recv. It may wait for that call, so two
// ranks that send to each other use Post. It returns when data may be changed.
func Send[T Element](ctx context.Context, g *Group, to int, data []T) error {
	if err := g.other(to); err != nil {
		return fmt.Errorf("send over %s: %w", g.name, err)
	}
	before, sent := g.lanes[to].queue()
	defer close(sent)
	return g.send(ctx, to, view(data), before)
}

// queue returns a channel that is closed when all earlier messages are sent, or nil, and one
// that the caller closes after its own.
func (l *lane) queue() (before <-chan struct{}, sent chan<- struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, last := l.last, make(chan struct{})
	l.last = last
	return before, last
}

// send sends a message after an earlier one, if before is not nil.
func (g *Group) send(ctx context.Context, to int, data []byte, before <-chan struct{}) error {
	if before != nil {
		select {
		case <-before:
		case <-ctx.Done(): // Send fails
		}
	}
	if err := g.t.Send(ctx, g.direct(to), data); err != nil {
		return fmt.Errorf("send to rank %d over %s: %w", to, g.name, err)
	}
	return nil
}

// Recv fills into with the next message of a rank of g, which must have its length.
func Recv[T Element](ctx context.Context, g *Group, from int, into []T) error {
	if err := g.other(from); err != nil {
		return fmt.Errorf("receive over %s: %w", g.name, err)
	}
	if err := g.t.Recv(ctx, g.direct(from), view(into)); err != nil {
		return fmt.Errorf("receive from rank %d over %s: %w", from, g.name, err)
	}
	return nil
}

// Pending is a message that Post has taken.
type Pending struct {
	done chan struct{}
	err  error
}

// Wait returns when the message's data may be changed.
func (p *Pending) Wait() error {
	<-p.done
	return p.err
}

// Post is Send in the background. It waits only if maxPosts messages to the same rank are
// under way. The message owns data until Wait, which the caller must call, returns.
func Post[T Element](ctx context.Context, g *Group, to int, data []T) *Pending {
	p := &Pending{done: make(chan struct{})}
	if err := g.other(to); err != nil {
		p.err = fmt.Errorf("post over %s: %w", g.name, err)
		close(p.done)
		return p
	}
	l := &g.lanes[to]
	select {
	case l.free <- struct{}{}:
	case <-ctx.Done():
		p.err = g.send(ctx, to, nil, nil) // fails
		close(p.done)
		return p
	}
	before, sent := l.queue()
	go func() {
		defer close(p.done)
		p.err = g.send(ctx, to, view(data), before)
		close(sent)
		<-l.free
	}()
	return p
}
