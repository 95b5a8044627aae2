package parallel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// maxPosts limits the messages to one rank that Post has accepted and not yet sent.
const maxPosts = 16

// Group is a set of ranks that communicate. Each rank makes its own Group with the same name
// and ranks. All ranks call the same collectives in the same order, one at a time. Every message carries
// a label with the operation and its number, so ranks that call different collectives fail. Send, Post
// and Recv may run concurrently with collectives, because they use another channel. Messages of one rank
// to another arrive in the order of Send and Post.
//
// A collective uses the caller's data as its buffer until it returns. After an error the content of
// data has no meaning, and the transport has failed for all ranks.
//
// Ranks in the arguments and results of its methods are positions in the group. In a group of one rank
// collectives return at once.
type Group struct {
	t     Transport
	name  string
	ranks []int         // ranks of the world, by position in the group
	rank  int           // this rank's position in the group
	limit time.Duration // time without progress after which a peer has failed; 0 for no limit

	collective sync.Mutex // held while a collective runs; guards count and scratch
	count      uint32     // number of collectives so far; wraps
	scratch    []byte     // buffer of chunk bytes for recvFold; nil if the transport is a Viewer
	lanes      []lane     // by the receiver's position in the group
}

// lane keeps the messages to one rank in order: each message waits for the one before it.
type lane struct {
	mu    sync.Mutex
	last  chan struct{} // closed when the newest message is sent; nil before the first; guarded by mu
	posts chan struct{} // holds a token for each message that Post has accepted and not yet sent
}

// NewGroup returns the group of the given ranks of t's world, which are distinct and include t's own.
// A rank's groups have different names. A call fails if a peer makes no progress for limit; with limit
// 0 it waits until its ctx ends.
func NewGroup(t Transport, name string, ranks []int, limit time.Duration) (*Group, error) {
	g := &Group{
		t: t, name: name, ranks: slices.Clone(ranks), rank: slices.Index(ranks, t.Rank()),
		limit: limit, lanes: make([]lane, len(ranks)),
	}
	var errs []error
	if name == "" || len(name+sendSuffix) > MaxChannel {
		errs = append(errs, fmt.Errorf("name is %q, expected 1 to %d bytes", name, MaxChannel-len(sendSuffix)))
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
		g.lanes[i].posts = make(chan struct{}, maxPosts)
	}
	return g, nil
}

// Join returns the group of t's rank along axis a of m. m has as many ranks as t's world. limit is that
// of NewGroup.
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

// sendSuffix separates the channel of Send, Post and Recv from that of the collectives.
const sendSuffix = "/send"

// sendEnvelope addresses a message of Send or Post.
func (g *Group) sendEnvelope(peer int) Envelope {
	return Envelope{Peer: g.ranks[peer], Channel: g.name + sendSuffix, Limit: g.limit}
}

// checkPeer returns an error unless peer is another rank of the group.
func (g *Group) checkPeer(peer int) error {
	if peer < 0 || peer >= len(g.ranks) || peer == g.rank {
		return fmt.Errorf("rank is %d, expected 0 to %d and not this one, %d", peer, len(g.ranks)-1, g.rank)
	}
	return nil
}

// Send sends data to a rank of g, which must call Recv. Send may block until that call, so two ranks
// that send to each other use Post instead. The caller may change data as soon as Send returns.
func Send[T Element](ctx context.Context, g *Group, to int, data []T) error {
	if err := g.checkPeer(to); err != nil {
		return fmt.Errorf("send over %s: %w", g.name, err)
	}
	earlier, done := g.lanes[to].queue()
	defer close(done)
	return g.send(ctx, to, view(data), earlier)
}

// queue adds a message to the lane. earlier is closed when all messages before it are sent; it is nil
// for the first message. The caller closes done after it has sent the message or failed.
func (l *lane) queue() (earlier <-chan struct{}, done chan<- struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	earlier = l.last
	last := make(chan struct{})
	l.last = last
	return earlier, last
}

// send waits until earlier, if not nil, is closed, and sends a message.
func (g *Group) send(ctx context.Context, to int, data []byte, earlier <-chan struct{}) error {
	if earlier != nil {
		select {
		case <-earlier:
		case <-ctx.Done(): // the transport's Send below fails, and the world with it
		}
	}
	if err := g.t.Send(ctx, g.sendEnvelope(to), data); err != nil {
		return fmt.Errorf("send to rank %d over %s: %w", to, g.name, err)
	}
	return nil
}

// Recv fills into with the next message from a rank of g. It fails if the message has another length.
func Recv[T Element](ctx context.Context, g *Group, from int, into []T) error {
	if err := g.checkPeer(from); err != nil {
		return fmt.Errorf("receive over %s: %w", g.name, err)
	}
	if err := g.t.Recv(ctx, g.sendEnvelope(from), view(into)); err != nil {
		return fmt.Errorf("receive from rank %d over %s: %w", from, g.name, err)
	}
	return nil
}

// Pending is a message of Post.
type Pending struct {
	done chan struct{} // closed when the message is sent or has failed
	err  error         // set before done is closed
}

// Wait returns when the caller may change the message's data, with the error of sending it.
func (p *Pending) Wait() error {
	<-p.done
	return p.err
}

// Post is Send in the background. It blocks only while maxPosts messages to the same rank are under
// way. The caller must call Wait, and must not change data before Wait returns.
func Post[T Element](ctx context.Context, g *Group, to int, data []T) *Pending {
	p := &Pending{done: make(chan struct{})}
	if err := g.checkPeer(to); err != nil {
		p.err = fmt.Errorf("post over %s: %w", g.name, err)
		close(p.done)
		return p
	}
	l := &g.lanes[to]
	select {
	case l.posts <- struct{}{}:
	case <-ctx.Done():
		p.err = g.send(ctx, to, nil, nil) // sends nothing: ctx has ended, so it fails the world
		close(p.done)
		return p
	}
	earlier, done := l.queue()
	go func() {
		defer close(p.done)
		p.err = g.send(ctx, to, view(data), earlier)
		close(done)
		<-l.posts
	}()
	return p
}
