package reward

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/easyrl/easyrl/reward/program"
)

// ErrTimeout is wrapped by the error of a score that took too long.
var ErrTimeout = program.ErrTimeout

// errClosed is returned for a Score after Close.
var errClosed = errors.New("reward is closed")

// errUnasked is the outcome of a response that was not reached, for want of an
// answer to one before it.
var errUnasked = errors.New("not asked yet")

// asker puts responses to somebody who scores them. One goroutine uses it at a
// time.
type asker interface {
	// ask returns an outcome for each response. It ends early when ctx does.
	ask(ctx context.Context, batch []Input) []outcome
	close()
}

// outcome is a score, or why there is none.
type outcome struct {
	score Score
	err   error
	again bool // another try may succeed
}

// queue hands responses to askers. One that is free takes what waits, up to
// batch, and waits for no more.
//
// A response whose try fails in a way that may pass is tried again, retries
// times. A failure of several at once may be the fault of any of them: they are
// asked alone, and only that counts. A try does not count where nothing at all was
// answered since the one before, as then it is whoever answers who fails and not
// the response, unless that has lasted for patience. An answer that does not come
// in time has taken its time already and counts.
type queue struct {
	name    string // in errors
	batch   int
	retries int
	pause   func(tries int) time.Duration // before another try; nil makes none
	// patience is how long askers may be away; 0 where retries alone count.
	patience time.Duration
	make     func() asker

	ctx    context.Context // done once Close is called
	cancel context.CancelFunc
	again  atomic.Int64

	mu      sync.Mutex
	waiting []*job
	idle    []asker
	spare   int // askers that may still be made
	closed  bool
	heard   int       // answers so far
	away    time.Time // of the first failure since the last answer; zero where none was
	running sync.WaitGroup
}

// job is a response that somebody waits for.
type job struct {
	in    Input
	tries int           // that failed
	count int           // of them that count
	heard int           // answers that the queue had when the last of them did
	alone bool          // to be asked by itself
	gone  bool          // nobody waits any more
	batch *batch        // that asks it; nil while it waits
	done  chan struct{} // closed when out is set
	out   outcome
}

// batch is what one asker is asked at once.
type batch struct {
	jobs   []*job
	live   int // jobs that somebody waits for
	cancel context.CancelFunc
}

func newQueue(name string, workers, size, retries int, pause func(int) time.Duration, newAsker func() asker) *queue {
	q := &queue{name: name, batch: size, retries: retries, pause: pause, make: newAsker, spare: workers}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	return q
}

// Score waits for its turn, which takes no time from the answer's.
func (q *queue) Score(ctx context.Context, in Input) (Score, error) {
	j := &job{in: in, done: make(chan struct{})}
	err := context.Cause(ctx)
	if err == nil {
		err = q.add(j)
	}
	if err == nil {
		select {
		case <-j.done:
			err = j.out.err
		case <-ctx.Done():
			q.leave(j)
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		return Score{}, fmt.Errorf("%s: prompt %s: %w", q.name, in.Prompt.ID, err)
	}
	return j.out.score, nil
}

// Retries is how often a response was asked for again.
func (q *queue) Retries() int64 { return q.again.Load() }

// add lets a job wait, for an asker that is free where there is one.
func (q *queue) add(j *job) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return errClosed
	}
	q.waiting = append(q.waiting, j)
	var a asker
	switch n := len(q.idle); {
	case n > 0:
		a, q.idle = q.idle[n-1], q.idle[:n-1]
	case q.spare > 0:
		a = q.make()
		q.spare--
	default:
		return nil
	}
	q.running.Go(func() { q.work(a) })
	return nil
}

// leave gives a job up. A batch that nobody waits for ends.
func (q *queue) leave(j *job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	j.gone = true
	if at := slices.Index(q.waiting, j); at >= 0 {
		q.waiting = slices.Delete(q.waiting, at, at+1)
	}
	if j.batch != nil {
		if j.batch.live--; j.batch.live == 0 {
			j.batch.cancel()
		}
	}
}

