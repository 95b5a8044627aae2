package trainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/trace"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// Config sets the loop, whatever a step is trained on.
type Config struct {
	Dir              string // the run's folder
	Steps            int
	ScheduleSteps    int // that the learning rate's schedule spans; 0 is Steps
	PromptsPerStep   int // or demonstrations
	MicroBatchTokens int // rows of a micro-batch at most
	MiniBatches      int // updates per step
	Optim            optim.Config
	CheckpointEvery  int // steps; 0 for the last step only
	CheckpointKeep   int // newest checkpoints to keep, besides the best; 0 keeps all
	EvalEvery        int // steps; 0 for none
	// MaxNonFinite is the number of gradients in a row that may be not finite
	// before the run stops; 0 is 3.
	MaxNonFinite int
}

// Deps are the parts that every run needs. Their owners close them.
type Deps struct {
	Models *trimodel.Models
	// Files are copied into each checkpoint: config.json, tokenizer and such.
	Files   map[string][]byte
	Metrics *report.Metrics
	Track   trace.Track // the trainer's row of the trace
	Disk    trace.Track // the row of what is written in the background
	// Progress sees each step's metrics.
	Progress func(step int, values report.Values)
	Warn     func(format string, args ...any)
}

// source is what steps are trained on: groups while they are sampled, or
// demonstrations. It works on one step at a time.
type source interface {
	// start begins a step's work.
	start(ctx context.Context, s *step) error
	// accumulate adds the gradients of the step's next n prompts to the models',
	// until ctx ends.
	accumulate(ctx context.Context, s *step, n int) (*batch, error)
	// abandon gives up the step that was started; nothing of it runs any more.
	abandon()
	// end waits for what is left of the step's work, after its last update.
	end() error
	// record adds to the step's line what s.metrics lacks and writes the step's
	// own files.
	record(s *step, line report.Values) error
	// evaluate adds the scores of the held-out sets to a line. score ranks
	// checkpoints, unless it is NaN.
	evaluate(ctx context.Context, line report.Values) (score float64, err error)
}

// Trainer is one run. It is used by one goroutine.
type Trainer struct {
	cfg Config
	Deps
	source    source
	opt       *optim.AdamW
	schedule  optim.Schedule
	total     int // steps that the schedule spans
	state     State
	save      checkpoints
	nonFinite int  // steps in a row
	first     int  // steps that were completed before the run
	between   bool // the weights, or what is recorded, are between two steps
	times     bool // lines have the time that a checkpoint takes
}

// State is what a resumed run continues from, besides weights and moments.
type State struct {
	Step      int     `json:"step"`      // steps completed
	Updates   int     `json:"updates"`   // optimizer updates completed
	Position  int     `json:"position"`  // next prompt of the training order
	Best      float64 `json:"best"`      // best evaluation score so far
	BestStep  int     `json:"best_step"` // 0 before the first
	Reference string  `json:"reference"` // checksum of the starting weights, which are the reference
	Seed      uint64  `json:"seed"`      // of the run
	Task      string  `json:"task"`      // what the run does, as its starter names it
	// Data is a checksum of the files that are trained on, and Prompts the number
	// that they give: the order that Position counts in. Empty and 0 where they are
	// not known.
	Data    string `json:"data,omitempty"`
	Prompts int    `json:"prompts,omitempty"`
	// Total is the steps that the learning rate's schedule spans; 0 where it is
	// not known.
	Total int `json:"total,omitempty"`
	// Pending is the line of Step where its evaluation was cut short.
	Pending report.Values `json:"pending,omitempty"`
}

// ErrStopped is returned by Run after a cancelled context: a checkpoint of the
// last completed step is on disk.
var ErrStopped = errors.New("stopped")

// newTrainer prepares a run without its source; state is zero for a new one and
// Resume's for a resumed one.
func newTrainer(cfg Config, state State, deps Deps) (*Trainer, error) {
	opt, err := optim.NewAdamW(cfg.Optim)
	if err != nil {
		return nil, err
	}
	opt.Updates = state.Updates
	deps.Models.Track = deps.Track
	return &Trainer{cfg: cfg, Deps: deps, opt: opt, schedule: optim.NewSchedule(cfg.Optim), total: cmp.Or(cfg.ScheduleSteps, cfg.Steps),
		state: state, first: state.Step,
		save: checkpoints{root: CheckpointRoot(cfg.Dir), keep: cfg.CheckpointKeep, models: deps.Models, files: deps.Files, disk: deps.Disk}}, nil
}

// Step is the number of steps completed.
func (t *Trainer) Step() int { return t.state.Step }

// Run trains to the last step. With rollouts it is Algorithm 1 of the Periodic
// Asynchrony paper; its line numbers are in the margin. On a cancelled context it
// writes a checkpoint of the last completed step and returns ErrStopped; on an
// error it writes one too, if it completed a step and neither weights nor records
// are torn.
func (t *Trainer) Run(ctx context.Context) error {
	runtime.LockOSThread() // on another core it would find none of its caches
	defer runtime.UnlockOSThread()
	defer t.save.wait() //nolint:errcheck // reported below unless another error is
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
			n := share(t.cfg.PromptsPerStep, t.cfg.MiniBatches, mini)
			b, err := t.source.accumulate(until, s, n) //       11-19
			if err == nil {
				err = t.update(s, b) //                         20-21
			}
			if err != nil {
				t.source.abandon()
				s.span.End()
				return t.stop(ctx, fmt.Errorf("step %d: %w", s.number, err))
			}
			until = context.WithoutCancel(ctx) // an updated step is finished, so that checkpoints hold whole steps
		}
		if err := t.finish(ctx, s); err != nil {
			return t.stop(ctx, err)
		}
	}
	return t.save.wait()
}

// share is the size of part i when n prompts are cut into parts.
func share(n, parts, i int) int { return n*(i+1)/parts - n*i/parts }

// stop is what Run returns after err. If the context was cancelled, it writes a
// checkpoint first and the reason is ErrStopped. Another error loses no completed
// step either, unless an update of the next one is taken, or the last one's
// records cannot be written.
func (t *Trainer) stop(ctx context.Context, err error) error {
	stopped := ctx.Err() != nil
	if t.between || !stopped && t.state.Step == t.first {
		return err
	}
	t.Models.Discard()
	saveErr := t.save.now(t.state)
	switch {
	case stopped && saveErr != nil:
		return saveErr
	case stopped:
		return fmt.Errorf("%w after step %d", ErrStopped, t.state.Step)
	case saveErr != nil:
		return fmt.Errorf("%w; then the checkpoint of step %d: %w", err, t.state.Step, saveErr)
	}
	return fmt.Errorf("%w; step %d is in a checkpoint, and -resume goes on from there", err, t.state.Step)
}
