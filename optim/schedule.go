package optim

import (
	"math"

	"github.com/easyrl/easyrl/internal/rounded"
)

// The shapes of the learning rate after the warm-up.
const (
	Constant = "constant"
	Linear   = "linear"
	Cosine   = "cosine"
)

// Schedule is a learning rate over the steps of a run.
type Schedule struct {
	Kind     string  // Constant, Linear or Cosine
	Peak     float64 // learning rate at the last step of the warm-up
	Warmup   int     // number of steps over which the rate rises linearly, from Peak/Warmup at step 1
	MinRatio float64 // final rate as a fraction of Peak
}

// NewSchedule returns the schedule that cfg describes.
func NewSchedule(cfg Config) Schedule {
	return Schedule{Kind: cfg.Schedule, Peak: cfg.LR, Warmup: cfg.Warmup, MinRatio: cfg.MinLR}
}

// LR returns the learning rate of step, from 1, in a run of total steps. The decay starts
// from Peak at the step after the warm-up and would reach MinRatio·Peak at step total+1, so
// that no step is wasted on a rate of zero.
func (s Schedule) LR(step, total int) float64 {
	if step <= s.Warmup {
		return s.Peak * float64(step) / float64(s.Warmup)
	}
	done := 1.0 // completed fraction of the decay
	if decay := total - s.Warmup; decay > 0 {
		done = min(1, float64(step-1-s.Warmup)/float64(decay))
	}
	switch s.Kind {
	case Linear:
		return s.Peak * (s.MinRatio + float64((1-s.MinRatio)*(1-done)))
	case Cosine:
		return s.Peak * (s.MinRatio + float64((1-s.MinRatio)*(1+rounded.Cos(math.Pi*done))/2))
	default:
		return s.Peak
	}
}
