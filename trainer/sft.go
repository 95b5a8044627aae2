package trainer

import (
	"context"
	"fmt"
	"time"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/report"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// Example is a prompt and the response to imitate, as token ids.
type Example struct {
	Prompt, Response []int32
}

// SFTConfig is what supervised fine-tuning needs to know of a run.
type SFTConfig struct {
	Dir              string
	Steps, BatchSize int // examples a step
	MicroBatchTokens int
	Optim            optim.Config
	CheckpointEvery  int
	CheckpointKeep   int
	EvalEvery        int // steps, before the first and after the last; 0 never evaluates
}

// HeldOut is a set of examples that are never trained on.
type HeldOut struct {
	Name     string // in metrics: eval/<name>/loss
	Examples []Example
}

// SFT trains models on examples: the mean cross-entropy of the response tokens
// of a step's batch, packed without padding. example(i) is example i of the
// endless training order. The loss of a held-out set is the mean over all of its
// response tokens. Like Trainer.Run it returns ErrStopped, with a checkpoint
// written, where the context is cancelled.
type SFT struct {
	Config   SFTConfig
	Models   *trimodel.Models
	Example  func(i int) Example
	Held     []HeldOut
	Files    map[string][]byte
	Metrics  *report.Metrics
	Progress func(step int, values report.Values)

	state    State
	opt      *optim.AdamW
	schedule optim.Schedule
	save     checkpoints
}

// Step is the number of steps completed.
func (s *SFT) Step() int { return s.state.Step }

// Run trains from state to the last step.
func (s *SFT) Run(ctx context.Context, state State) (err error) {
	cfg := &s.Config
	s.state, s.schedule = state, optim.NewSchedule(cfg.Optim)
	if s.opt, err = optim.NewAdamW(cfg.Optim); err != nil {
		return err
	}
	s.opt.Updates = state.Updates
	s.save = checkpoints{root: CheckpointRoot(cfg.Dir), keep: cfg.CheckpointKeep, models: s.Models, files: s.Files}
	defer s.save.wait() //nolint:errcheck // reported below unless another error is
	if err := s.begin(ctx); err != nil {
		return s.stop(ctx, err)
	}
	for s.state.Step < cfg.Steps {
		values, err := s.advance(ctx)
		if err == nil {
			err = s.finish(ctx, values)
		}
		if err != nil {
			return s.stop(ctx, err)
		}
	}
	return s.save.wait()
}

// begin evaluates the starting weights, or makes up for an evaluation that was
// cut short.
func (s *SFT) begin(ctx context.Context) error {
	values := s.state.Pending
	if values == nil {
		if s.state.Step > 0 || s.Config.EvalEvery == 0 || len(s.Held) == 0 {
			return nil
		}
		values = report.Values{"step": 0, "time": unixNow()}
	}
	if err := s.evaluate(ctx, values); err != nil {
		return err
	}
	if err := s.write(values); err != nil || s.state.Pending == nil {
		return err
	}
	s.state.Pending = nil
	return s.save.now(s.state)
}

// advance takes one optimizer step and returns its line.
func (s *SFT) advance(ctx context.Context) (report.Values, error) {
	cfg := &s.Config
	began := time.Now()
	step := s.state.Step + 1
	sum, tokens, rows, err := s.accumulate(ctx, s.state.Position)
	if err != nil {
		return nil, fmt.Errorf("step %d: %w", step, err)
	}
	lr := s.schedule.LR(step, cfg.Steps)
	norm, err := s.Models.Step(s.opt, 1/float64(tokens), lr, cfg.Optim.ClipGrad)
	if err == nil {
		err = s.Models.Policy.CheckFinite()
	}
	if err != nil {
		return nil, fmt.Errorf("step %d: update at lr %v: %w", step, lr, err)
	}
	s.state.Step, s.state.Updates, s.state.Position = step, s.opt.Updates, s.state.Position+cfg.BatchSize
	wall := time.Since(began).Seconds()
	return report.Values{"step": float64(step), "time": unixNow(), "actor/loss": -sum / float64(tokens),
		"actor/grad_norm": norm, "actor/lr": lr, "timing_s/step": wall, "tokens/response": float64(tokens),
		"tokens/computed": float64(rows), "perf/tokens_per_second": float64(rows) / wall, "memory/peak_bytes": float64(report.PeakMemory())}, nil
}

// finish evaluates and checkpoints a step where it is time, and records it.
func (s *SFT) finish(ctx context.Context, values report.Values) error {
	cfg := &s.Config
	step, last := s.state.Step, s.state.Step == cfg.Steps
	if cfg.EvalEvery > 0 && (step%cfg.EvalEvery == 0 || last) {
		if err := s.evaluate(ctx, values); err != nil {
			s.state.Pending = finite(values)
			return err
		}
	}
	if err := s.write(values); err != nil {
		return err
	}
	if err := s.save.failed(); err != nil {
		return err
	}
	if last || cfg.CheckpointEvery > 0 && step%cfg.CheckpointEvery == 0 {
		write, err := s.save.capture(s.state)
		if err != nil {
			return err
		}
		s.save.start(write)
	}
	return nil
}

// write records a line and shows it.
func (s *SFT) write(values report.Values) error {
	if err := s.Metrics.Write(values); err != nil {
		return err
	}
	s.Progress(s.state.Step, values)
	return nil
}

// stop is what Run returns after err: where the context was cancelled, a
// checkpoint is written first and the reason is ErrStopped.
func (s *SFT) stop(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	s.Models.Discard()
	if err := s.save.now(s.state); err != nil {
		return err
	}
	return fmt.Errorf("%w after step %d", ErrStopped, s.state.Step)
}

// evaluate adds the losses of the held-out sets to values.
func (s *SFT) evaluate(ctx context.Context, values report.Values) error {
	if len(s.Held) == 0 {
		return nil
	}
	began := time.Now()
	for _, set := range s.Held {
		sum, tokens, _, err := s.pass(ctx, len(set.Examples), func(i int) Example { return set.Examples[i] }, nil)
		if err != nil {
			return fmt.Errorf("evaluate %s after step %d: %w", set.Name, s.state.Step, err)
		}
		values["eval/"+set.Name+"/loss"] = -sum / float64(tokens)
	}
	values["timing_s/eval"] = time.Since(began).Seconds()
	return nil
}

// accumulate adds up the gradients of a batch, from example first on, until ctx
// ends. sum is the log-probability of its response tokens.
func (s *SFT) accumulate(ctx context.Context, first int) (sum float64, tokens, rows int, err error) {
	return s.pass(ctx, s.Config.BatchSize, func(i int) Example { return s.Example(first + i) }, func(tokens int) error {
		grad := make([]float32, tokens)
		for i := range grad {
			grad[i] = -1
		}
		return s.Models.Backward(grad)
	})
}

// pass computes n examples in micro-batches, each followed by after with its
// number of response tokens, until ctx ends.
func (s *SFT) pass(ctx context.Context, n int, example func(i int) Example, after func(tokens int) error) (sum float64, tokens, rows int, err error) {
	var l attention.Layout
	flush := func() error {
		if len(l.Targets) == 0 || ctx.Err() != nil {
			return ctx.Err()
		}
		lp, err := s.Models.Forward(&l)
		if err != nil {
			return err
		}
		for _, v := range lp.Policy {
			sum += float64(v)
		}
		tokens, rows = tokens+len(lp.Policy), rows+l.Rows()
		if after != nil {
			err = after(len(lp.Policy))
		}
		l.Reset()
		return err
	}
	for i := range n {
		e := example(i)
		if l.Rows() > 0 && l.Rows()+len(e.Prompt)+len(e.Response)-1 > s.Config.MicroBatchTokens {
			if err := flush(); err != nil {
				return sum, tokens, rows, err
			}
		}
		l.AddLeaf(l.Add(-1, e.Prompt, false), e.Response)
	}
	return sum, tokens, rows, flush()
}
