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
}

// SFT trains models on examples: the mean cross-entropy of the response tokens
// of a step's batch, packed without padding. example(i) is example i of the
// endless training order. Like Trainer.Run it returns ErrStopped, with a
// checkpoint written, where the context is cancelled.
type SFT struct {
	Config   SFTConfig
	Models   *trimodel.Models
	Example  func(i int) Example
	Files    map[string][]byte
	Metrics  *report.Metrics
	Progress func(step int, values report.Values)

	step int // completed
}

// Step is the number of steps completed.
func (s *SFT) Step() int { return s.step }

// Run trains from state to the last step.
func (s *SFT) Run(ctx context.Context, state State) error {
	cfg := &s.Config
	s.step = state.Step
	opt, err := optim.NewAdamW(cfg.Optim)
	if err != nil {
		return err
	}
	opt.Updates = state.Updates
	schedule := optim.NewSchedule(cfg.Optim)
	save := checkpoints{root: CheckpointRoot(cfg.Dir), keep: cfg.CheckpointKeep, models: s.Models, files: s.Files}
	defer save.wait() //nolint:errcheck // reported below unless another error is
	for state.Step < cfg.Steps {
		began := time.Now()
		sum, tokens, rows, err := s.accumulate(ctx, state.Position)
		if ctx.Err() != nil {
			s.Models.Discard()
			if err := save.now(state); err != nil {
				return err
			}
			return fmt.Errorf("%w after step %d", ErrStopped, state.Step)
		}
		if err != nil {
			return fmt.Errorf("step %d: %w", state.Step+1, err)
		}
		lr := schedule.LR(state.Step+1, cfg.Steps)
		norm, err := s.Models.Step(opt, 1/float64(tokens), lr, cfg.Optim.ClipGrad)
		if err == nil {
			err = s.Models.Policy.CheckFinite()
		}
		if err != nil {
			return fmt.Errorf("step %d: update at lr %v: %w", state.Step+1, lr, err)
		}
		state.Step, state.Updates, state.Position = state.Step+1, opt.Updates, state.Position+cfg.BatchSize
		s.step = state.Step
		wall := time.Since(began).Seconds()
		values := report.Values{"step": float64(state.Step), "time": unixNow(), "actor/loss": -sum / float64(tokens),
			"actor/grad_norm": norm, "actor/lr": lr, "timing_s/step": wall, "tokens/response": float64(tokens),
			"tokens/computed": float64(rows), "perf/tokens_per_second": float64(rows) / wall, "memory/peak_bytes": float64(report.PeakMemory())}
		if err := s.Metrics.Write(values); err != nil {
			return err
		}
		s.Progress(state.Step, values)
		if err := save.failed(); err != nil {
			return err
		}
		if state.Step == cfg.Steps || cfg.CheckpointEvery > 0 && state.Step%cfg.CheckpointEvery == 0 {
			write, err := save.capture(state)
			if err != nil {
				return err
			}
			save.start(write)
		}
	}
	return save.wait()
}

// accumulate adds up the gradients of a batch, from example first on, until ctx
// ends. sum is the log-probability of its response tokens.
func (s *SFT) accumulate(ctx context.Context, first int) (sum float64, tokens, rows int, err error) {
	var l attention.Layout
	flush := func() error {
		if len(l.Targets) == 0 || ctx.Err() != nil {
			return ctx.Err()
		}
		lp, err := s.Models.Forward(&l)
		if err != nil {
			return err
		}
		grad := make([]float32, len(lp.Policy))
		for i, v := range lp.Policy {
			sum += float64(v)
			grad[i] = -1
		}
		tokens, rows = tokens+len(grad), rows+l.Rows()
		if err := s.Models.Backward(grad); err != nil {
			return err
		}
		l.Reset()
		return nil
	}
	for i := range s.Config.BatchSize {
		e := s.Example(first + i)
		if l.Rows() > 0 && l.Rows()+len(e.Prompt)+len(e.Response)-1 > s.Config.MicroBatchTokens {
			if err := flush(); err != nil {
				return sum, tokens, rows, err
			}
		}
		l.AddLeaf(l.Add(-1, e.Prompt, false), e.Response)
	}
	return sum, tokens, rows, flush()
}
