package tcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/easyrl/easyrl/internal/peer"
)

// note is a message of a control connection, as JSON.
type note struct {
	Kind    kind
	Rank    int      `json:",omitempty"` // the culprit, or the rank that has left
	Reason  string   `json:",omitempty"` // of a report or verdict
	Overdue bool     `json:",omitempty"` // whether a report is only a suspicion
	Waits   []int    `json:",omitempty"` // ranks that the sender waits for
	Addrs   []string `json:",omitempty"` // of all ranks
}

type kind string

const (
	beat    kind = "beat"    // both ways: the sender lives
	table   kind = "table"   // from rank 0: all have joined
	report  kind = "report"  // to rank 0: a rank has failed
	verdict kind = "verdict" // from rank 0: the first rank that has failed
	left    kind = "left"    // from rank 0: a rank has left
	bye     kind = "bye"     // both ways: the sender leaves
)

const (
	maxNote  = 8 << 10 // bytes of a note without addresses
	maxAddr  = 260
	maxWaits = 4
	linger   = time.Second // how long Close waits for the other side of a control connection
)

// link is a control connection: of rank 0 to another rank, or of another rank to rank 0. Two goroutines
// use it: write sends beats and notes, read handles the peer's. Both end when either side leaves.
//
// A note is queued in out with World.mu held, and must not wait. It does not: a world sends a peer at
// most two notes through out.
type link struct {
	w     *World
	peer  int
	addr  string
	conn  *conn
	out   chan note     // has room for all: two reports, or a table and a verdict
	news  chan struct{} // holds a token if World.leavers has grown; of rank 0's links
	bye   chan struct{} // closed when this rank leaves
	ended chan struct{} // closed when read returns

	// Guarded by World.mu.
	waits []int // of the peer's last beat
	sent  int   // how many of World.leavers the peer knows of
}

func newLink(w *World, rank int, addr string, c *conn) *link {
	return &link{
		w: w, peer: rank, addr: addr, conn: c,
		out: make(chan note, 2), news: make(chan struct{}, 1), bye: make(chan struct{}), ended: make(chan struct{}),
	}
}

// serve runs l until either side leaves.
func (l *link) serve() {
	defer l.conn.Close()
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(l.ended)
		l.read()
	})
	l.write()
	reading.Wait()
}

// write sends beats and notes.
func (l *link) write() {
	w := l.w
	every := time.NewTicker(min(w.cfg.Silence/4, time.Second))
	defer every.Stop()
	send := func(n note) bool {
		return l.conn.SetWriteDeadline(time.Now().Add(w.cfg.Silence)) == nil && l.conn.sendNote(n) == nil
	}
	for {
		ok := true
		select {
		case n := <-l.out:
			ok = send(n)
		case <-every.C:
			waits := w.waits.List()
			ok = send(note{Kind: beat, Waits: waits[:min(len(waits), maxWaits)]})
		case <-l.news:
			for _, rank := range l.newLeavers() {
				ok = ok && send(note{Kind: left, Rank: rank})
			}
		case <-l.ended:
			l.flush()
			return
		case <-l.bye:
			if l.flush() && l.conn.sendNote(note{Kind: bye}) == nil {
				if c, is := l.conn.Conn.(*net.TCPConn); is {
					_ = c.CloseWrite() // Close could discard what is under way
				}
			}
			return
		}
		if !ok {
			return // read finds out why
		}
	}
}

// flush sends the notes in out. It takes linger at most, since the peer may hang.
func (l *link) flush() (ok bool) {
	ok = l.conn.SetDeadline(time.Now().Add(linger)) == nil
	for ok && len(l.out) > 0 {
		ok = l.conn.sendNote(<-l.out) == nil
	}
	return ok
}

// newLeavers returns the ranks that have left since its last call. Only rank 0 has any.
func (l *link) newLeavers() []int {
	w := l.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cfg.Rank != 0 {
		return nil
	}
	ranks := slices.Clone(w.leavers[l.sent:])
	l.sent = len(w.leavers)
	return ranks
}

