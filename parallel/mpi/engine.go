//go:build mpi

package mpi

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/easyrl/easyrl/parallel"
)

const (
	spinTime  = time.Millisecond       // time without progress after which the engine naps between polls
	napTime   = 100 * time.Millisecond // time without progress after which it polls only every idleTime
	idleTime  = time.Millisecond       // between polls without progress, and between looks at notes
	graceTime = 100 * time.Millisecond // how long messages of a rank that has left may still arrive
)

// job is a message that the engine sends or receives. The engine owns it from World.do until it sends a
// value to done.
type job struct {
	ctx         context.Context
	envelope    parallel.Envelope
	send        bool
	tag         int          // tag of the header; the data has the next one
	parts       [][]byte     // the header, then pieces of the data
	checkHeader func() error // called once the header is received; nil when sending, and after that call
	call        func() error // called in place of sending a message, to measure MPI's own calls; else nil
	done        chan error   // gets one value, for which it has room

	deadline   time.Time  // when the peer is overdue; zero for never
	requests   []*request // requests that are not done, in order
	peerLeftAt time.Time  // when the engine found that the peer has left; zero before
	broken     bool       // whether the job has failed and waits for the verdict
}

// engine makes all calls of MPI. Only its goroutine uses it.
type engine struct {
	w            *World
	active       []*job // jobs that have started and not ended
	lastProgress time.Time
	notes        notes
}

// run is the engine's goroutine. It sends to started once, when MPI has started or failed to.
func (e *engine) run(started chan<- error) {
	runtime.LockOSThread() // and never unlock: the thread that starts MPI also ends it
	defer close(e.w.ended)
	var err error
	e.w.rank, e.w.size, err = initialize()
	if err == nil {
		e.w.waits = make(parallel.Waits, e.w.size)
		err = e.initNotes()
	}
	started <- err
	if err != nil {
		return
	}
	// Another goroutine polls, because the scheduler switches faster to one without a locked thread.
	polled := make(chan bool)
	go func() { polled <- e.poll() }()
	all := <-polled
	close(e.w.leaving)
	if all {
		e.w.result = e.w.finalize()
	}
}

// poll does all work until this rank has left. It returns whether all ranks have left without a failure.
func (e *engine) poll() (all bool) {
	for {
		e.step()
		if over, all := e.leave(); over {
			return all
		}
		switch stalled := time.Since(e.lastProgress); {
		case len(e.active) == 0 && len(e.notes.sends) == 0, stalled > napTime:
			e.waitForJob()
		case stalled > spinTime:
			runtime.Gosched()
			nap()
		default:
			runtime.Gosched()
		}
	}
}

// waitForJob waits up to idleTime for a job, and starts it.
func (e *engine) waitForJob() {
	select {
	case j := <-e.w.jobs:
		runtime.Gosched() // gives a job of the other direction time to arrive, so that startAll can order both
		e.startAll(j)
	case <-time.After(idleTime):
	}
}

// startAll starts jobs and all queued ones. Sends come first: MPI may copy a large message in the call
// that starts to receive it, and while this rank copies, the peer can copy the message that this rank
// sends.
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
	e.active = slices.DeleteFunc(e.active, func(j *job) bool {
		over, err := e.finish(j)
		if over {
			j.done <- err
		}
		return over
	})
	if now := time.Now(); now.Sub(e.notes.lastCheck) >= idleTime {
		e.exchangeNotes(now)
	}
}

// start posts the requests of a job.
func (e *engine) start(j *job) {
	e.lastProgress = time.Now()
	if j.call != nil {
		j.done <- j.call()
		return
	}
	e.active = append(e.active, j)
	j.extend()
	tag := j.tag
	for _, part := range j.parts {
		r, err := post(j.send, part, j.envelope.Peer, tag)
		if err != nil {
			j.fail(e.w, j.envelope.Peer, err)
			return
		}
		j.requests = append(j.requests, r)
		tag = j.tag + 1
	}
}

// extend moves the deadline, after progress.
func (j *job) extend() {
	if j.envelope.Limit > 0 {
		j.deadline = time.Now().Add(j.envelope.Limit)
	}
}

// finish tests a job's requests in order. It returns whether the job is over, and its error. A broken
// job is over when the verdict is known.
func (e *engine) finish(j *job) (over bool, err error) {
	for !j.broken && len(j.requests) > 0 {
		done, err := j.requests[0].test()
		if err == nil && !done {
			break
		}
		e.lastProgress = time.Now()
		j.extend()
		j.requests = j.requests[1:]
		if err == nil && j.checkHeader != nil { // the first request was the header's
			err = j.checkHeader()
			j.checkHeader = nil
		}
		if err != nil {
			j.fail(e.w, j.envelope.Peer, err)
		}
	}
	if !j.broken && len(j.requests) == 0 {
		return true, nil
	}
	if !j.broken {
		e.inspect(j)
	}
	if err := e.w.stopped(); err != nil {
		j.cancel()
		return true, err
	}
	return false, nil
}

// inspect fails a job whose context has ended, whose deadline is over or whose peer has left.
func (e *engine) inspect(j *job) {
	switch err := j.ctx.Err(); {
	case errors.Is(err, context.DeadlineExceeded):
		j.suspect(e.w, "before the deadline")
	case err != nil:
		j.fail(e.w, e.w.rank, err)
	case !j.deadline.IsZero() && time.Now().After(j.deadline):
		j.suspect(e.w, "for "+j.envelope.Limit.String())
	case e.notes.gone[j.envelope.Peer] && j.peerLeftAt.IsZero():
		j.peerLeftAt = time.Now() // messages that it sent before may still be under way
	case !j.peerLeftAt.IsZero() && time.Since(j.peerLeftAt) > graceTime:
		j.fail(e.w, j.envelope.Peer, fmt.Errorf("left before %s", j.envelope.In()))
	}
}

// fail records that a rank has failed. The job ends with the verdict.
func (j *job) fail(w *World, rank int, err error) {
	j.broken = true
	w.fail(rank, err, false)
}

// suspect records that a message of the peer is overdue. when completes "no message … in …".
func (j *job) suspect(w *World, when string) {
	j.broken = true
	w.fail(j.envelope.Peer, fmt.Errorf("no message %s in %s", when, j.envelope.In()), true)
}

// cancel cancels the requests that are not done.
func (j *job) cancel() {
	for _, r := range j.requests {
		r.cancel()
	}
	j.requests = nil
}
