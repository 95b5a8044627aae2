//go:build mpi

package mpi

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/easyrl/easyrl/parallel"
)

const (
	spin = time.Millisecond       // how long polls have no pause after progress
	doze = 100 * time.Millisecond // how long they have short ones
	idle = time.Millisecond       // between later polls, and between looks at notes
	last = 100 * time.Millisecond // how long to wait for messages of a rank that has left
)

// job is a message that the engine sends or receives.
type job struct {
	ctx   context.Context
	at    parallel.Envelope
	send  bool
	tag   int
	parts [][]byte     // the header and pieces of the data
	check func() error // of the header that was received
	call  func() error // in place of a message
	done  chan error   // has room

	until  time.Time // zero for no limit
	r      []*request
	gone   time.Time // when the peer had left; zero before
	broken bool      // has failed, and waits for the verdict
}

// engine makes all calls of MPI.
type engine struct {
	w      *World
	active []*job
	moved  time.Time // the last progress
	notes
}

// run is the engine's goroutine. It reports that MPI has started.
func (e *engine) run(started chan<- error) {
	runtime.LockOSThread() // for good: the thread that starts MPI also ends it
	defer close(e.w.ended)
	var err error
	e.w.rank, e.w.size, err = initialize()
	if err == nil {
		e.w.waits = make(parallel.Waits, e.w.size)
		err = e.begin()
	}
	started <- err
	if err != nil {
		return
	}
	polled := make(chan bool)
	go func() { polled <- e.poll() }() // a goroutine without a thread of its own takes turns faster
	all := <-polled
	close(e.w.leaving)
	if all {
		e.w.result = e.w.finalize()
	}
}

// poll does all work until this rank has left. It returns whether all others have too.
func (e *engine) poll() (all bool) {
	for {
		e.step()
		if over, all := e.leave(); over {
			return all
		}
		switch still := time.Since(e.moved); {
		case len(e.active) == 0 && len(e.sends) == 0, still > doze:
			e.rest()
		case still > spin:
			runtime.Gosched()
			nap()
		default:
			runtime.Gosched()
		}
	}
}

// rest waits for a job or some time.
func (e *engine) rest() {
	select {
	case j := <-e.w.jobs:
		runtime.Gosched() // a job of another direction may follow
		e.startAll(j)
	case <-time.After(idle):
	}
}

// startAll starts jobs and all others that wait. MPI may copy a large message as soon as it is
// received, so sends come first, and the peer can copy at the same time.
func (e *engine) startAll(jobs ...*job) {
	for more := true; more; {
		select {
		case j := <-e.w.jobs:
			jobs = append(jobs, j)
		default:
			more = false
		}
	}
	for _, send := range []bool{true, false} {
		for _, j := range jobs {
			if j.send == send {
				e.start(j)
			}
		}
	}
}

// step does what can be done now.
func (e *engine) step() {
	e.startAll()
	rest := e.active[:0]
	for _, j := range e.active {
		if over, err := e.finish(j); over {
			j.done <- err
		} else {
			rest = append(rest, j)
		}
	}
	clear(e.active[len(rest):])
	e.active = rest
	if now := time.Now(); now.Sub(e.looked) >= idle {
		e.converse(now)
	}
}

func (e *engine) start(j *job) {
	e.moved = time.Now()
	if j.call != nil {
		j.done <- j.call()
		return
	}
	e.active = append(e.active, j)
	j.extend()
	tag := j.tag
	for _, part := range j.parts {
		r, err := post(j.send, part, j.at.Peer, tag)
		if err != nil {
			j.fail(e.w, j.at.Peer, err)
			return
		}
		j.r = append(j.r, r)
		tag = j.tag + 1
	}
}

// extend gives the peer another limit.
func (j *job) extend() {
	if j.at.Limit > 0 {
		j.until = time.Now().Add(j.at.Limit)
	}
}

// finish returns whether a job is over, and its error.
func (e *engine) finish(j *job) (over bool, err error) {
	for !j.broken && len(j.r) > 0 {
		done, err := j.r[0].test()
		if err == nil && !done {
			break
		}
		e.moved = time.Now()
		j.extend()
		j.r = j.r[1:]
		if err == nil && j.check != nil {
			err, j.check = j.check(), nil
		}
		if err != nil {
			j.fail(e.w, j.at.Peer, err)
		}
	}
	if !j.broken && len(j.r) == 0 {
		return true, nil
	}
	if !j.broken {
		e.inspect(j)
	}
	if err := e.w.over(); err != nil {
		j.drop()
		return true, err
	}
	return false, nil
}

// inspect fails a job that cannot be waited for.
func (e *engine) inspect(j *job) {
	switch err := j.ctx.Err(); {
	case errors.Is(err, context.DeadlineExceeded):
		j.suspect(e.w, "before the deadline")
	case err != nil:
		j.fail(e.w, e.w.rank, err)
	case !j.until.IsZero() && time.Now().After(j.until):
		j.suspect(e.w, "for "+j.at.Limit.String())
	case e.gone[j.at.Peer] && j.gone.IsZero():
		j.gone = time.Now() // what it has sent may still be under way
	case !j.gone.IsZero() && time.Since(j.gone) > last:
		j.fail(e.w, j.at.Peer, fmt.Errorf("left before %s", j.at.In()))
	}
}

// fail reports that a rank has failed. The job ends with the verdict.
func (j *job) fail(w *World, rank int, err error) {
	j.broken = true
	w.fail(rank, err, false)
}

// suspect reports that a message of the peer is overdue.
func (j *job) suspect(w *World, when string) {
	j.broken = true
	w.fail(j.at.Peer, fmt.Errorf("no message %s in %s", when, j.at.In()), true)
}

func (j *job) drop() {
	for _, r := range j.r {
		r.cancel()
	}
	j.r = nil
}
