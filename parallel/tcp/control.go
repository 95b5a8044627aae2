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
	"syscall"
	"time"

	"github.com/easyrl/easyrl/internal/peer"
)

// note is a message of a control connection, as JSON.
type note struct {
	Kind    kind
	Rank    int      `json:",omitempty"` // culprit of a report or verdict, or the rank that has left
	Reason  string   `json:",omitempty"` // text of the culprit's error in a report or verdict
	Lost    bool     `json:",omitempty"` // parallel.RankError.Lost of a verdict
	Forged  bool     `json:",omitempty"` // whether a report is about a frame that is not authentic
	Overdue bool     `json:",omitempty"` // whether a report is only a suspicion, because a message is late
	Waits   []int    `json:",omitempty"` // ranks that the sender of a beat waits for
	Addrs   []string `json:",omitempty"` // addresses by rank in a table
	Tickets []string `json:",omitempty"` // by rank in a table
}

type kind string

const (
	beat    kind = "beat"    // both ways: the sender is alive
	table   kind = "table"   // from rank 0: all have joined
	report  kind = "report"  // to rank 0: a rank has failed
	verdict kind = "verdict" // from rank 0: the first rank that has failed
	left    kind = "left"    // from rank 0: a rank has left
	bye     kind = "bye"     // both ways: the sender leaves
)

const (
	maxNote  = 8 << 10     // bytes of a note without addresses
	maxAddr  = 260         // bytes of an address: up to 253 of a DNS name, plus 6 for ":65535"
	maxWaits = 4           // elements of note.Waits
	linger   = time.Second // how long Close waits for the other side of a control connection
)

// link is one end of a control connection, between rank 0 and another rank. Two goroutines use it: write
// sends beats and notes, and read handles the peer's notes. Both end when either side leaves.
//
// World.mu is held while a note is sent to out. The send must not block, and cannot: out has room for
// all notes that a world ever sends through it.
type link struct {
	w     *World
	peer  int
	addr  string
	conn  *conn
	out   chan note     // at most two notes: two reports to rank 0, or a table and a verdict from it
	news  chan struct{} // holds a token if World.leavers has grown; only rank 0 passes the growth on
	bye   chan struct{} // closed when this rank leaves
	ended chan struct{} // closed when read returns

	// Guarded by World.mu.
	waits   []int // ranks that the peer waits for, from its last beat
	leavers int   // how many of World.leavers the peer has been told
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

// write sends beats and notes until this rank leaves, read returns or sending fails.
func (l *link) write() {
	w := l.w
	ticker := time.NewTicker(min(w.cfg.Silence/4, time.Second))
	defer ticker.Stop()
	send := func(n note) bool {
		return l.conn.SetWriteDeadline(time.Now().Add(w.cfg.Silence)) == nil && l.conn.sendNote(n) == nil
	}
	for {
		ok := true
		select {
		case n := <-l.out:
			ok = send(n)
		case <-ticker.C:
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
				if c, isTCP := l.conn.Conn.(*net.TCPConn); isTCP {
					_ = c.CloseWrite() // lets queued data go out first; Close could discard some
				}
			}
			return
		}
		if !ok {
			return // read finds the cause and handles it
		}
	}
}

// flush sends the notes in out. It also sets a deadline of linger for all further use of the
// connection, since the peer may hang.
func (l *link) flush() (ok bool) {
	ok = l.conn.SetDeadline(time.Now().Add(linger)) == nil
	for ok && len(l.out) > 0 {
		ok = l.conn.sendNote(<-l.out) == nil
	}
	return ok
}

// newLeavers returns the ranks that have left since its last call. It returns none on ranks other than 0.
func (l *link) newLeavers() []int {
	w := l.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cfg.Rank != 0 {
		return nil
	}
	ranks := slices.Clone(w.leavers[l.leavers:])
	l.leavers = len(w.leavers)
	return ranks
}

// read handles the peer's notes until its bye or an error.
func (l *link) read() {
	w := l.w
	limit := maxNote
	if w.cfg.Rank != 0 {
		limit += w.cfg.Size * (maxAddr + ticketLen + 6) // a table, in which each text has quotes and a comma
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

// handle acts on a note other than a bye. An error means that the peer violates the protocol.
func (l *link) handle(n note) error {
	w := l.w
	fromRank0 := l.peer == 0
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
	case n.Kind == report && !fromRank0:
		w.failFor(l.peer, n.Rank, errors.New(n.Reason), n.Overdue, n.Forged)
	case n.Kind == verdict && fromRank0:
		w.mu.Lock()
		w.setVerdict(n.Rank, errors.New(n.Reason), n.Lost)
		w.mu.Unlock()
	case n.Kind == left && fromRank0:
		w.recordLeft(n.Rank)
	case n.Kind == table && fromRank0 && len(n.Addrs) == w.cfg.Size && len(n.Tickets) == w.cfg.Size && !w.isReady():
		w.mu.Lock()
		copy(w.addrs[1:], n.Addrs[1:]) // addrs[0] is Config.Master
		w.tickets = n.Tickets
		close(w.ready)
		w.mu.Unlock()
	default:
		return fmt.Errorf("note is %q, which is unexpected here", n.Kind)
	}
	return nil
}

// isReady reports whether all ranks have joined.
func (w *World) isReady() bool {
	select {
	case <-w.ready:
		return true
	default:
		return false
	}
}

// closedByPeer reports whether err means that the peer has closed a connection. Which error says so depends on what
// this process was sending, and on what the peer had not read.
func closedByPeer(err error) bool {
	return slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, syscall.EPIPE, syscall.ECONNRESET},
		func(end error) bool { return errors.Is(err, end) })
}

// lost handles the end of a control connection without a bye: the peer may join again if not all ranks
// have joined yet, and has failed otherwise.
func (l *link) lost(err error) {
	w := l.w
	if l.removeBeforeStart() {
		w.cfg.Warn("rank %d (%s) is gone, waiting for it to join again: %v", l.peer, l.addr, peer.Fault(err))
		return
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("no sign of life for %v", w.cfg.Silence)
	case closedByPeer(err):
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
	w.rank0Gone = true
	if !w.closing {
		if w.err == nil && errors.As(err, new(forged)) {
			l.out <- note{Kind: report, Reason: reason(err)} // the connection may still work
		}
		w.setVerdict(0, err, false)
	}
}

// left handles a peer's bye.
func (l *link) left() {
	w := l.w
	if l.removeBeforeStart() {
		w.cfg.Warn("rank %d (%s) has left, waiting for it to join again", l.peer, l.addr)
		return
	}
	w.recordLeft(l.peer)
}

// removeBeforeStart removes l on rank 0 if not all ranks have joined, so that the peer can join again. It
// reports whether it has removed l.
func (l *link) removeBeforeStart() bool {
	w := l.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cfg.Rank != 0 || w.isReady() || w.closing || w.err != nil {
		return false
	}
	delete(w.links, l.peer)
	w.addrs[l.peer], w.tickets[l.peer] = "", ""
	return true
}

// sendNote sends n as JSON.
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
