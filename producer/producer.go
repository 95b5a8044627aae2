// Package producer keeps the inference instances busy: it hands out prompts,
// scores what comes back and queues finished groups.
//
// It is the temporary data generator of periodic asynchrony (Lu 2025, section
// 4.3): in each step it runs one task a prompt, which samples a group of
// responses, scores them and queues them for the trainer, while the trainer
// works on earlier groups.
package producer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/internal/splitmix"
	"github.com/easyrl/easyrl/report/trace"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/rollout/sample"
)

// ErrBudget is a step with more failed groups than its budget allows.
var ErrBudget = errors.New("too many groups failed")

// Config holds what all steps of a run share.
type Config struct {
	// Order is rollout.Arrival or rollout.PromptOrder.
	Order string
	// Gate holds all groups back until the step's last one is in.
	Gate bool
	// GroupSize is the number of responses to a prompt.
	GroupSize int
	Sampling  inference.Sampling
	Seed      uint64 // of the run
	// InFlight is the number of groups that are with the fleet at once, without
	// those being scored; 0 follows the fleet.
	InFlight int
	// Scoring is the number of responses of a group that are scored at once.
	Scoring int
	// DynamicSampling is how often a prompt is replaced by another while all its
	// responses have the same reward, which teaches nothing (Yu et al. 2025,
	// "DAPO"). After that its group is delivered as it is.
	DynamicSampling int
	// MaxFailed is the number of a step's groups that may fail because of their
	// prompt or their reward, as Budget says, and MaxLost the number that may
	// fail because no instance could sample them. Beyond that the step fails.
	MaxFailed, MaxLost int
}

// Budget is the number of a step's groups that may fail because of their prompt or
// reward: a tenth, but at least 1. That many are a matter of single prompts; more
// point to the reward, and would change what is learned.
func Budget(prompts int) int { return max(1, prompts/10) }

// DefaultConfig delivers groups as they arrive and lets none be lost. It leaves
// open what is sampled.
func DefaultConfig() Config {
	return Config{Order: rollout.Arrival, Scoring: 8, MaxFailed: 1}
}

// Validate reports all faults of c.
func (c *Config) Validate() error {
	var faults []error
	if c.Order != rollout.Arrival && c.Order != rollout.PromptOrder {
		faults = append(faults, fmt.Errorf("producer: order %q, expected %q or %q", c.Order, rollout.Arrival, rollout.PromptOrder))
	}
	for _, v := range []struct {
		name       string
		value, low int
	}{
		{"group size", c.GroupSize, 1},
		{"in flight", c.InFlight, 0},
		{"scoring", c.Scoring, 1},
		{"dynamic sampling", c.DynamicSampling, 0},
		{"max failed", c.MaxFailed, 0},
		{"max lost", c.MaxLost, 0},
	} {
		if v.value < v.low {
			faults = append(faults, fmt.Errorf("producer: %s %d, expected at least %d", v.name, v.value, v.low))
		}
	}
	return errors.Join(faults...)
}

// Fleet samples responses. *fleet.Fleet is one.
type Fleet interface {
	sample.Fleet
	// TargetInFlight is the number of requests of so many responses that the fleet should
	// have at once, as things are now.
	TargetInFlight(responses int) int
}

// Counters are a run's totals so far, of which a step reports its share.
type Counters struct {
	Busy            time.Duration // time with work, summed over instances
	Retries, Hedges int64         // of requests
	RewardRetries   int64
	Instances       int // that serve now, no total
}

// Deps are the parts that a producer drives.
type Deps struct {
	Fleet  Fleet
	Reward reward.Func
	// Text decodes a response for the reward and the record, without stop and other
	// special tokens. Nil takes the instances' text.
	Text func(ids []int32) string
	// Spare is a prompt of the endless order that replacements are taken from.
	// Config.DynamicSampling needs it. It may be called concurrently.
	Spare func(place int) rollout.Prompt
	// Counters reads the run's totals; nil leaves them out of a step's account.
	Counters func() Counters
	// Warn reports each prompt without a group; it may be nil.
	Warn func(format string, args ...any)
	// Lanes are the rows of the groups' spans: "prompt" while the fleet samples and
	// "score" while the reward is asked. A group's flow is named after its request's
	// seed and opens with its prompt. The zero Track records nothing.
	Lanes trace.Track
}

// Producer samples the batches of a run, one step after the other.
type Producer struct {
	cfg     Config
	deps    Deps
	sampler sample.Sampler
	retries atomic.Int64 // of the reward, up to the end of the last step
}

// New returns a producer.
func New(cfg Config, deps Deps) (*Producer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Producer{cfg: cfg, deps: deps,
		sampler: sample.Sampler{Fleet: deps.Fleet, Reward: deps.Reward, Text: deps.Text, AtOnce: cfg.Scoring}}, nil
}

// Start samples and scores a batch and returns the stream of its groups. Sampling
// never waits for the stream's reader. The stream ends early, with ctx's error, when
// ctx does, and with an error that wraps ErrBudget when too many groups fail.
func (p *Producer) Start(ctx context.Context, batch rollout.Batch) rollout.Stream {
	s := newStep(p, batch)
	s.work.Go(func() { s.run(ctx) })
	return s
}

// count is the run's totals.
func (p *Producer) count() Counters {
	if p.deps.Counters == nil {
		return Counters{}
	}
	return p.deps.Counters()
}

// spare is the prompt that replaces prompt index of a step in attempt 1 and above.
// It depends on nothing else, so that neither arrival nor a resume matters.
func (p *Producer) spare(batch *rollout.Batch, index, attempt int) rollout.Prompt {
	return p.deps.Spare(((batch.Step-1)*p.cfg.DynamicSampling+attempt-1)*len(batch.Prompts) + index)
}

// seedOf is the seed of a prompt's request: a chain of SplitMix64 over the run's seed,
// the step and the prompt's index in its batch.
func seedOf(run uint64, step, index int) uint64 {
	h := splitmix.At(run, 0)
	h = splitmix.At(h^uint64(step), 0)
	return splitmix.At(h^uint64(index), 0)
}
