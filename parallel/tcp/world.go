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
type World struct {
	cfg      Config
	listener net.Listener // nil in a world of one
	waits    parallel.Waits
	left     []chan struct{} // by rank; closed when it has left
	lobby    lobby
	refused  refusals

	life   context.Context // ends when the world has failed or Close begins
	end    context.CancelFunc
	failed chan struct{}  // closed once err is set
	calls  sync.RWMutex   // read-locked by Send and Recv
	tasks  sync.WaitGroup // all goroutines

	mu       sync.Mutex
	err      error // the verdict
	reported bool  // to rank 0, whose verdict is awaited
	grace    *time.Timer
	alone    bool // because rank 0 has left or failed
	closing  bool
	leavers  []int         // ranks that have left, in order
	ready    chan struct{} // closed once addrs is complete
	addrs    []string      // by rank
	links    map[int]*link // by rank; rank 0 has one to every other, those have one to rank 0
	streams  map[route]*stream
	conns    map[net.Conn]bool // all but the links', to close when life ends
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

// fail reports that a rank has failed. overdue says that it is only suspected, because
// something that it should have sent is missing. The verdict follows.
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
		w.settle(rank, err)
		return
	}
	l := w.links[0]
	if l == nil || w.alone {
		w.settle(rank, err)
		return
	}
	w.reported = true
	l.out <- note{Kind: report, Rank: rank, Reason: reason(err), Overdue: overdue} // has room
	w.grace = time.AfterFunc(w.cfg.Silence, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.settle(rank, err)
	})
}

// settle records the verdict and ends all calls. Rank 0 sends it to the others. The caller
// holds mu.
func (w *World) settle(rank int, err error) {
	if w.err != nil {
		return
	}
	w.err = &parallel.RankError{Rank: rank, Addr: w.addrs[rank], Err: err}
	close(w.failed)
	w.hangUp()
	if w.cfg.Rank != 0 {
		return
	}
	for _, l := range w.links {
		l.out <- note{Kind: verdict, Rank: rank, Reason: reason(err)} // has room
	}
}

// hangUp ends everything but the control connections. The caller holds mu.
func (w *World) hangUp() {
	w.end()
	for c := range w.conns {
		_ = c.Close() // its users fail, and ask for the verdict
	}
	clear(w.conns)
}

// verdict waits until it is known what has failed.
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

// leave records that a rank has left without a failure.
func (w *World) leave(rank int) {
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
		default: // it will look
		}
	}
}

// Close implements parallel.Transport.
func (w *World) Close() error {
	w.mu.Lock()
	if !w.closing {
		w.closing = true
		w.hangUp()
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
	w.calls.Lock() // calls have ended, so none starts a goroutine from now on
	defer w.calls.Unlock()
	w.tasks.Wait()
	w.refused.flush()
	return err
}

// track keeps a connection to close when life ends. It returns false if that is now.
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

// drop closes a connection that track keeps.
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
