//go:build mpi

package mpi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/easyrl/easyrl/parallel"
)

const (
	noteTag   = 0 // of notes; those of messages are 2 and above
	noteSize  = 1024
	linger    = time.Second           // how long a world that has failed sends its notes
	spins     = 200                   // polls without a pause after progress
	pause     = 20 * time.Microsecond // between later polls
	lastPolls = 1000                  // for messages of a rank that has left
	idle      = time.Millisecond      // between polls while nothing but notes is expected
)

// job is a part of a message that the engine sends or receives.
type job struct {
	ctx   context.Context
	at    parallel.Envelope
	send  bool
	data  []byte
	tag   int
	until time.Time // zero for no limit
	done  chan error
	r     *request
	last  int // polls since the peer has left
}

// note tells other ranks what has become of a rank. It is sent as JSON, padded with spaces.
type note struct {
	From   int
	Left   bool // From has left; or Rank has failed
	Rank   int
	Reason string
}

// engine makes all calls of MPI.
type engine struct {
	w      *World
	active []*job
	note   *request // the next one
	text   []byte   // of the next note
	sends  []*request
	told   bool   // the others know that the world has failed
	gone   []bool // by rank; those that have left
	heard  []bool // by rank; those that have sent a note
	bye    bool   // the others know that this rank has left
}

// run is the engine's goroutine. It reports that MPI has started.
func (e *engine) run(started chan<- error) {
	runtime.LockOSThread() // for good: MPI knows the thread
	defer close(e.w.ended)
	var err error
	e.w.rank, e.w.size, err = initialize()
	e.gone, e.heard = make([]bool, e.w.size), make([]bool, e.w.size)
	if err == nil {
		err = e.expect()
	}
	started <- err
	if err != nil {
		return
	}
	for still := 0; ; still++ {
		moved, over := e.step()
		switch {
		case over:
			return
		case moved:
			still = 0
		case len(e.active) == 0 && len(e.sends) == 0:
			e.rest(idle)
		case still > spins:
			e.rest(pause)
		default:
			runtime.Gosched()
		}
	}
}

// rest waits for a job or some time.
func (e *engine) rest(d time.Duration) {
	select {
	case j := <-e.w.jobs:
		e.start(j)
	case <-time.After(d):
	}
}

// step does what can be done now. over means that this rank has left.
func (e *engine) step() (moved, over bool) {
	select {
	case j := <-e.w.jobs:
		e.start(j)
		moved = true
	default:
	}
	rest := e.active[:0]
	for _, j := range e.active {
		if e.finish(j) {
			moved = true
		} else {
			rest = append(rest, j)
		}
	}
	clear(e.active[len(rest):])
	e.active = rest
	e.notes()
	return moved, e.leave()
}

func (e *engine) start(j *job) {
	var err error
	if j.r, err = post(j.send, j.data, j.at.Peer, j.tag); err != nil {
		j.done <- e.w.fail(j.at.Peer, err)
		return
	}
	e.active = append(e.active, j)
}

// finish returns whether a job is done or has failed.
func (e *engine) finish(j *job) bool {
	done, err := j.r.test()
	switch {
	case err != nil:
		j.done <- e.w.fail(j.at.Peer, err)
		return true
	case done:
		j.done <- nil
		return true
	}
	if err := e.fault(j); err != nil {
		j.r.cancel()
		j.done <- err
		return true
	}
	return false
}

// fault returns why a job that is not done cannot be waited for.
func (e *engine) fault(j *job) error {
	if err := e.w.failure(); err != nil {
		return err
	}
	switch err := j.ctx.Err(); {
	case errors.Is(err, context.DeadlineExceeded):
		return e.w.fail(j.at.Peer, fmt.Errorf("no message before the deadline in %s", j.at.In()))
	case err != nil:
		return e.w.fail(e.w.rank, err)
	case !j.until.IsZero() && time.Now().After(j.until):
		return e.w.fail(j.at.Peer, fmt.Errorf("no message for %v in %s", j.at.Limit, j.at.In()))
	case e.w.isClosing():
		return errClosed
	case e.gone[j.at.Peer] && j.last > lastPolls:
		return e.w.fail(j.at.Peer, fmt.Errorf("left before %s", j.at.In()))
	case e.gone[j.at.Peer]:
		j.last++ // what it has sent may still be under way
	}
	return nil
}

// expect receives the next note.
func (e *engine) expect() (err error) {
	e.text = make([]byte, noteSize)
	e.note, err = post(false, e.text, anyone, noteTag)
	return err
}

// tell sends a note to all other ranks.
func (e *engine) tell(n note) {
	n.From = e.w.rank
	e.heard[n.From] = true
	n.Reason = n.Reason[:min(len(n.Reason), noteSize/2)]
	text, err := json.Marshal(n)
	if err != nil || len(text) > noteSize { // a reason full of escapes
		text, _ = json.Marshal(note{From: n.From, Left: n.Left, Rank: n.Rank, Reason: "failed"})
	}
	for len(text) < noteSize {
		text = append(text, ' ')
	}
	for rank := range e.w.size {
		if rank == e.w.rank {
			continue
		}
		if r, err := post(true, text, rank, noteTag); err == nil {
			e.sends = append(e.sends, r)
		}
	}
}

// notes reads and sends notes.
func (e *engine) notes() {
	if done, err := e.note.test(); done || err != nil {
		e.read(err)
	}
	if failed := e.w.failure(); failed != nil && !e.told {
		e.told = true
		e.tell(note{Rank: failed.Rank, Reason: failed.Err.Error()})
	}
	rest := e.sends[:0]
	for _, r := range e.sends {
		if done, err := r.test(); !done && err == nil {
			rest = append(rest, r)
		}
	}
	e.sends = rest
}

func (e *engine) read(err error) {
	var n note
	if err == nil {
		err = json.Unmarshal(e.text, &n)
	}
	switch {
	case err != nil:
		_ = e.w.fail(e.w.rank, fmt.Errorf("receive a note: %w", err))
	case min(n.Rank, n.From) < 0 || max(n.Rank, n.From) >= e.w.size:
		_ = e.w.fail(e.w.rank, fmt.Errorf("note is from rank %d about %d, expected ranks below %d", n.From, n.Rank, e.w.size))
	case n.Left:
		e.heard[n.From], e.gone[n.From] = true, true
	default:
		e.heard[n.From] = true
		_ = e.w.fail(n.Rank, errors.New(n.Reason))
	}
	if err := e.expect(); err != nil {
		_ = e.w.fail(e.w.rank, err)
	}
}

// leave returns true once this rank has left. MPI_Finalize waits for all ranks, so it is only
// called when all have left without a failure. After a failure, this rank waits a moment for
// the others to know of it, because mpirun ends them when the first one exits.
func (e *engine) leave() bool {
	if !e.w.isClosing() || len(e.active) > 0 {
		return false
	}
	all := len(e.sends) == 0 && !slices.Contains(e.heard, false)
	if e.w.failure() != nil {
		return all || time.Since(e.w.closed) > linger
	}
	if !e.bye {
		e.bye = true
		e.tell(note{Left: true, Rank: e.w.rank})
		return false
	}
	if !all {
		return false
	}
	e.note.cancel()
	e.w.result = finalize()
	return true
}
