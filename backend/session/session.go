// Package session trains a model on ranks that may fail. Package torch uses it for PyTorch ranks, package
// tri_model/sharded for ranks of easyrl's kernels.
//
// A Session decides which replica computes which micro-batch (package backend/schedule), calls the derive
// functions, and replaces ranks. The ranks themselves, behind the interface Ranks, compute log-probabilities,
// gradients and updates.
//
// # Replay
//
// A recovery point is a folder with a state that ranks can load. The session keeps a log of everything that
// has changed the ranks' state since: each update with its micro-batches and their derivatives, and what Do
// has run. After a failure it starts all ranks from the recovery point and repeats the log in order, then
// the micro-batches of the current update. It calls each derive only once, because it keeps the derivative,
// so each micro-batch counts once.
//
// A replica computes the same micro-batches in the same order as before (schedule.Plan.Restart). The repeated
// updates therefore have the bits of those before the failure even if ranks sum gradients in floating point,
// as far as their kernels are deterministic. They change only when a rank runs out of memory (Session.shrink).
//
// # Goroutines
//
// The goroutine that calls a Session makes all decisions, and no other goroutine uses its fields. Only Notify
// may be called from any goroutine.
package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/backend/schedule"
)

const (
	// maxRestarts limits the restarts between two completed updates.
	maxRestarts = 3
	// RecoveryEvery is the number of updates after which a new recovery point is due.
	RecoveryEvery = 10
)

// Ranks are ranks that started together. They compute together, so if one fails, the session replaces all.
// Only the session's goroutine calls the methods. After a rank has failed they return an error. If it wraps a
// *Fault, the session replaces the ranks; its methods return any other error.
type Ranks interface {
	comparable
	// Forward makes a replica compute the log-probabilities of a micro-batch that the version sampler has sampled.
	// id is above 0. An empty micro-batch has an id below 0, and l is nil. Neither Forward nor Backward waits for
	// the answer.
	Forward(replica int, id int64, l *attention.Layout, sampler int64) error
	// Backward makes a replica add the gradients of a micro-batch. gradient has the derivative of the loss with
	// respect to each log-probability; it is nil for an empty micro-batch.
	Backward(replica int, id int64, gradient []float32) error
	// Receive waits for an event, and Poll takes one if there is any. The answer belongs to a Forward or a
	// Backward since the last Discard. It is zero if the event concerns neither.
	Receive(ctx context.Context) (Answer, error)
	Poll() (a Answer, found bool, err error)
	// Discard drops the gradients and all micro-batches, whose answers do not follow.
	Discard() error
	// Step makes all ranks update the policy.
	Step(ctx context.Context, u backend.Update) (Outcome, error)
	// Deadline returns when the next answer becomes overdue, which Poll then reports. It is zero if there is no
	// such time.
	Deadline() time.Time
	// Diagnose returns the cause of a fault, which may be another fault that these ranks report now.
	Diagnose(f *Fault) error
	// Close ends the ranks and waits for their goroutines.
	Close()
}

// Answer says what a replica has computed for a micro-batch. The zero value concerns none.
type Answer struct {
	Replica int
	ID      int64
	Outputs *backend.Outputs // of the forward pass, with a value for each target; nil after the backward pass
}

// Outcome is the result of an update.
type Outcome struct {
	Norm    float64 // norm of the scaled gradients before clipping
	Skipped error   // wraps optim.ErrNonFinite if a gradient was not finite and nothing was updated
	Weights error   // wraps model.ErrNotFinite if a weight is not finite after the update
	// Passes are the linear sums of the gradients of each micro-batch by its ID, and Total those of the update
	// (see backend.LinearSums); nil if the ranks compute none.
	Passes map[int64][]uint64
	Total  []uint64
}

// Fault is the failure of a rank after which new ranks may succeed. The session then replaces all ranks.
type Fault struct {
	Rank string // name of the rank; empty if the ranks failed together, such as at the start, or if Err names it
	Err  error
}

// Error names the rank.
func (f *Fault) Error() string {
	if f.Rank == "" {
		return f.Err.Error()
	}
	return f.Rank + ": " + f.Err.Error()
}

// Unwrap returns Err.
func (f *Fault) Unwrap() error { return f.Err }

// Config configures a session.
type Config[R Ranks] struct {
	Name string // prefix of errors that end the session; may be empty
	// Start starts ranks, or waits for them, and makes them load a recovery point. An error that does not wrap a
	// Fault ends the session, unless ctx has ended.
	Start func(ctx context.Context, from Point) (R, error)
	How   string // what Start does, for warnings, such as "restarting all ranks"
	// Plan returns an empty plan with up to depth micro-batches in flight on a replica.
	Plan   func(depth int) schedule.Plan
	Depth  int    // depth of plans, until a rank runs out of memory
	From   Point  // recovery point of the first start
	Folder string // folder of recovery points, which the session owns; empty if ranks are never replaced
	Warn   func(format string, args ...any)
}

// Session trains a model on ranks. Only one goroutine may use it. If a rank fails, the running method
// replaces all ranks and continues. It returns a rank's error only if that does not help.
type Session[R Ranks] struct {
	cfg   Config[R]
	ranks R             // zero while there are none
	ready chan struct{} // see Ready
	alarm *time.Timer   // signals ready at the next deadline, while no method runs

	// What new ranks load and repeat: see the package comment.
	point   Point
	log     []entry[R] // changes since the recovery point
	removed Mark       // number of entries removed from the front of log
	now     *update    // the update whose gradients accumulate
	folders int        // number of folder names used so far in Config.Folder
	updates int        // number of updates made
	lastID  int64      // last ID of a piece

	toDerive  []*micro // micro-batches whose log-probabilities are complete and wait for derive, in that order
	deriving  bool     // whether a derive is running, which may call Logprobs
	deriveErr error    // error of a derive since the last Discard
	finiteErr error    // result of CheckFinite
	// linear has the linear sums of the last update.
	linear   *backend.LinearSums
	restarts int           // see Restarts
	rows     int           // max. rows of a piece; 0 for no limit
	depth    int           // max. pieces in flight on a replica
	scored   *piece        // the piece that Logprobs computes, which belongs to no update; nil if none
	broken   error         // why the session has ended; nil while it works
	ended    chan struct{} // see Ended
}

