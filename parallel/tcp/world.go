package tcp

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/easyrl/easyrl/parallel"
)

// World is the transport of one rank.
//
// Rank 0 decides which rank has failed first. Another rank reports the failure that it finds to rank 0
// and waits for the verdict. If none comes within Config.Silence, its own finding is the verdict. The
// verdict ends life, which ends all calls, and each call returns it.
//
// mu is never held during a read, a write or a wait, nor together with the locks of handshakes and
// refusals. Each call holds calls for reading, and Close holds it for writing; Close ends
// life first, so calls end soon.
type World struct {
	cfg        Config
	listener   net.Listener // nil in a world of one rank
	waits      parallel.Waits
	left       []chan struct{} // by rank: closed when it has left
	ticket     string          // this rank's in tickets
	handshakes handshakes
	refused    refusals

	life   context.Context    // ends when the world has failed or Close begins
	end    context.CancelFunc // ends life
	failed chan struct{}      // closed once err is set, which is constant from then on
	calls  sync.RWMutex       // read-locked by each Send and Recv
	tasks  sync.WaitGroup     // all goroutines

	mu        sync.Mutex    // guards the following
	err       error         // the verdict
	reported  bool          // whether a failure was reported to rank 0
	grace     *time.Timer   // makes the reported failure the verdict if none comes
	rank0Gone bool          // whether rank 0 has left or failed
	closing   bool          // whether Close was called
	leavers   []int         // ranks that have left, in order
	ready     chan struct{} // closed once all ranks have joined; then addrs is complete and constant
	addrs     []string      // by rank
	// tickets are random texts by rank, which each rank chooses for each world. A connection for messages shows
	// that of its receiver. So a rank of a world that has ended, at the same address, cannot send messages to
	// the world that follows it. They are complete and constant when addrs are.
	tickets []string
	links   map[int]*link     // by peer: rank 0 has a link to each other rank, and those only to rank 0
	streams map[route]*stream // never removed
	conns   map[net.Conn]bool // connections without a link, which endLife closes
}

const ticketLen = 26 // length of rand.Text

func newWorld(cfg Config) *World {
	w := &World{
		cfg: cfg, waits: make(parallel.Waits, cfg.Size), left: make([]chan struct{}, cfg.Size),
		refused: refusals{warn: cfg.Warn},
		failed:  make(chan struct{}), ready: make(chan struct{}), addrs: make([]string, cfg.Size),
		ticket: rand.Text(), tickets: make([]string, cfg.Size),
		links: map[int]*link{}, streams: map[route]*stream{}, conns: map[net.Conn]bool{},
	}
	for i := range w.left {
		w.left[i] = make(chan struct{})
	}
	w.addrs[0] = cfg.Master
	w.tickets[cfg.Rank] = w.ticket
	w.life, w.end = context.WithCancel(context.Background())
	return w
}

// Rank returns this rank.
func (w *World) Rank() int { return w.cfg.Rank }

// Size returns the number of ranks.
func (w *World) Size() int { return w.cfg.Size }

// Abort implements parallel.Transport. It returns when rank 0 knows, or is silent for too
// long.
func (w *World) Abort(err error) {
	w.fail(w.cfg.Rank, err, false)
	_ = w.verdict() // the caller knows
}

// fail reports that this rank has found that a rank has failed. It does not wait for the verdict. overdue means
// that rank is only suspected, because its message is late: the culprit may be another rank that it waits for.
func (w *World) fail(rank int, err error, overdue bool) {
	w.failFor(w.cfg.Rank, rank, err, overdue, errors.As(err, new(forged)))
}

// failFor is fail for a failure that the rank by has found. Only rank 0 calls it for others. forgery means that a
// frame was not authentic: rank is then not lost, because that would happen again to a process that replaces it.
func (w *World) failFor(by, rank int, err error, overdue, forgery bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil || w.reported || w.closing {
		return
	}
	if w.cfg.Rank == 0 {
		if overdue {
			rank = parallel.Culprit(rank, w.waitsOf)
		}
		w.setVerdict(rank, err, by != rank && !forgery)
		return
	}
	l := w.links[0]
	if l == nil || w.rank0Gone {
		w.setVerdict(rank, err, false)
		return
	}
	w.reported = true
	l.out <- note{Kind: report, Rank: rank, Reason: reason(err), Overdue: overdue, Forged: forgery}
	w.grace = time.AfterFunc(w.cfg.Silence, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.setVerdict(rank, err, false)
	})
}

// setVerdict records the first verdict and ends all calls. Rank 0 sends it to the others. lost is that of
// parallel.RankError. The caller holds mu.
func (w *World) setVerdict(rank int, err error, lost bool) {
	if w.err != nil {
		return
	}
	w.err = &parallel.RankError{Rank: rank, Addr: w.addrs[rank], Err: err, Lost: lost}
	close(w.failed)
	w.endLife()
	if w.cfg.Rank != 0 {
		return
	}
	for _, l := range w.links {
		l.out <- note{Kind: verdict, Rank: rank, Reason: reason(err), Lost: lost}
	}
}

// endLife ends all calls and all connections except control connections. The caller holds mu.
func (w *World) endLife() {
	w.end()
	for c := range w.conns {
		_ = c.Close() // calls that use it fail and return the verdict
	}
	clear(w.conns)
}

// verdict waits for the verdict and returns it. After Close, without a failure, it returns
// net.ErrClosed.
func (w *World) verdict() error {
	select {
	case <-w.failed:
		return w.err
	case <-w.life.Done():
	}
	select {
	case <-w.failed:
		return w.err
	default:
		return net.ErrClosed
	}
}

// waitsOf returns, on rank 0, the ranks that a rank waits for according to its last beat. The caller
// holds mu.
func (w *World) waitsOf(rank int) []int {
	if rank == 0 {
		return w.waits.List()
	}
	if l := w.links[rank]; l != nil {
		return l.waits
	}
	return nil
}

// recordLeft records that a rank has left without a failure. Rank 0's links report it to the others.
func (w *World) recordLeft(rank int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.left[rank]:
		return
	default:
	}
	close(w.left[rank])
	w.leavers = append(w.leavers, rank)
	w.rank0Gone = w.rank0Gone || rank == 0
	for _, l := range w.links {
		select {
		case l.news <- struct{}{}:
		default: // it already holds a token
		}
	}
}

// Close implements parallel.Transport.
func (w *World) Close() error {
	w.mu.Lock()
	if !w.closing {
		w.closing = true
		w.endLife()
		if w.grace != nil {
			w.grace.Stop()
		}
		for _, l := range w.links {
			close(l.bye)
		}
	}
	w.mu.Unlock()
	var err error
	if w.listener != nil {
		if err = w.listener.Close(); errors.Is(err, net.ErrClosed) {
			err = nil
		}
	}
	w.calls.Lock() // waits for all calls, which could still start goroutines during tasks.Wait
	defer w.calls.Unlock()
	w.tasks.Wait()
	w.refused.flush()
	return err
}

// track registers a connection to close when life ends. If life has ended, it closes the connection
// and returns false.
func (w *World) track(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.life.Err() != nil {
		_ = c.Close() // no goroutine uses it yet
		return false
	}
	w.conns[c] = true
	return true
}

// drop closes a connection that track has registered.
func (w *World) drop(c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, c)
	_ = c.Close() // its handshake or stream has already failed
}

// reason returns an error's text, short enough for a note.
func reason(err error) string {
	text := err.Error()
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}
