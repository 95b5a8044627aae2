package trainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/trace"
	"github.com/easyrl/easyrl/rollout"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// Config is what the loop itself needs to know of a run.
type Config struct {
	Dir              string // the run's folder
	Steps            int
	ScheduleSteps    int // that the learning rate's schedule spans; 0 is Steps
	PromptsPerStep   int
	Refill           bool // prompts may be replaced: rollout.Stats.Replaced is written down
	MaxTokens        int  // response tokens at most, for response_length/clip_ratio
	MicroBatchTokens int  // rows of a micro-batch at most
	MiniBatches      int  // updates a step
	Loss             loss.Config
	Optim            optim.Config
	CheckpointEvery  int // steps; 0 for the last step only
	CheckpointKeep   int
	EvalEvery        int // steps; 0 for none
	LogRollouts      bool
	BySource         bool // the mean reward of each data source is a metric of its own
	Devices          int  // for perf/tokens_per_second_per_device
	// MaxNonFinite is the number of gradients in a row that may be not finite
	// before the run stops; 0 is 3.
	MaxNonFinite int
	// PeakFLOPS is how many operations a second the trainer's device can do at
	// best. perf/mfu is the share of it that the models' forward and backward
	// passes took (model.Config.TrainFLOPs), over the whole step, waiting
	// included. 0 is not known: perf/mfu is left out.
	PeakFLOPS float64
}

// Deps are the parts that the loop drives. Their owners close them.
type Deps struct {
	Models *trimodel.Models
	// Prompt is prompt i of the endless training order.
	Prompt func(i int) rollout.Prompt
	// Produce starts sampling a step.
	Produce func(ctx context.Context, batch rollout.Batch) rollout.Stream
	// Publish hands a version to all instances and returns when they serve it.
	Publish func(ctx context.Context, w inference.Weights) error
	// Evaluate scores the published version on the held-out sets; the result's
	// names go into the metrics as they are, and score ranks checkpoints unless
	// it is NaN. An error ends the run.
	Evaluate func(ctx context.Context, step int) (metrics map[string]float64, score float64, err error)
	// Files are copied into each checkpoint: config.json, tokenizer and such.
	Files   map[string][]byte
	Metrics *report.Metrics
	Track   trace.Track // the trainer's row of the trace
	Queue   trace.Track // the rows of finished groups, while they wait for the trainer
	Disk    trace.Track // the row of what is written in the background
	// Progress sees each step's metrics.
	Progress func(step int, values report.Values)
	Warn     func(format string, args ...any)
}

// Trainer is one run. It is used by one goroutine.
type Trainer struct {
	cfg Config
	Deps
	objective *loss.Objective
	opt       *optim.AdamW
	schedule  optim.Schedule
	state     State
	save      checkpoints
	published int64 // version the instances hold, 0 before the first publish
	nonFinite int   // steps in a row
	first     int   // steps that were completed before the run
	between   bool  // the weights, or what is recorded, stand between two steps
}

// State is what a resumed run continues from, besides weights and moments.
type State struct {
	Step      int     `json:"step"`      // steps completed
	Updates   int     `json:"updates"`   // optimizer steps completed
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

// New prepares a run; state is zero for a new one and Resume's for a resumed
// one.
func New(cfg Config, state State, deps Deps) (*Trainer, error) {
	objective, err := loss.New(cfg.Loss)
	if err != nil {
		return nil, err
	}
	opt, err := optim.NewAdamW(cfg.Optim)
	if err != nil {
		return nil, err
	}
	opt.Updates = state.Updates
	state.Total = cmp.Or(cfg.ScheduleSteps, cfg.Steps)
	deps.Models.Track = deps.Track
	return &Trainer{cfg: cfg, Deps: deps, first: state.Step, objective: objective, opt: opt, schedule: optim.NewSchedule(cfg.Optim), state: state,
		save: checkpoints{root: CheckpointRoot(cfg.Dir), keep: cfg.CheckpointKeep, models: deps.Models, files: deps.Files,
			disk: deps.Disk, sampled: cfg.Loss.OldPolicy == loss.PreviousStep}}, nil
}

// Step is the number of steps completed.
func (t *Trainer) Step() int { return t.state.Step }

// Run is Algorithm 1 of the Periodic Asynchrony paper; its line numbers are in
// the margin. On a cancelled context it writes a checkpoint of the last
// completed step and returns ErrStopped; on an error it writes one too, where it
// completed a step and neither weights nor records are torn.
func (t *Trainer) Run(ctx context.Context) error {
	runtime.LockOSThread() // on another core it would find none of its caches
	defer runtime.UnlockOSThread()
	defer t.save.wait() //nolint:errcheck // reported below unless another error is
	if loss.WholeBatch(t.cfg.Loss.Advantage) {
		t.Warn("loss.advantage = %q waits for all groups of a step before it trains the first", t.cfg.Loss.Advantage)
	}
	if err := errors.Join(t.evaluateFirst(ctx), t.evaluatePending(ctx)); err != nil {
		return t.stop(ctx, err)
	}
	for t.state.Step < t.cfg.Steps { //                                      2
		s := t.begin()
		if err := t.publish(ctx); err != nil { //                   3
			return t.stop(ctx, err)
		}
		s.published()
		prompts := t.prompts() //                                   4
		t.produce(s, prompts)  //                                   5-10
		for mini := range t.cfg.MiniBatches {
			n := share(len(prompts), t.cfg.MiniBatches, mini)
			if err := t.consume(ctx, s, n); err != nil { //         11-19
				s.abandon()
				return t.stop(ctx, err)
			}
			if err := t.update(s); err != nil { //                  20-21
				s.abandon()
				return err
			}
		}
		if err := t.finish(ctx, s); err != nil {
			return t.stop(ctx, err)
		}
	}
	return t.save.wait()
}

// share is the size of part i when n groups are cut into parts.
func share(n, parts, i int) int { return n*(i+1)/parts - n*i/parts }

// publish gives the instances the policy as it is, unless they have it.
func (t *Trainer) publish(ctx context.Context) error {
	version := int64(t.state.Step) + 1
	if t.published == version {
		return nil
	}
	defer t.Track.Begin(t.state.Step+1, "publish").End()
	snapshot, err := t.Models.Publish(version)
	if err != nil {
		return err
	}
	if err := t.Publish(ctx, snapshot); err != nil {
		return fmt.Errorf("publish version %d: %w", version, err)
	}
	t.published = version
	return nil
}

// prompts takes the next step's prompts from the training order.
func (t *Trainer) prompts() []rollout.Prompt {
	out := make([]rollout.Prompt, t.cfg.PromptsPerStep)
	for i := range out {
		out[i] = t.Prompt(t.state.Position + i)
	}
	return out
}

// stop is what Run returns after err: where the context was cancelled, a
// checkpoint is written first and the reason is ErrStopped. Another reason loses
// no completed step either, unless an optimizer step of the next one is taken, or
// what a step gave cannot be written.
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
