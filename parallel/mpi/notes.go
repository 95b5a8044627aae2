//go:build mpi

package mpi

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/easyrl/easyrl/parallel"
)

const (
	noteTag   = 0 // of notes; those of messages are 2 and above
	noteSize  = 1024
	maxReason = 500
	maxWaits  = 4
	linger    = time.Second // how long a world that has failed sends its notes
)

// note is what ranks tell each other beside messages. It is sent as JSON, padded with spaces.
type note struct {
	Kind    kind
	From    int
	Rank    int    `json:",omitempty"` // the culprit of a report or verdict
	Reason  string `json:",omitempty"` // of a report or verdict
	Overdue bool   `json:",omitempty"` // whether a report is only a suspicion
	Waits   []int  `json:",omitempty"` // ranks that the sender waits for
}

type kind string

const (
	beat    kind = "beat"    // from and to rank 0: the sender lives
	report  kind = "report"  // to rank 0: a rank has failed
	verdict kind = "verdict" // to all: the sender knows the first rank that has failed
	left    kind = "left"    // to all: the sender leaves
)

// notes is the part of the engine that knows how all ranks are.
type notes struct {
	next     *request // of the next note; nil if none can be received
	text     []byte   // of the next note
	sends    []*request
	beaten   time.Time   // the last beat
	looked   time.Time   // the last look at notes
	seen     []time.Time // by rank; the last note
	waits    [][]int     // by rank; of the last beat
	gone     []bool      // by rank; those that have left
	knows    []bool      // by rank; those that have sent a verdict, or that have left
	reported time.Time   // zero if nothing was reported to rank 0
	told     bool        // the others know the verdict
	bye      bool        // the others know that this rank has left
}

// begin receives the first note.
func (e *engine) begin() error {
	n := e.w.size
	e.notes = notes{seen: make([]time.Time, n), waits: make([][]int, n), gone: make([]bool, n), knows: make([]bool, n)}
	return e.expect()
}

// expect receives the next note.
func (e *engine) expect() (err error) {
	e.text = make([]byte, noteSize)
	e.next, err = post(false, e.text, anyone, noteTag)
	return err
}

// converse reads and sends notes.
func (e *engine) converse(now time.Time) {
	for e.next != nil {
		done, err := e.next.test()
		if !done && err == nil {
			break
		}
		if err == nil {
			err = e.read()
		}
		if again := e.expect(); err == nil {
			err = again
		}
		if err != nil {
			e.w.settle(e.w.rank, fmt.Errorf("receive a note: %w", err))
		}
	}
	e.judge()
	e.listen(now)
	if now.Sub(e.beaten) > min(e.w.silence/4, time.Second) {
		e.beaten = now
		waits := e.w.waits.List()
		e.tell(note{Kind: beat, Waits: waits[:min(len(waits), maxWaits)]}, e.neighbours()...)
	}
	rest := e.sends[:0]
	for _, r := range e.sends {
		if done, err := r.test(); !done && err == nil {
			rest = append(rest, r)
		}
	}
	clear(e.sends[len(rest):])
	e.sends = rest
}

// judge passes on what this rank has found out. Rank 0 decides who has failed first.
func (e *engine) judge() {
	found, failed := e.w.findings()
	switch {
	case failed != nil && !e.told:
		e.told = true
		e.tell(note{Kind: verdict, Rank: failed.Rank, Reason: reason(failed.Err)}, e.others()...)
	case failed != nil || found == nil:
	case e.w.rank == 0:
		rank := found.Rank
		if found.Overdue {
			rank = parallel.Culprit(rank, func(rank int) []int {
				if rank == 0 {
					return e.w.waits.List()
				}
				return e.waits[rank]
			})
		}
		e.w.settle(rank, errors.New(found.Reason))
	case e.reported.IsZero():
		e.reported = time.Now()
		e.tell(*found, 0)
	case time.Since(e.reported) > e.w.silence:
		e.w.settle(found.Rank, errors.New(found.Reason))
	}
}

// listen looks for a neighbour that is silent. If this process itself was stopped for some
// time, the notes of the others may still be under way.
func (e *engine) listen(now time.Time) {
	stopped := now.Sub(e.looked) > e.w.silence/4
	e.looked = now
	for _, rank := range e.neighbours() {
		switch {
		case stopped:
			e.seen[rank] = now
		case now.Sub(e.seen[rank]) > e.w.silence:
			e.w.settle(rank, fmt.Errorf("no sign of life for %v", e.w.silence))
		}
	}
}

// neighbours returns the ranks that this one hears from.
func (e *engine) neighbours() []int {
	if e.w.rank == 0 {
		return e.others()
	}
	return []int{0}
}

func (e *engine) others() (ranks []int) {
	for rank := range e.w.size {
		if rank != e.w.rank {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// tell sends a note.
func (e *engine) tell(n note, ranks ...int) {
	n.From = e.w.rank
	text, err := json.Marshal(n)
	if err != nil || len(text) > noteSize { // a reason full of escapes
		n.Reason = "failed"
		text, _ = json.Marshal(n)
	}
	for len(text) < noteSize {
		text = append(text, ' ')
	}
	for _, rank := range ranks {
		if r, err := post(true, text, rank, noteTag); err == nil {
			e.sends = append(e.sends, r)
		}
	}
}

// read handles the note that has come.
func (e *engine) read() error {
	var n note
	if err := json.Unmarshal(e.text, &n); err != nil {
		return err
	}
	for _, rank := range append(n.Waits, n.From, n.Rank) {
		if rank < 0 || rank >= e.w.size {
			return fmt.Errorf("note names rank %d, expected one below %d", rank, e.w.size)
		}
	}
	e.seen[n.From] = time.Now()
	switch n.Kind {
	case beat:
		e.waits[n.From] = n.Waits
	case report:
		e.w.fail(n.Rank, errors.New(n.Reason), n.Overdue)
	case verdict:
		e.knows[n.From] = true
		e.w.settle(n.Rank, errors.New(n.Reason))
	case left:
		e.knows[n.From], e.gone[n.From] = true, true
	default:
		return fmt.Errorf("note is %q, expected one of %q", n.Kind, []kind{beat, report, verdict, left})
	}
	return nil
}

// leave returns whether this rank has left, and whether all have without a failure. Only then
// can MPI_Finalize, which waits for all ranks, be called. After a failure, this rank waits a
// moment for the others to know of it, because mpirun may end them when the first one exits.
func (e *engine) leave() (over, all bool) {
	closed := e.w.closing()
	if closed.IsZero() || len(e.active) > 0 {
		return false, false
	}
	e.knows[e.w.rank] = true
	all = len(e.sends) == 0 && !slices.Contains(e.knows, false)
	failed := e.w.failure() != nil
	switch {
	case failed:
		over = e.told && (all || time.Since(closed) > linger)
	case !e.bye:
		e.bye = true
		e.tell(note{Kind: left}, e.others()...)
	default:
		over = all
	}
	if over {
		if e.next != nil {
			e.next.cancel()
		}
		for _, r := range e.sends {
			r.cancel()
		}
	}
	return over, over && !failed
}

// reason returns an error's text, short enough for a note.
func reason(err error) string {
	text := err.Error()
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}