// New returns a session without ranks.
func New[R Ranks](cfg Config[R]) *Session[R] {
	return &Session[R]{
		cfg: cfg, ready: make(chan struct{}, 1), point: cfg.From, updates: cfg.From.Updates, depth: cfg.Depth,
		ended: make(chan struct{}),
	}
}

// Open starts the first ranks. It tries again after an error for which again returns true, up to maxRestarts
// times.
func (s *Session[R]) Open(ctx context.Context, again func(err error) bool) error {
	if s.cfg.Folder != "" {
		if err := os.RemoveAll(s.cfg.Folder); err != nil { // left by an earlier process
			return err
		}
	}
	for {
		ranks, err := s.cfg.Start(ctx, s.point)
		if err == nil {
			s.ranks = ranks
			s.now = s.newUpdate()
			return nil
		}
		if again(err) {
			err = s.countRestart(err)
		}
		if err != nil {
			return err
		}
	}
}

// Close ends all ranks and removes the recovery points.
func (s *Session[R]) Close() {
	s.end(errors.New("the session is closed"))
	if s.alarm != nil {
		s.alarm.Stop()
	}
	s.Drop()
	if s.cfg.Folder != "" {
		_ = os.RemoveAll(s.cfg.Folder) // the next session removes what is left
	}
}

// Current returns the current ranks, or the zero value while there are none.
func (s *Session[R]) Current() R { return s.ranks }

// Drop ends all ranks. The next method that needs ranks starts others.
func (s *Session[R]) Drop() {
	var none R
	if s.ranks != none {
		s.ranks.Close()
		s.ranks = none
	}
}

// Ready returns a channel that receives a value when Poll has answers to handle or may detect a failure.
func (s *Session[R]) Ready() <-chan struct{} { return s.ready }

// Notify sends a value to Ready's channel. It never blocks.
func (s *Session[R]) Notify() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// Attempt calls op with ranks that hold the session's state. If op returns a Fault, Attempt restarts all
// ranks, restores their state and calls op again. It returns any other error. If restarting does not help, it
// ends the session. op may call Attempt again through a derive that calls Logprobs; if that replaces the ranks, op
// returns errReplaced, and Attempt calls it with the new ranks.
func (s *Session[R]) Attempt(ctx context.Context, op func(ranks R) error) error {
	if s.alarm != nil {
		s.alarm.Stop()
	}
	var none R
	for s.broken == nil {
		var err error
		if s.ranks == none {
			err = s.restore(ctx)
		}
		if err == nil {
			err = op(s.ranks)
		}
		var failed *Fault
		switch {
		case s.broken != nil: // set by a call within a derive
			return s.broken
		case errors.Is(err, errReplaced):
			continue
		case !errors.As(err, &failed): // also if err is nil
			s.setAlarm()
			return err
		}
		if s.ranks != none {
			err = s.ranks.Diagnose(failed)
			s.Drop()
		}
		var full *OutOfMemory
		if errors.As(err, &full) {
			err = s.shrink(err, full)
		} else {
			err = s.countRestart(err)
		}
		if err != nil {
			s.end(err)
		}
	}
	return s.broken
}

// Ended returns a channel that is closed when the session has ended and starts no more ranks. Any goroutine may
// wait for it.
func (s *Session[R]) Ended() <-chan struct{} { return s.ended }

// end makes all later calls return err.
func (s *Session[R]) end(err error) {
	if s.broken == nil {
		s.broken = s.named(err)
		close(s.ended)
	}
}

// named adds Config.Name to an error.
func (s *Session[R]) named(err error) error {
	if s.cfg.Name == "" {
		return err
	}
	return fmt.Errorf("%s: %w", s.cfg.Name, err)
}

// errReplaced ends an operation of Attempt whose ranks were replaced while it ran a derive.
var errReplaced = errors.New("ranks were replaced")

// countRestart counts a restart and warns of its cause. It returns an error if there are too many.
func (s *Session[R]) countRestart(cause error) error {
	s.restarts++
	if s.restarts > maxRestarts {
		return fmt.Errorf("%w; restarted %d times since update %d", cause, maxRestarts, s.updates)
	}
	s.cfg.Warn("%v; %s (%d of %d)", cause, s.restarting(), s.restarts, maxRestarts)
	return nil
}

// Restarts returns the number of restarts since the last completed update.
func (s *Session[R]) Restarts() int { return s.restarts }

// restarting describes how ranks start again, for warnings.
func (s *Session[R]) restarting() string {
	return fmt.Sprintf("%s, from update %d", s.cfg.How, s.point.Updates)
}

// setAlarm makes Ready's channel receive a value when the next answer becomes overdue, so that the
// session's goroutine calls Poll, which detects that. Without ranks it does so at once, and Poll starts others.
func (s *Session[R]) setAlarm() {
	var none R
	if s.ranks == none {
		s.Notify()
		return
	}
	if deadline := s.ranks.Deadline(); !deadline.IsZero() {
		s.alarm = time.AfterFunc(time.Until(deadline), s.Notify)
	}
}