// read handles the peer's notes.
func (l *link) read() {
	w := l.w
	limit := maxNote
	if w.cfg.Rank != 0 {
		limit += w.cfg.Size * (maxAddr + 3)
	}
	for {
		_ = l.conn.SetReadDeadline(time.Now().Add(w.cfg.Silence)) // if it fails, so does reading
		select {
		case <-l.bye:
			_ = l.conn.SetReadDeadline(time.Now().Add(linger))
		default:
		}
		n, err := l.conn.receiveNote(limit)
		switch {
		case err != nil:
			l.lost(err)
			return
		case n.Kind == bye:
			l.left()
			return
		}
		if err := l.handle(n); err != nil {
			l.lost(err)
			return
		}
	}
}

// handle acts on a note. An error means that the peer breaks the protocol.
func (l *link) handle(n note) error {
	w := l.w
	fromHost := l.peer == 0
	if n.Rank < 0 || n.Rank >= w.cfg.Size {
		return fmt.Errorf("note is about rank %d, expected one below %d", n.Rank, w.cfg.Size)
	}
	switch {
	case n.Kind == beat:
		if slices.ContainsFunc(n.Waits, func(r int) bool { return r < 0 || r >= w.cfg.Size }) {
			return fmt.Errorf("waits are for ranks %v, expected ones below %d", n.Waits, w.cfg.Size)
		}
		w.mu.Lock()
		l.waits = n.Waits
		w.mu.Unlock()
	case n.Kind == report && !fromHost:
		w.fail(n.Rank, errors.New(n.Reason), n.Overdue)
	case n.Kind == verdict && fromHost:
		w.mu.Lock()
		w.setVerdict(n.Rank, errors.New(n.Reason))
		w.mu.Unlock()
	case n.Kind == left && fromHost:
		w.hasLeft(n.Rank)
	case n.Kind == table && fromHost && len(n.Addrs) == w.cfg.Size && !w.isReady():
		w.mu.Lock()
		copy(w.addrs[1:], n.Addrs[1:]) // rank 0's is known
		close(w.ready)
		w.mu.Unlock()
	default:
		return fmt.Errorf("note is %q, which is unexpected here", n.Kind)
	}
	return nil
}

// isReady reports whether the world is complete.
func (w *World) isReady() bool {
	select {
	case <-w.ready:
		return true
	default:
		return false
	}
}

// lost handles a control connection that ended without a bye.
func (l *link) lost(err error) {
	w := l.w
	if l.removeBeforeStart() {
		w.cfg.Warn("rank %d (%s) is gone, waiting for it to join again: %v", l.peer, l.addr, peer.Fault(err))
		return
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("no sign of life for %v", w.cfg.Silence)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("connection is closed, the process has ended")
	case errors.As(err, new(forged)):
		err = fmt.Errorf("control connection: %w", err)
	}
	err = peer.Fault(err)
	if w.cfg.Rank == 0 {
		w.fail(l.peer, err, false)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.alone = true
	if !w.closing {
		if w.err == nil && errors.As(err, new(forged)) {
			l.out <- note{Kind: report, Reason: reason(err)} // rank 0 may still be reached
		}
		w.setVerdict(0, err)
	}
}

// left handles a peer's bye.
func (l *link) left() {
	w := l.w
	if l.removeBeforeStart() {
		w.cfg.Warn("rank %d (%s) has left, waiting for it to join again", l.peer, l.addr)
		return
	}
	w.hasLeft(l.peer)
}

// removeBeforeStart removes l if the world is not complete, so that the rank can join again. It reports
// whether it did.
func (l *link) removeBeforeStart() bool {
	w := l.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cfg.Rank != 0 || w.isReady() || w.closing || w.err != nil {
		return false
	}
	delete(w.links, l.peer)
	w.addrs[l.peer] = ""
	return true
}

// sendNote sends a note.
func (c *conn) sendNote(n note) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return c.sendText(text)
}

// receiveNote receives a note of up to limit bytes.
func (c *conn) receiveNote(limit int) (n note, err error) {
	text, err := c.receiveText(limit)
	if err != nil {
		return n, err
	}
	if err := json.Unmarshal(text, &n); err != nil {
		return n, fmt.Errorf("note is malformed: %w", err)
	}
	return n, nil
}
