package trainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/trace"
)

// Config configures the loop, for any source.
type Config struct {
	Dir              string // the run's folder
	Steps            int
	ScheduleSteps    int // spanned by the learning rate's schedule; 0 means Steps
	PromptsPerStep   int // or demonstrations
	MicroBatchTokens int // maximum rows of a micro-batch
	MiniBatches      int // updates per step
	Optim            optim.Config
	CheckpointEvery  int // steps; 0 for the last step only
	CheckpointKeep   int // newest checkpoints to keep, besides the best; 0 keeps all
	EvalEvery        int // steps; 0 for none
	// MaxNonFinite is the number of consecutive gradients that may be not finite before the
	// run stops; 0 means 3.
	MaxNonFinite int
}

// Deps are the parts that every run needs. Their owners close them.
type Deps struct {
	Models backend.Models
	// Files are copied into each checkpoint, such as config.json and the tokenizer.
	Files   map[string][]byte
	Metrics *report.Metrics
	// Traffic returns the bytes that ranks exchanged since its last call, by purpose. It may be nil.
	Traffic func() map[string]int64
	Track   trace.Track // the trainer's row of the trace
	Disk    trace.Track // row of background writes
	// Progress receives each step's metrics.
	Progress func(step int, values report.Values)
	Warn     func(format string, args ...any)
}

// source provides the work of steps: groups while they are sampled, or demonstrations. It
// works on one step at a time.
type source interface {
	// start begins a step's work.
	start(ctx context.Context, s *step) error
	// accumulate adds the gradients of the step's prompts first to end to the models', until ctx
	// ends.
	accumulate(ctx context.Context, s *step, first, end int) (*batch, error)
	// abandon gives up the current step and returns when nothing of it is running.
	abandon()
	// remedy names the settings that make a gradient smaller.
	remedy() string
	// end waits for the rest of the step's work after its last update.
	end() error
	// record adds to the step's line what s.metrics lacks and writes the step's other
	// files.
	record(s *step, line report.Values) error
	// evaluate adds the scores of the held-out sets to line. score ranks checkpoints unless
	// it is NaN.
	evaluate(ctx context.Context, line report.Values) (score float64, err error)
	// unusable reports whether the current policy has been published and cannot be sampled
	// from.
	unusable(ctx context.Context) bool
}

// Trainer is one run. Only one goroutine may use it.
type Trainer struct {
	cfg Config
	Deps
	source    source
	schedule  optim.Schedule
	total     int // spanned by the schedule
	state     State
	save      checkpoints
	nonFinite int  // consecutive
	first     int  // steps completed before this process started
	midStep   bool // weights or records are ahead of the last complete step

	logCheckpointTime bool // lines include the time that a checkpoint takes
}

// State is what a resumed run continues from, besides weights and moments.
type State struct {
	Step      int     `json:"step"`          // steps completed
	Updates   int     `json:"updates"`       // optimizer updates completed
	Position  int     `json:"position"`      // next prompt of the training order
	Best      float64 `json:"best"`          // best evaluation score so far
	BestStep  int     `json:"best_step"`     // 0 before the first
	Reference string  `json:"reference"`     // checksum of the starting weights, which are the reference
	Run       string  `json:"run,omitempty"` // Identity.Run; empty if unknown
	Seed      uint64  `json:"seed"`          // of the run
	Task      string  `json:"task"`          // kind of run, named by its starter
	// Data is a checksum of the training files, and Prompts the number of prompts in them.
	// They determine the order that Position counts in. They are empty and 0 if unknown.
	Data    string `json:"data,omitempty"`
	Prompts int    `json:"prompts,omitempty"`
	// Numerics is npu.Numerics of the process that wrote the checkpoint. It is 0 for PyTorch
	// ranks and before version 2.
	Numerics int `json:"numerics,omitempty"`
	// Total is the number of steps spanned by the learning rate's schedule; 0 if unknown.
	Total int `json:"total,omitempty"`
	// Pending is the line of Step if its evaluation was interrupted.
	Pending report.Values `json:"pending,omitempty"`
}

// ErrStopped is Run's error if its context is cancelled. A checkpoint of the last completed step is on disk.
var ErrStopped = errors.New("stopped")

// newTrainer prepares a run without its source. state is zero for a new run and comes from
// Resume for a resumed one.
func newTrainer(cfg Config, state State, deps Deps) *Trainer {
	deps.Models.SetTrack(deps.Track)
	return &Trainer{cfg: cfg, Deps: deps, schedule: optim.NewSchedule(cfg.Optim),
		total: cmp.Or(cfg.ScheduleSteps, cfg.Steps),
		state: state, first: state.Step,
		save: checkpoints{root: CheckpointRoot(cfg.Dir), keep: cfg.CheckpointKeep, models: deps.Models,
			files: deps.Files, disk: deps.Disk, warn: deps.Warn}}
}

