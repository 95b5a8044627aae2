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
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/trace"
)

// Config configures the loop, for any source.
type Config struct {
	Dir              string // the run's folder
	Steps            int
	ScheduleSteps    int // length of the learning-rate schedule, in steps; 0 means Steps
	PromptsPerStep   int // prompts, or demonstrations, that a step trains
	MicroBatchTokens int // maximum rows of a micro-batch
	MiniBatches      int // updates per step
	Optim            optim.Config
	Settings         map[string]string // all settings by key, for checkpoints; nil for none
	CheckpointEvery  int               // steps between checkpoints; 0 saves only the last step
	CheckpointKeep   int               // newest checkpoints to keep, besides the best; 0 keeps all
	Unsaved          bool              // write no checkpoint, whatever the other fields say
	EvalEvery        int               // steps between evaluations; 0 for none
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
	Disk    trace.Track // the background writes' row of the trace
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
	accumulate(ctx context.Context, s *step, first, end int) (*miniBatch, error)
	// abandon gives up all work in flight and returns when none of it is running.
	abandon()
	// updated is called after each update of the step, made or skipped.
	updated(s *step, b *miniBatch)
	// remedy names the settings that make a gradient smaller.
	remedy() string
	// end waits for the rest of the step's work after its last update.
	end() error
	// checksum returns the checksum of the policy's weights after the last completed step, for its line; empty if the
	// source records none.
	checksum(ctx context.Context) (string, error)
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
	total     int // length of the schedule, in steps
	state     State
	nonFinite int  // updates skipped in a row because their gradient was not finite
	resumedAt int  // steps completed before this process started
	midStep   bool // weights or records are ahead of the last complete step

	checkpoints       checkpoints
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
	Task      string  `json:"task"`          // the command that trains: "train" or "sft"
	// Data is a checksum of the training files, and Prompts the number of prompts in them.
	// Both determine the training order, which Position is an index of. Unknown values are "" and 0.
	Data    string `json:"data,omitempty"`
	Prompts int    `json:"prompts,omitempty"`
	// Numerics and NumericsVersion are the name of the numerics that trained, and npu.NumericsVersion then. The
	// version is 0 for PyTorch ranks and before version 2. Arithmetic reads both.
	Numerics        string `json:"numerics_name,omitempty"`
	NumericsVersion int    `json:"numerics,omitempty"`
	// Total is the number of steps spanned by the learning rate's schedule; 0 if unknown.
	Total int `json:"total,omitempty"`
	// Settings are those with which Step was taken, as TOML by key; nil if unknown.
	Settings map[string]string `json:"settings,omitempty"`
	// Pending is the line of Step if its evaluation or its checksum was interrupted.
	Pending report.Values `json:"pending,omitempty"`
}

// Arithmetic returns the arithmetic that trained the state, zero if it is unknown or that of PyTorch ranks.
func (s *State) Arithmetic() npu.Identity {
	if s.NumericsVersion == 0 {
		return npu.Identity{}
	}
	// Before numerics had names, there was only float32.
	return npu.Identity{Name: cmp.Or(s.Numerics, npu.FP32.String()), Version: s.NumericsVersion}
}

// SetArithmetic records the arithmetic that trains, zero for that of PyTorch ranks.
func (s *State) SetArithmetic(a npu.Identity) { s.Numerics, s.NumericsVersion = a.Name, a.Version }

// ErrStopped is Run's error if its context is cancelled. A checkpoint of the last completed step is on disk.
var ErrStopped = errors.New("stopped")

// newTrainer prepares a run without its source. state is zero for a new run and comes from
// Resume for a resumed one.
func newTrainer(cfg Config, state State, deps Deps) *Trainer {
	deps.Models.SetTrack(deps.Track)
	return &Trainer{cfg: cfg, Deps: deps, schedule: optim.NewSchedule(cfg.Optim),
		total: cmp.Or(cfg.ScheduleSteps, cfg.Steps),
		state: state, resumedAt: state.Step,
		checkpoints: checkpoints{root: CheckpointRoot(cfg.Dir), keep: cfg.CheckpointKeep, models: deps.Models,
			files: deps.Files, disk: deps.Disk, warn: deps.Warn}}
}

// Step returns the number of completed steps.
func (t *Trainer) Step() int { return t.state.Step }

