package tcp

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/easyrl/easyrl/parallel"
)

// World is the transport of one rank.
//
// Rank 0 decides which rank has failed first. Another rank reports what it finds and waits for the
// verdict, Config.Silence at most; then its own finding is the verdict. The verdict ends life, which
// ends all calls, and each call returns it.
//
// The locks of handshakes and refusals are taken alone; mu is never held while anything is read,
// written or waited for. A call holds calls for reading; Close ends life first, so that it gets calls
// soon.
type World struct {
	cfg        Config
	listener   net.Listener // nil in a world of one
	waits      parallel.Waits
	left       []chan struct{} // by rank; closed when it has left
	handshakes handshakes
	refused    refusals

	life   context.Context // ends when the world has failed or Close begins
	end    context.CancelFunc
	failed chan struct{}  // closed once err is set
	calls  sync.RWMutex   // read-locked by Send and Recv
	tasks  sync.WaitGroup // all goroutines

	mu       sync.Mutex
	err      error       // the verdict
	reported bool        // a failure to rank 0, whose verdict is awaited
	grace    *time.Timer // after reported: the end of waiting
	alone    bool        // rank 0 has left or failed
	closing  bool
	leavers  []int         // ranks that have left, in order
	ready    chan struct{} // closed once addrs is complete
	addrs    []string      // by rank
	links    map[int]*link // by rank; rank 0 has one to each other rank, which has one to rank 0
	streams  map[route]*stream
	conns    map[net.Conn]bool // all but those of links; closed when life ends
}

func newWorld(cfg Config) *World {
	w := &World{
		cfg: cfg, waits: make(parallel.Waits, cfg.Size), left: make([]chan struct{}, cfg.Size),
		refused: refusals{warn: cfg.Warn},
		failed:  make(chan struct{}), ready: make(chan struct{}), addrs: make([]string, cfg.Size),
		links: map[int]*link{}, streams: map[route]*stream{}, conns: map[net.Conn]bool{},
	}
	for i := range w.left {
		w.left[i] = make(chan struct{})
	}
	w.addrs[0] = cfg.Master
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

// fail reports that a rank has failed; verdict waits for what follows. overdue means that the rank is
// only suspected, because a message of it is late: the culprit may be a rank that it waits for.
func (w *World) fail(rank int, err error, overdue bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil || w.reported || w.closing {
		return
	}
	if w.cfg.Rank == 0 {
		if overdue {
			rank = parallel.Culprit(rank, w.waitsOf)
		}
		w.setVerdict(rank, err)
		return
	}
	l := w.links[0]
	if l == nil || w.alone {
		w.setVerdict(rank, err)
		return
	}
	w.reported = true
	l.out <- note{Kind: report, Rank: rank, Reason: reason(err), Overdue: overdue}
	w.grace = time.AfterFunc(w.cfg.Silence, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.setVerdict(rank, err)
	})
}

// setVerdict records the verdict, unless there is one, and ends all calls. Rank 0 sends it to the
// others. The caller holds mu.
func (w *World) setVerdict(rank int, err error) {
	if w.err != nil {
		return
	}
	w.err = &parallel.RankError{Rank: rank, Addr: w.addrs[rank], Err: err}
	close(w.failed)
	w.endLife()
	if w.cfg.Rank != 0 {
		return
	}
	for _, l := range w.links {
		l.out <- note{Kind: verdict, Rank: rank, Reason: reason(err)}
	}
}

// endLife ends everything but the control connections. The caller holds mu.
func (w *World) endLife() {
	w.end()
	for c := range w.conns {
		_ = c.Close() // its users fail and return the verdict
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

// waitsOf returns the ranks that a rank waits for, as far as rank 0 knows. The caller holds
// mu.
func (w *World) waitsOf(rank int) []int {
	if rank == 0 {
		return w.waits.List()
	}
	if l := w.links[rank]; l != nil {
		return l.waits
	}
	return nil
}

// hasLeft records that a rank has left without a failure.
func (w *World) hasLeft(rank int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.left[rank]:
		return
	default:
	}
	close(w.left[rank])
	w.leavers = append(w.leavers, rank)
	w.alone = w.alone || rank == 0
	for _, l := range w.links {
		select {
		case l.news <- struct{}{}:
		default: // it holds a token
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
	w.calls.Lock() // calls start goroutines, so they end before tasks.Wait
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
		_ = c.Close() // nobody uses it
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
	_ = c.Close() // its users have failed
}

// reason returns an error's text, short enough for a note.
func reason(err error) string {
	text := err.Error()
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}
