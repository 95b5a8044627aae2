// Package queue hands inputs to a bounded number of workers, in batches, and retries
// transient failures.
package queue

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

// ErrClosed is returned by Do after Close.
var ErrClosed = errors.New("reward is closed")

// ErrUnasked is the outcome of an input that the worker did not reach because an
// earlier input got no answer.
var ErrUnasked = errors.New("not asked yet")

// Worker answers inputs. It need not be safe for concurrent use.
type Worker[In, Out any] interface {
	// Ask returns one outcome per input. It returns early if ctx is done.
	Ask(ctx context.Context, batch []In) []Outcome[Out]
	Close()
}

// Outcome is an answer or the reason that there is none.
type Outcome[Out any] struct {
	Value Out
	Err   error
	Again bool // the failure is transient
}

// Config sets the limits of a queue.
type Config struct {
	Workers int                           // maximum
	Batch   int                           // maximum inputs per call of a worker
	Retries int                           // maximum per input
	Pause   func(tries int) time.Duration // before another try; nil means no pause
	// Patience is how long workers may be unavailable; 0 means that every failed try
	// counts.
	Patience time.Duration
}

// Queue hands inputs to workers. A free worker takes the waiting inputs, up to a batch,
// and never waits for more.
//
// A transient failure is retried, up to Retries times per input. If a batch fails, any
// of its inputs may be the cause. The queue then retries them one by one, and only
// those tries count. A try does not count if the queue got no answer at all since the
// previous one: the worker fails then, not the input. This exemption ends once it has
// lasted for Patience. A late answer (program.ErrTimeout) has already used its time and
// always counts.
type Queue[In, Out any] struct {
	cfg  Config
	make func() Worker[In, Out]

	ctx    context.Context // done once Close is called
	cancel context.CancelFunc
	again  atomic.Int64

	mu      sync.Mutex
	waiting []*job[In, Out]
	idle    []Worker[In, Out]
	spare   int // workers that may still be started
	closed  bool
	heard   int       // answers so far
	away    time.Time // time of the first failure since the last answer; zero if none
	running sync.WaitGroup
}

// job is an input that a caller of Do waits for.
type job[In, Out any] struct {
	in    In
	waits bool            // patient: tries do not count while workers are unavailable
	tries int             // failed tries
	count int             // failed tries that count
	heard int             // value of Queue.heard at the last failed try
	alone bool            // never share a batch
	gone  bool            // the caller has left
	batch *batch[In, Out] // the batch that holds the job; nil while it waits
	done  chan struct{}   // closed when out is set
	out   Outcome[Out]
}

// batch is the set of inputs that a worker answers at once.
type batch[In, Out any] struct {
	jobs   []*job[In, Out]
	live   int // jobs whose callers still wait
	cancel context.CancelFunc
}

// New returns a queue that starts its workers on demand. The caller closes it.
func New[In, Out any](cfg Config, worker func() Worker[In, Out]) *Queue[In, Out] {
	q := &Queue[In, Out]{cfg: cfg, make: worker, spare: cfg.Workers}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	return q
}

// Do returns a worker's answer to in. Waiting for a turn does not use up the answer's
// time. If patient is set, Do also waits for unavailable workers.
func (q *Queue[In, Out]) Do(ctx context.Context, in In, patient bool) (out Out, err error) {
	if err := context.Cause(ctx); err != nil {
		return out, err
	}
	j := &job[In, Out]{in: in, waits: patient, done: make(chan struct{})}
	if err := q.add(j); err != nil {
		return out, err
	}
	select {
	case <-j.done:
		return j.out.Value, j.out.Err
	case <-ctx.Done():
		q.leave(j)
		return out, context.Cause(ctx)
	}
}

// Waiting returns the number of inputs that no worker has taken yet.
func (q *Queue[In, Out]) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// Retries returns how many times inputs were retried.
func (q *Queue[In, Out]) Retries() int64 { return q.again.Load() }

// Capacity returns the number of inputs that the workers take at once.
func (q *Queue[In, Out]) Capacity() int { return q.cfg.Workers * q.cfg.Batch }

// add queues a job and wakes or starts a worker if one is free.
func (q *Queue[In, Out]) add(j *job[In, Out]) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrClosed
	}
	q.waiting = append(q.waiting, j)
	var w Worker[In, Out]
	switch n := len(q.idle); {
	case n > 0:
		w, q.idle = q.idle[n-1], q.idle[:n-1]
	case q.spare > 0:
		w = q.make()
		q.spare--
	default:
		return nil
	}
	q.running.Go(func() { q.work(w) })
	return nil
}