// Run trains to the last step. With rollouts it is Algorithm 1 of the Periodic Asynchrony
// paper, whose line numbers are in the margin. If ctx is cancelled, Run writes a checkpoint
// of the last completed step and returns ErrStopped. On an error it also writes one, if it
// has completed a step and neither weights nor records are ahead of it.
func (t *Trainer) Run(ctx context.Context) error {
	runtime.LockOSThread() // the OS rarely moves a thread to another core, where the caches would be cold
	defer runtime.UnlockOSThread()
	defer t.checkpoints.wait() //nolint:errcheck // reported below, unless another error is
	if t.resumedAt > 0 {       // the state may be older than the link
		t.checkpoints.markBest(t.state.BestStep)
	}
	if err := t.evaluateFirst(ctx); err != nil {
		return t.stop(ctx, err)
	}
	for t.state.Step < t.cfg.Steps { //                         2
		s := t.begin()
		if err := t.source.start(ctx, s); err != nil { //       3-10
			return t.stop(ctx, err)
		}
		stepCtx := ctx
		for mini := range t.cfg.MiniBatches {
			first, end := t.miniBatchRange(mini)
			b, err := t.source.accumulate(stepCtx, s, first, end) // 11-19
			if err == nil {
				err = t.update(stepCtx, s, b) //                    20-21
			}
			if err != nil {
				s.span.End()
				return t.stop(ctx, fmt.Errorf("step %d: %w", s.number, err))
			}
			// After its first update, a step is finished even if ctx is cancelled: checkpoints hold complete steps.
			stepCtx = context.WithoutCancel(ctx)
		}
		if err := t.finish(ctx, s); err != nil {
			return t.stop(ctx, err)
		}
	}
	return t.checkpoints.wait()
}

// miniBatchRange returns the range of a step's prompts that the step's update number mini, from 0, trains.
func (t *Trainer) miniBatchRange(mini int) (first, end int) {
	n, parts := t.cfg.PromptsPerStep, t.cfg.MiniBatches
	return n * mini / parts, n * (mini + 1) / parts
}

// stop returns Run's error after err, and first writes a checkpoint of the last completed step where that is
// possible and useful. The error is then ErrStopped if the context was cancelled, and otherwise err with a
// hint to resume. stop writes none if
//   - midStep is set, because the models no longer hold the completed step;
//   - Config.Unsaved is set;
//   - a failed rank took its part of the models along;
//   - the step's weights cannot be sampled from, which would stop a resumed run again (setAside);
//   - this process has completed no step and was not stopped: there is nothing new to save.
func (t *Trainer) stop(ctx context.Context, err error) error {
	stopped := ctx.Err() != nil
	t.source.abandon()
	if t.midStep || t.cfg.Unsaved {
		return t.lost(err)
	}
	t.Models.Discard()
	if !stopped && t.state.Step > 0 && !errors.As(err, new(*parallel.RankError)) && t.source.unusable(ctx) {
		return t.setAside(err)
	}
	if !stopped && t.state.Step == t.resumedAt {
		return t.lost(err)
	}
	saveErr := t.checkpoints.saveNow(context.WithoutCancel(ctx), t.state)
	switch {
	case stopped && saveErr != nil:
		return t.lost(saveErr)
	case stopped:
		return fmt.Errorf("%w after step %d", ErrStopped, t.state.Step)
	case errors.As(err, new(*parallel.RankError)) && errors.As(saveErr, new(*parallel.RankError)):
		return t.lost(err)
	case saveErr != nil:
		return t.lost(fmt.Errorf("%w; saving the checkpoint of step %d failed too: %w", err, t.state.Step, saveErr))
	}
	return fmt.Errorf("%w; saved a checkpoint after step %d, -resume continues from it", err, t.state.Step)
}

// setAside returns the error of a run whose last step's weights cannot be sampled from. A resumed run would
// fail at once with them, so setAside gives their checkpoint, if there is one, a name that Claim ignores. The
// error says where -resume continues.
func (t *Trainer) setAside(err error) error {
	step := t.state.Step
	err = fmt.Errorf("%w; the weights after step %d cannot be sampled from: their log-probabilities are not finite",
		err, step)
	path, asideErr := t.checkpoints.setAside(step, t.state.BestStep)
	switch {
	case errors.Is(asideErr, fs.ErrNotExist): // the step has no checkpoint
	case asideErr != nil:
		return fmt.Errorf("%w; %w", err, asideErr)
	default:
		err = fmt.Errorf("%w, so their checkpoint is now %s", err, path)
	}
	if _, last, _, latestErr := checkpoint.Latest(t.checkpoints.root); latestErr == nil {
		return fmt.Errorf("%w; -resume continues from the checkpoint of step %d", err, last)
	}
	return fmt.Errorf("%w; no other checkpoint is left, so -resume starts from the beginning", err)
}

// lost returns the error of a run that ends without a new checkpoint. If a rank failed, it adds the step of
// the last checkpoint to err.
func (t *Trainer) lost(err error) error {
	_ = t.checkpoints.wait() // err matters more
	if step := max(t.checkpoints.saved, t.resumedAt); step > 0 && errors.As(err, new(*parallel.RankError)) {
		return fmt.Errorf("%w; -resume continues from the checkpoint of step %d", err, step)
	}
	return err
}
