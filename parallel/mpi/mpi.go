//go:build mpi

package mpi

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/easyrl/easyrl/parallel"
)

const (
	headerSize = 24      // bytes: operation, count and length of a message, and its channel's hash
	pieceSize  = 1 << 28 // bytes that are sent at once; MPI counts them with an int
	maxJobs    = 64      // capacity of World.jobs; further calls block

	defaultSilence = 30 * time.Second
)

var errClosed = fmt.Errorf("MPI: %w", net.ErrClosed)

// World is the transport of one rank.
type World struct {
	rank, size int
	silence    time.Duration // time without a sign of life after which a rank has failed
	waits      parallel.Waits
	jobs       chan *job     // jobs for the engine
	failed     chan struct{} // closed once err is set, which is constant from then on
	leaving    chan struct{} // closed when the engine makes no more calls except MPI_Finalize
	ended      chan struct{} // closed when the engine has ended
	finalize   func() error  // MPI_Finalize, or a test's
	result     error         // error of finalize; set before ended is closed

	mu     sync.Mutex             // guards the following; never held while waiting
	found  *note                  // the first failure that this rank has found
	err    *parallel.RankError    // the verdict
	closed time.Time              // when Close was called; zero before
	turns  map[turn]chan struct{} // each holds a token while a message is sent or received
}

// turn is a direction of a channel, which carries one message at a time.
type turn struct {
	send    bool
	peer    int
	channel string
}

// Open starts MPI, which a process can do only once.
func Open() (*World, error) { return open(defaultSilence, finalize) }

// open is Open with parameters for tests.
func open(silence time.Duration, finalize func() error) (*World, error) {
	w := &World{
		silence: silence, finalize: finalize, jobs: make(chan *job, maxJobs), failed: make(chan struct{}),
		leaving: make(chan struct{}), ended: make(chan struct{}), turns: map[turn]chan struct{}{},
	}
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
	tag, hash := channelTag(to.Channel)
	header := make([]byte, 0, headerSize)
	header = binary.LittleEndian.AppendUint32(header, uint32(to.Label.Op))
	header = binary.LittleEndian.AppendUint32(header, to.Label.Count)
	header = binary.LittleEndian.AppendUint64(header, uint64(len(data)))
	header = binary.LittleEndian.AppendUint64(header, hash)
	return w.exclusive(&job{ctx: ctx, envelope: to, send: true, tag: tag, parts: parts(header, data)})
}

// Recv implements parallel.Transport.
func (w *World) Recv(ctx context.Context, from parallel.Envelope, into []byte) error {
	tag, hash := channelTag(from.Channel)
	header := make([]byte, headerSize)
	check := func() error {
		label := parallel.Label{
			Op:    parallel.Op(binary.LittleEndian.Uint32(header)),
			Count: binary.LittleEndian.Uint32(header[4:]),
		}
		if got := binary.LittleEndian.Uint64(header[16:]); got != hash {
			return fmt.Errorf("message is of another channel than %q with the same tag %d, expected other names",
				from.Channel, tag)
		}
		return parallel.Check(label, from.Label, binary.LittleEndian.Uint64(header[8:]), uint64(len(into)))
	}
	return w.exclusive(&job{ctx: ctx, envelope: from, tag: tag, parts: parts(header, into), checkHeader: check})
}

// parts returns a header, and then data in pieces.
func parts(header, data []byte) [][]byte {
	all := [][]byte{header}
	for piece := range slices.Chunk(data, pieceSize) {
		all = append(all, piece)
	}
	return all
}

// Abort implements parallel.Transport. It returns when rank 0 knows, or is silent for too
// long.
func (w *World) Abort(err error) {
	w.fail(w.rank, err, false)
	_ = w.verdict() // the caller knows
}

// Close implements parallel.Transport. It waits until all ranks leave or one has failed.
func (w *World) Close() error {
	w.mu.Lock()
	if w.closed.IsZero() {
		w.closed = time.Now()
	}
	w.mu.Unlock()
	<-w.leaving
	select {
	case <-w.ended:
		return w.result
	case <-time.After(w.silence):
		return fmt.Errorf("MPI_Finalize has not returned for %v, a rank has failed after it left", w.silence)
	}
}

// channelTag returns the tag of a channel's headers and the channel's hash. The data has the next tag.
// Tags are even and at least 2, because notes have noteTag, and at most 32767, which MPI guarantees.
// Two channels may share a tag; the hash in each header detects that.
func channelTag(channel string) (tag int, hash uint64) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(channel)) // never fails
	hash = h.Sum64()
	return 2 + 2*int(hash%16_000), hash
}

// exclusive runs a message's job once its channel carries no other message in that direction. MPI keeps
// the order of requests with the same peer and tag, so parts of different messages do not mix.
func (w *World) exclusive(j *job) error {
	peer := j.envelope.Peer
	if peer < 0 || peer >= w.size || peer == w.rank {
		return fmt.Errorf("rank is %d, expected 0 to %d and not this one, %d", peer, w.size-1, w.rank)
	}
	defer w.waits.On(peer)()
	w.mu.Lock()
	key := turn{j.send, peer, j.envelope.Channel}
	token := w.turns[key]
	if token == nil {
		token = make(chan struct{}, 1)
		w.turns[key] = token
	}
	w.mu.Unlock()
	select {
	case token <- struct{}{}:
	case <-w.failed:
		return w.err
	case <-w.leaving:
		return errClosed
	case <-j.ctx.Done():
		w.fail(w.rank, j.ctx.Err(), false)
		return w.verdict()
	}
	defer func() { <-token }()
	if err := w.stopped(); err != nil {
		return err
	}
	return w.do(j)
}

// do queues a job for the engine and waits for its result.
func (w *World) do(j *job) error {
	j.done = make(chan error, 1)
	select {
	case w.jobs <- j:
	case <-w.leaving:
		return errClosed
	}
	select {
	case err := <-j.done:
		return err
	case <-w.leaving:
	}
	select {
	case err := <-j.done:
		return err
	default:
		return errClosed // the engine stopped before it took the job
	}
}

// fail records the first failure that this rank finds. The engine reports it to rank 0, and the verdict
// follows. overdue means that rank is only suspected, because its message is late: the culprit may be
// another rank that it waits for.
func (w *World) fail(rank int, err error, overdue bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.found == nil {
		w.found = &note{Kind: report, Rank: rank, Reason: reason(err), Overdue: overdue}
	}
}

// setVerdict records the first verdict and ends all calls.
func (w *World) setVerdict(rank int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = &parallel.RankError{Rank: rank, Err: err}
		close(w.failed)
	}
}

// verdict waits for the verdict and returns it, or errClosed if the engine stops before.
func (w *World) verdict() error {
	select {
	case <-w.failed:
		return w.err
	case <-w.leaving:
		return errClosed
	}
}

// findings returns what this rank has found, and the verdict. Both may be nil.
func (w *World) findings() (*note, *parallel.RankError) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.found, w.err
}

// failure returns the verdict, or nil.
func (w *World) failure() *parallel.RankError {
	_, err := w.findings()
	return err
}

// stopped returns an error if the world has failed or Close was called.
func (w *World) stopped() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.err != nil:
		return w.err
	case !w.closed.IsZero():
		return errClosed
	}
	return nil
}

// closing returns when Close was called, or zero.
func (w *World) closing() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}
