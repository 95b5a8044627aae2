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
	spinTime = time.Millisecond       // after this long without progress, nap between polls
	napTime  = 100 * time.Millisecond // after this long without progress, poll every idle
	idle     = time.Millisecond       // between polls without progress, and between looks at notes
	lastTime = 100 * time.Millisecond // how long to wait for messages of a rank that has left
)

// job is a message that the engine sends or receives. The engine owns it from World.do until done has
// a value.
type job struct {
	ctx   context.Context
	at    parallel.Envelope
	send  bool
	tag   int
	parts [][]byte     // the header and pieces of the data
	check func() error // of the header that was received
	call  func() error // in place of a message, to measure MPI's own calls
	done  chan error   // has room for its one value

	until    time.Time  // zero for no limit
	requests []*request // not done, in order
	gone     time.Time  // when the engine has found that the peer has left; zero before
	broken   bool       // has failed and waits for the verdict
}

// engine makes all calls of MPI. Only its goroutine uses it.
type engine struct {
	w        *World
	active   []*job
	progress time.Time // the last
	notes    notes
}

// run is the engine's goroutine. It sends to started when MPI has started or failed to.
func (e *engine) run(started chan<- error) {
	runtime.LockOSThread() // and never unlock: the thread that starts MPI also ends it
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
	go func() { polled <- e.poll() }() // the scheduler switches faster to a goroutine without a locked thread
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
		switch still := time.Since(e.progress); {
		case len(e.active) == 0 && len(e.notes.sends) == 0, still > napTime:
			e.rest()
		case still > spinTime:
			runtime.Gosched()
			nap()
		default:
			runtime.Gosched()
		}
	}
}

// rest waits for a job, or for idle.
func (e *engine) rest() {
	select {
	case j := <-e.w.jobs:
		runtime.Gosched() // lets a job of the other direction follow, for startAll
		e.startAll(j)
	case <-time.After(idle):
	}
}

// startAll starts jobs and all others that wait. Sends come first, because MPI may copy a large
// message in the call that receives it; the peer can then copy at the same time.
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

// step does what can be done without waiting.
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
	if now := time.Now(); now.Sub(e.notes.looked) >= idle {
		e.exchangeNotes(now)
	}
}

// start posts the requests of a job.
func (e *engine) start(j *job) {
	e.progress = time.Now()
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
		j.requests = append(j.requests, r)
		tag = j.tag + 1
	}
}

// extend gives the peer another limit.
func (j *job) extend() {
	if j.at.Limit > 0 {
		j.until = time.Now().Add(j.at.Limit)
	}
}

// finish tests a job's requests. It returns whether the job is over, and its error.
func (e *engine) finish(j *job) (over bool, err error) {
	for !j.broken && len(j.requests) > 0 {
		done, err := j.requests[0].test()
		if err == nil && !done {
			break
		}
		e.progress = time.Now()
		j.extend()
		j.requests = j.requests[1:]
		if err == nil && j.check != nil {
			err, j.check = j.check(), nil
		}
		if err != nil {
			j.fail(e.w, j.at.Peer, err)
		}
	}
	if !j.broken && len(j.requests) == 0 {
		return true, nil
	}
	if !j.broken {
		e.inspect(j)
	}
	if err := e.w.over(); err != nil {
		j.cancel()
		return true, err
	}
	return false, nil
}

// inspect fails a job whose context has ended, whose limit is over or whose peer has left.
func (e *engine) inspect(j *job) {
	switch err := j.ctx.Err(); {
	case errors.Is(err, context.DeadlineExceeded):
		j.suspect(e.w, "before the deadline")
	case err != nil:
		j.fail(e.w, e.w.rank, err)
	case !j.until.IsZero() && time.Now().After(j.until):
		j.suspect(e.w, "for "+j.at.Limit.String())
	case e.notes.gone[j.at.Peer] && j.gone.IsZero():
		j.gone = time.Now() // what it has sent may still be under way
	case !j.gone.IsZero() && time.Since(j.gone) > lastTime:
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

// cancel ends the requests that are not done.
func (j *job) cancel() {
	for _, r := range j.requests {
		r.cancel()
	}
	j.requests = nil
}
