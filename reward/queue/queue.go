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
	Value     Out
	Err       error
	Transient bool // a retry may succeed
}

// Config sets the limits of a queue.
type Config struct {
	Workers int                           // maximum number of workers
	Batch   int                           // maximum inputs per call of a worker
	Retries int                           // maximum retries per input
	Pause   func(tries int) time.Duration // pause after a failed try; nil means no pause
	// Patience is how long workers may be unavailable before failed tries count; 0 means that
	// every failed try counts.
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
	cfg       Config
	newWorker func() Worker[In, Out]

	ctx     context.Context // done once Close is called
	cancel  context.CancelFunc
	retries atomic.Int64
	running sync.WaitGroup // goroutines of workers

	mu          sync.Mutex // guards the fields below, and all fields of jobs and batches
	waiting     []*job[In, Out]
	idle        []Worker[In, Out]
	unstarted   int // workers that may still be started
	closed      bool
	replies     int       // answers and final errors so far: signs that workers are available
	silentSince time.Time // time of the first failure since the last reply; zero if there is none
}

// job is an input that a caller of Do waits for.
type job[In, Out any] struct {
	in          In
	patient     bool            // failed tries do not count while workers are unavailable
	tries       int             // number of failed tries
	counted     int             // failed tries that count
	repliesSeen int             // value of Queue.replies at the last failed try
	alone       bool            // the job must not share a batch
	left        bool            // the caller of Do has returned
	batch       *batch[In, Out] // the batch that holds the job; nil while the job waits
	done        chan struct{}   // closed once out is set, after which only the caller of Do reads it
	out         Outcome[Out]
}

// batch is the set of inputs that a worker answers at once.
type batch[In, Out any] struct {
	jobs   []*job[In, Out]
	live   int // jobs whose callers still wait
	cancel context.CancelFunc
}

// New returns a queue that starts its workers on demand. The caller closes it.
func New[In, Out any](cfg Config, worker func() Worker[In, Out]) *Queue[In, Out] {
	q := &Queue[In, Out]{cfg: cfg, newWorker: worker, unstarted: cfg.Workers}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	return q
}

// Do returns a worker's answer to in. Time in the queue does not count towards a worker's deadline. If
// patient is true, Do keeps trying for Config.Patience while workers are unavailable. The error is the cause of
// ctx if ctx ends, ErrClosed after Close, or the worker's.
func (q *Queue[In, Out]) Do(ctx context.Context, in In, patient bool) (out Out, err error) {
	if err := context.Cause(ctx); err != nil {
		return out, err
	}
	j := &job[In, Out]{in: in, patient: patient, done: make(chan struct{})}
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
func (q *Queue[In, Out]) Retries() int64 { return q.retries.Load() }

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
	case q.unstarted > 0:
		w = q.newWorker()
		q.unstarted--
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
	j.left = true
	if i := slices.Index(q.waiting, j); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	if j.batch == nil {
		return
	}
	j.batch.live--
	if j.batch.live == 0 {
		j.batch.cancel()
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

// take returns the next batch and its context. If no job waits, it adds w to the idle workers and returns nil.
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

// settle delivers the outcomes of a batch and, after a pause, queues the jobs to retry before all others.
func (q *Queue[In, Out]) settle(b *batch[In, Out], outcomes []Outcome[Out]) {
	q.mu.Lock()
	var retried []*job[In, Out]
	tries, failed := 0, false
	for i, j := range b.jobs {
		j.batch = nil
		if j.left {
			continue
		}
		q.recordReply(outcomes[i])
		if !q.tryAgain(j, outcomes[i], len(b.jobs) > 1) {
			continue
		}
		retried = append(retried, j)
		if !errors.Is(outcomes[i].Err, ErrUnasked) {
			failed = true
			tries = max(tries, j.tries)
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
	retried = slices.DeleteFunc(retried, func(j *job[In, Out]) bool { return j.left })
	if q.closed {
		end(retried)
		return
	}
	q.waiting = append(retried, q.waiting...)
}

// recordReply records whether an outcome shows that workers are available. The caller holds q.mu.
func (q *Queue[In, Out]) recordReply(o Outcome[Out]) {
	switch {
	case errors.Is(o.Err, ErrUnasked):
	case o.Err == nil || !o.Transient:
		q.replies++
		q.silentSince = time.Time{}
	case q.silentSince.IsZero():
		q.silentSince = time.Now()
	}
}

// countFailure counts a failed try of a job that was alone in its batch, unless workers are unavailable, and
// reports whether the job has used up its tries. The caller holds q.mu.
func (q *Queue[In, Out]) countFailure(j *job[In, Out], err error) (exhausted bool) {
	unavailable := j.tries > 0 && q.replies == j.repliesSeen && time.Since(q.silentSince) < q.cfg.Patience
	if !j.patient || !unavailable || errors.Is(err, program.ErrTimeout) {
		j.counted++
	}
	j.repliesSeen = q.replies
	return j.counted > q.cfg.Retries
}

// tryAgain reports whether a job is retried. Otherwise it ends the job with outcome o. shared means that the job's
// batch had other jobs. The caller holds q.mu.
func (q *Queue[In, Out]) tryAgain(j *job[In, Out], o Outcome[Out], shared bool) bool {
	switch {
	case q.closed:
		end([]*job[In, Out]{j})
		return false
	case errors.Is(o.Err, ErrUnasked):
		return true
	case o.Err != nil && o.Transient && shared:
		j.alone = true
		q.retries.Add(1)
		return true
	case o.Err != nil && o.Transient && !q.countFailure(j, o.Err):
		j.alone = true
		j.tries++
		q.retries.Add(1)
		return true
	case o.Err != nil && j.tries > 0:
		o.Err = fmt.Errorf("%w (after %d tries)", o.Err, j.tries+1)
	}
	j.out = o
	close(j.done)
	return false
}

// end fails jobs because the queue is closed. The caller holds q.mu.
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
