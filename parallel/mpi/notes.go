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
	noteTag   = 0           // MPI tag of notes; messages have tags from 2
	noteSize  = 1024        // bytes of a note
	maxReason = 500         // bytes of note.Reason
	maxWaits  = 4           // elements of note.Waits, so that a note fits
	linger    = time.Second // how long a rank waits, after a failure, until the others know the verdict
)

// note is what ranks send each other in addition to messages: JSON, padded with spaces.
type note struct {
	Kind    kind
	From    int
	Rank    int    `json:",omitempty"` // culprit that a report or verdict names
	Reason  string `json:",omitempty"` // text of the culprit's error in a report or verdict
	Overdue bool   `json:",omitempty"` // whether a report is only a suspicion, because a message is late
	Waits   []int  `json:",omitempty"` // ranks that the sender of a beat waits for
}

type kind string

const (
	beat    kind = "beat"    // from and to rank 0: the sender is alive
	report  kind = "report"  // to rank 0: a rank has failed
	verdict kind = "verdict" // to all: the sender knows the first rank that has failed
	left    kind = "left"    // to all: the sender leaves
)

// notes is the engine's view of the state of all ranks.
type notes struct {
	next       *request    // receives the next note; nil after MPI refused to receive
	text       []byte      // memory of the next note
	sends      []*request  // notes under way
	lastBeat   time.Time   // when this rank last sent a beat
	lastCheck  time.Time   // when checkSilence last ran
	seen       []time.Time // by rank: when its last note came
	waits      [][]int     // by rank: the ranks that it waits for, from its last beat
	gone       []bool      // by rank: whether it has left
	informed   []bool      // by rank: whether it needs no verdict, because it has sent one or has left
	reportedAt time.Time   // when this rank reported a failure to rank 0; zero before

	verdictSent bool // whether the verdict was sent to all others
	leftSent    bool // whether left was sent to all others
}

// initNotes initializes e.notes and starts to receive the first note.
func (e *engine) initNotes() error {
	n := e.w.size
	e.notes = notes{
		seen: make([]time.Time, n), waits: make([][]int, n), gone: make([]bool, n), informed: make([]bool, n),
	}
	return e.receiveNote()
}

// receiveNote starts to receive the next note.
func (e *engine) receiveNote() (err error) {
	e.notes.text = make([]byte, noteSize)
	e.notes.next, err = post(false, e.notes.text, anyone, noteTag)
	return err
}

// exchangeNotes reads the notes that have come and sends those that are due.
func (e *engine) exchangeNotes(now time.Time) {
	for e.notes.next != nil {
		done, err := e.notes.next.test()
		if !done && err == nil {
			break
		}
		if err == nil {
			err = e.read()
		}
		if nextErr := e.receiveNote(); err == nil {
			err = nextErr
		}
		if err != nil {
			e.w.setVerdict(e.w.rank, fmt.Errorf("receive a note: %w", err))
		}
	}
	e.decide()
	e.checkSilence(now)
	if now.Sub(e.notes.lastBeat) > min(e.w.silence/4, time.Second) {
		e.notes.lastBeat = now
		waits := e.w.waits.List()
		e.send(note{Kind: beat, Waits: waits[:min(len(waits), maxWaits)]}, e.watched()...)
	}
	e.notes.sends = slices.DeleteFunc(e.notes.sends, func(r *request) bool {
		done, err := r.test()
		return done || err != nil
	})
}

// decide handles the failure that this rank has found, if any. Rank 0 makes it the verdict. Another rank
// reports it to rank 0; if no verdict comes for World.silence, its own finding is the verdict.
func (e *engine) decide() {
	found, failed := e.w.findings()
	switch {
	case failed != nil && !e.notes.verdictSent:
		e.notes.verdictSent = true
		e.send(note{Kind: verdict, Rank: failed.Rank, Reason: reason(failed.Err)}, e.others()...)
	case failed != nil || found == nil:
	case e.w.rank == 0:
		rank := found.Rank
		if found.Overdue {
			rank = parallel.Culprit(rank, func(rank int) []int {
				if rank == 0 {
					return e.w.waits.List()
				}
				return e.notes.waits[rank]
			})
		}
		e.w.setVerdict(rank, errors.New(found.Reason))
	case e.notes.reportedAt.IsZero():
		e.notes.reportedAt = time.Now()
		e.send(*found, 0)
	case time.Since(e.notes.reportedAt) > e.w.silence:
		e.w.setVerdict(found.Rank, errors.New(found.Reason))
	}
}