// leave abandons a job. It cancels a batch whose callers have all left.
func (q *Queue[In, Out]) leave(j *job[In, Out]) {
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

// work answers batches until no input waits.
func (q *Queue[In, Out]) work(w Worker[In, Out]) {
	for {
		ctx, b := q.take(w)
		if b == nil {
			return
		}
		inputs := make([]In, len(b.jobs))
		for i, j := range b.jobs {
			inputs[i] = j.in
		}
		outcomes := w.Ask(ctx, inputs)
		b.cancel()
		q.settle(b, outcomes)
	}
}

// take returns the next batch. If there is none, it parks the worker.
func (q *Queue[In, Out]) take(w Worker[In, Out]) (context.Context, *batch[In, Out]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.idle = append(q.idle, w)
		return nil, nil
	}
	n := 1
	for !q.waiting[0].alone && n < min(q.cfg.Batch, len(q.waiting)) && !q.waiting[n].alone {
		n++
	}
	b := &batch[In, Out]{jobs: slices.Clone(q.waiting[:n]), live: n}
	q.waiting = slices.Delete(q.waiting, 0, n)
	for _, j := range b.jobs {
		j.batch = b
	}
	ctx, cancel := context.WithCancel(q.ctx)
	b.cancel = cancel
	return ctx, b
}

// settle delivers the answers and queues the rest again.
func (q *Queue[In, Out]) settle(b *batch[In, Out], outcomes []Outcome[Out]) {
	q.mu.Lock()
	var again []*job[In, Out]
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
		if !errors.Is(outcomes[i].Err, ErrUnasked) {
			failed, tries = true, max(tries, j.tries)
		}
	}
	q.mu.Unlock()
	if failed && q.cfg.Pause != nil {
		t := time.NewTimer(q.cfg.Pause(tries))
		select {
		case <-t.C:
		case <-q.ctx.Done():
		}
		t.Stop()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	again = slices.DeleteFunc(again, func(j *job[In, Out]) bool { return j.gone })
	if q.closed {
		end(again)
		return
	}
	q.waiting = append(again, q.waiting...)
}

// note records whether workers answer at all.
func (q *Queue[In, Out]) note(o Outcome[Out]) {
	switch {
	case errors.Is(o.Err, ErrUnasked):
	case o.Err == nil || !o.Again:
		q.heard++
		q.away = time.Time{}
	case q.away.IsZero():
		q.away = time.Now()
	}
}

// blame counts a failed try of a single job and reports whether the job has used up its
// tries.
func (q *Queue[In, Out]) blame(j *job[In, Out], err error) (enough bool) {
	away := j.tries > 0 && q.heard == j.heard && time.Since(q.away) < q.cfg.Patience
	if !j.waits || !away || errors.Is(err, program.ErrTimeout) {
		j.count++
	}
	j.heard = q.heard
	return j.count > q.cfg.Retries
}

// tryAgain reports whether a job is retried; otherwise the job is done.
func (q *Queue[In, Out]) tryAgain(j *job[In, Out], o Outcome[Out], several bool) bool {
	switch {
	case q.closed:
		end([]*job[In, Out]{j})
		return false
	case errors.Is(o.Err, ErrUnasked):
		return true
	case o.Err != nil && o.Again && several:
		j.alone = true
		q.again.Add(1)
		return true
	case o.Err != nil && o.Again && !q.blame(j, o.Err):
		j.alone = true
		j.tries++
		q.again.Add(1)
		return true
	case o.Err != nil && j.tries > 0:
		o.Err = fmt.Errorf("%w (after %d tries)", o.Err, j.tries+1)
	}
	j.out = o
	close(j.done)
	return false
}

// end fails jobs because the queue is closed.
func end[In, Out any](jobs []*job[In, Out]) {
	for _, j := range jobs {
		j.out = Outcome[Out]{Err: ErrClosed}
		close(j.done)
	}
}

// Close fails the waiting inputs and stops all workers.
func (q *Queue[In, Out]) Close() error {
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
	for _, w := range q.idle {
		w.Close()
	}
	q.idle = nil
	return nil
}