// work asks until nothing waits.
func (q *queue) work(a asker) {
	for {
		ctx, b := q.take(a)
		if b == nil {
			return
		}
		inputs := make([]Input, len(b.jobs))
		for i, j := range b.jobs {
			inputs[i] = j.in
		}
		outcomes := a.ask(ctx, inputs)
		b.cancel()
		q.settle(b, outcomes)
	}
}

// take is the next batch. Where there is none the asker is idle.
func (q *queue) take(a asker) (context.Context, *batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.idle = append(q.idle, a)
		return nil, nil
	}
	n := 1
	for !q.waiting[0].alone && n < min(q.batch, len(q.waiting)) && !q.waiting[n].alone {
		n++
	}
	b := &batch{jobs: slices.Clone(q.waiting[:n]), live: n}
	q.waiting = slices.Delete(q.waiting, 0, n)
	for _, j := range b.jobs {
		j.batch = b
	}
	ctx, cancel := context.WithCancel(q.ctx)
	b.cancel = cancel
	return ctx, b
}

// settle gives out what was answered and lets the rest be asked again.
func (q *queue) settle(b *batch, outcomes []outcome) {
	q.mu.Lock()
	var again []*job
	tries, failed := 0, false
	for i, j := range b.jobs {
		j.batch = nil
		if j.gone {
			continue
		}
		q.note(outcomes[i])
		if !q.tryAgain(j, outcomes[i], len(b.jobs) > 1) {
			continue
		}
		again = append(again, j)
		if !errors.Is(outcomes[i].err, errUnasked) {
			failed, tries = true, max(tries, j.tries)
		}
	}
	q.mu.Unlock()
	if failed && q.pause != nil {
		t := time.NewTimer(q.pause(tries))
		select {
		case <-t.C:
		case <-q.ctx.Done():
		}
		t.Stop()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	again = slices.DeleteFunc(again, func(j *job) bool { return j.gone })
	if q.closed {
		end(again)
		return
	}
	q.waiting = append(again, q.waiting...)
}

// note keeps account of whether anything is answered.
func (q *queue) note(o outcome) {
	switch {
	case errors.Is(o.err, errUnasked):
	case o.err == nil || !o.again:
		q.heard++
		q.away = time.Time{}
	case q.away.IsZero():
		q.away = time.Now()
	}
}

// blame counts a try of a job by itself that failed with err, and reports whether
// those that may fail are used up.
func (q *queue) blame(j *job, err error) (enough bool) {
	away := j.tries > 0 && q.heard == j.heard && time.Since(q.away) < q.patience
	if j.in.trial || !away || errors.Is(err, ErrTimeout) {
		j.count++
	}
	j.heard = q.heard
	return j.count > q.retries
}

// tryAgain reports whether a job is asked again; otherwise it is done.
func (q *queue) tryAgain(j *job, o outcome, several bool) bool {
	switch {
	case q.closed:
		end([]*job{j})
		return false
	case errors.Is(o.err, errUnasked):
		return true
	case o.err != nil && o.again && several:
		j.alone = true
		q.again.Add(1)
		return true
	case o.err != nil && o.again && !q.blame(j, o.err):
		j.alone = true
		j.tries++
		q.again.Add(1)
		return true
	case o.err != nil && j.tries > 0:
		o.err = fmt.Errorf("%w (after %d tries)", o.err, j.tries+1)
	}
	j.out = o
	close(j.done)
	return false
}

// end refuses jobs since the queue is closed.
func end(jobs []*job) {
	for _, j := range jobs {
		j.out = outcome{err: errClosed}
		close(j.done)
	}
}

// Close refuses what still waits and ends all askers.
func (q *queue) Close() error {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		q.cancel()
		end(q.waiting)
		q.waiting = nil
	}
	q.mu.Unlock()
	q.running.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, a := range q.idle {
		a.close()
	}
	q.idle = nil
	return nil
}