// checkSilence makes a watched rank that is silent for too long the culprit. If this process itself was
// stopped for some time, it gives all ranks their full time again, since their notes may be under way.
func (e *engine) checkSilence(now time.Time) {
	stopped := now.Sub(e.notes.lastCheck) > e.w.silence/4
	e.notes.lastCheck = now
	for _, rank := range e.watched() {
		switch {
		case stopped:
			e.notes.seen[rank] = now
		case now.Sub(e.notes.seen[rank]) > e.w.silence:
			e.w.setVerdict(rank, fmt.Errorf("no sign of life for %v", e.w.silence))
		}
	}
}

// watched returns the ranks that this one exchanges beats with.
func (e *engine) watched() []int {
	if e.w.rank == 0 {
		return e.others()
	}
	return []int{0}
}

// others returns all other ranks.
func (e *engine) others() (ranks []int) {
	for rank := range e.w.size {
		if rank != e.w.rank {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// send starts to send a note. It ignores errors: the receiver finds this rank silent.
func (e *engine) send(n note, ranks ...int) {
	n.From = e.w.rank
	text, err := json.Marshal(n)
	if err != nil || len(text) > noteSize { // JSON escapes can make a reason several times longer
		n.Reason = "failed"
		text, _ = json.Marshal(n)
	}
	for len(text) < noteSize {
		text = append(text, ' ')
	}
	for _, rank := range ranks {
		if r, err := post(true, text, rank, noteTag); err == nil {
			e.notes.sends = append(e.notes.sends, r)
		}
	}
}

// read handles the note in e.notes.text.
func (e *engine) read() error {
	var n note
	if err := json.Unmarshal(e.notes.text, &n); err != nil {
		return err
	}
	for _, rank := range append(n.Waits, n.From, n.Rank) {
		if rank < 0 || rank >= e.w.size {
			return fmt.Errorf("note names rank %d, expected 0 to %d", rank, e.w.size-1)
		}
	}
	e.notes.seen[n.From] = time.Now()
	switch n.Kind {
	case beat:
		e.notes.waits[n.From] = n.Waits
	case report:
		e.w.fail(n.Rank, errors.New(n.Reason), n.Overdue)
	case verdict:
		e.notes.informed[n.From] = true
		e.w.setVerdict(n.Rank, errors.New(n.Reason))
	case left:
		e.notes.informed[n.From] = true
		e.notes.gone[n.From] = true
	default:
		return fmt.Errorf("note is %q, expected one of %q", n.Kind, []kind{beat, report, verdict, left})
	}
	return nil
}

// leave advances the exchange with which ranks leave. over reports whether this rank may stop polling,
// and all whether all ranks have left without a failure. Only then may the caller call MPI_Finalize,
// which waits for all ranks. After a failure, this rank waits up to linger until the others know the
// verdict, because mpirun may end them when the first one exits.
func (e *engine) leave() (over, all bool) {
	closed := e.w.closing()
	if closed.IsZero() || len(e.active) > 0 {
		return false, false
	}
	e.notes.informed[e.w.rank] = true
	all = len(e.notes.sends) == 0 && !slices.Contains(e.notes.informed, false)
	failed := e.w.failure() != nil
	switch {
	case failed:
		over = e.notes.verdictSent && (all || time.Since(closed) > linger)
	case !e.notes.leftSent:
		e.notes.leftSent = true
		e.send(note{Kind: left}, e.others()...)
	default:
		over = all
	}
	if over {
		if e.notes.next != nil {
			e.notes.next.cancel()
		}
		for _, r := range e.notes.sends {
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