// Step returns the number of completed steps.
func (t *Trainer) Step() int { return t.state.Step }

// Run trains to the last step. With rollouts it is Algorithm 1 of the Periodic Asynchrony
// paper, whose line numbers are in the margin. If ctx is cancelled, Run writes a checkpoint
// of the last completed step and returns ErrStopped. On an error it also writes one, if it
// has completed a step and neither weights nor records are ahead of it.
func (t *Trainer) Run(ctx context.Context) error {
	runtime.LockOSThread() // on another core the caches would be cold
	defer runtime.UnlockOSThread()
	defer t.save.wait() //nolint:errcheck // reported below, unless another error is
	if t.first > 0 {    // the state may be older than the link
		t.save.markBest(t.state.BestStep)
	}
	if err := t.evaluateFirst(ctx); err != nil {
		return t.stop(ctx, err)
	}
	for t.state.Step < t.cfg.Steps { //                         2
		s := t.begin()
		if err := t.source.start(ctx, s); err != nil { //       3-10
			return t.stop(ctx, err)
		}
		until := ctx
		for mini := range t.cfg.MiniBatches {
			first, end := t.share(mini)
			b, err := t.source.accumulate(until, s, first, end) //11-19
			if err == nil {
				err = t.update(until, s, b) //                         20-21
			}
			if err != nil {
				t.source.abandon()
				s.span.End()
				return t.stop(ctx, fmt.Errorf("step %d: %w", s.number, err))
			}
			until = context.WithoutCancel(ctx) // finish a step once it is updated, so that checkpoints hold whole steps
		}
		if err := t.finish(ctx, s); err != nil {
			return t.stop(ctx, err)
		}
	}
	return t.save.wait()
}

// share returns the range of a step's prompts that optimizer update mini of the step trains.
func (t *Trainer) share(mini int) (first, end int) {
	n, parts := t.cfg.PromptsPerStep, t.cfg.MiniBatches
	return n * mini / parts, n * (mini + 1) / parts
}

// stop returns Run's error after err. If the context was cancelled, stop first writes a checkpoint, and
// the error is ErrStopped. Any other error loses no completed step either, unless a rank has failed, the
// next step's weights have been updated, the last step's records cannot be written, or its weights
// cannot be sampled from.
func (t *Trainer) stop(ctx context.Context, err error) error {
	stopped := ctx.Err() != nil
	if t.midStep {
		return t.lost(err)
	}
	t.Models.Discard()
	if !stopped && t.state.Step > 0 && !errors.As(err, new(*parallel.RankError)) && t.source.unusable(ctx) {
		return t.setAside(err)
	}
	if !stopped && t.state.Step == t.first {
		return t.lost(err)
	}
	saveErr := t.save.now(context.WithoutCancel(ctx), t.state)
	switch {
	case stopped && saveErr != nil:
		return saveErr
	case stopped:
		return fmt.Errorf("%w after step %d", ErrStopped, t.state.Step)
	case errors.As(err, new(*parallel.RankError)) && errors.As(saveErr, new(*parallel.RankError)):
		return t.lost(err)
	case saveErr != nil:
		return t.lost(fmt.Errorf("%w; saving the checkpoint of step %d failed too: %w", err, t.state.Step, saveErr))
	}
	return fmt.Errorf("%w; saved a checkpoint after step %d, -resume continues from it", err, t.state.Step)
}

// setAside ends a run whose last step's weights cannot be sampled from. A resumed run would fail at
// once with them, so their checkpoint, if it is written, gets a name that Claim ignores. The error says
// where -resume continues.
func (t *Trainer) setAside(err error) error {
	step := t.state.Step
	err = fmt.Errorf("%w; the weights after step %d cannot be sampled from: their log-probabilities are not finite",
		err, step)
	path, asideErr := t.save.setAside(step, t.state.BestStep)
	switch {
	case errors.Is(asideErr, fs.ErrNotExist): // not written
	case asideErr != nil:
		return fmt.Errorf("%w; %w", err, asideErr)
	default:
		err = fmt.Errorf("%w, so their checkpoint is now %s", err, path)
	}
	if _, last, _, latestErr := checkpoint.Latest(t.save.root); latestErr == nil {
		return fmt.Errorf("%w; -resume continues from the checkpoint of step %d", err, last)
	}
	return fmt.Errorf("%w; no other checkpoint is left, so -resume starts from the beginning", err)
}

// lost adds the last checkpoint to the error of a failed rank, without which none can be written.
func (t *Trainer) lost(err error) error {
	_ = t.save.wait() // the rank's failure matters more
	if step := max(t.save.saved, t.first); step > 0 && errors.As(err, new(*parallel.RankError)) {
		return fmt.Errorf("%w; -resume continues from the checkpoint of step %d", err, step)
	}
	return err
}
