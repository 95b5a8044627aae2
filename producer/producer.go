// Package producer keeps the inference instances busy: it hands out prompts, scores what
// comes back and queues finished groups.
//
// It is the temporary data generator of periodic asynchrony (Lu 2025, section 4.3). In each
// step it runs one task per prompt. A task samples a group of responses, scores them and
// queues the group for the trainer, which meanwhile trains on earlier groups.
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

// ErrBudget reports that more groups of a step failed than its budget allows.
var ErrBudget = errors.New("too many groups failed")

// Config holds the settings shared by all steps of a run.
type Config struct {
	// Gate holds back all groups until the last one of the step has finished. It delivers
	// them in the order of the prompts. Without it, groups are delivered as they finish.
	Gate bool
	// GroupSize is the number of responses per prompt.
	GroupSize int
	Sampling  inference.Sampling // parameters of all requests
	Seed      uint64             // seed of the run, from which the seeds of requests derive
	// InFlight is the number of groups that the fleet samples at once, not counting those
	// being scored. 0 follows the fleet's target.
	InFlight int
	// Scoring is the number of responses of a group that are scored at once.
	Scoring int
	// DynamicSampling is the maximum number of times that a prompt is replaced because its
	// group has no signal, which gives no gradient (Yu et al. 2025, "DAPO"). After that its
	// group is delivered unchanged.
	DynamicSampling int
	// MaxFailed is the number of a step's groups that may fail because of their prompt or
	// their reward; see Budget. MaxLost is the number that may fail because no instance
	// could sample them. The step fails if more do, or if all groups do.
	MaxFailed, MaxLost int
}

// Budget returns the number of a step's groups that may fail because of their prompt or
// reward: a tenth, but at least 1. Individual prompts can cause so few failures. More suggest
// a broken reward, and training without their groups would change what the policy learns.
func Budget(prompts int) int { return max(1, prompts/10) }

// DefaultConfig returns a configuration that delivers groups as they finish. One group may fail
// because of its prompt or reward, and none because no instance could sample it. The caller
// sets GroupSize, Sampling and Seed.
func DefaultConfig() Config {
	return Config{Scoring: 8, MaxFailed: 1}
}

// Validate reports all faults of c in one error.
func (c *Config) Validate() error {
	var faults []error
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
			faults = append(faults, fmt.Errorf("producer: %s is %d, expected at least %d", v.name, v.value, v.low))
		}
	}
	return errors.Join(faults...)
}

// Fleet samples responses. *fleet.Fleet implements it.
type Fleet interface {
	sample.Generator
	// TargetInFlight returns the current number of requests, each for this many responses,
	// that the fleet should have at once.
	TargetInFlight(responses int) int
}

// Counters are a run's totals so far. A step reports its share of them.
type Counters struct {
	Busy          time.Duration // time with work, summed over instances
	Retries       int64         // number of requests that were sent again
	RewardRetries int64         // number of reward calls that were made again
	Instances     int           // number of instances that serve now; the only field that is not a total
}

// Deps are the parts that a producer uses.
type Deps struct {
	Fleet  Fleet
	Reward reward.Func
	// Text decodes a response for the reward and the record, without stop and other special
	// tokens. If nil, the instances' text is used.
	Text func(ids []int32) string
	// Spare returns the prompt at a place, from 0 on, of the endless sequence of replacements.
	// The same place always gives the same prompt. Config.DynamicSampling needs it. It may be
	// called concurrently.
	Spare func(place int) rollout.Prompt
	// Signal reports whether a group with these rewards may have an advantage other than 0.
	// Config.DynamicSampling needs it. It may be called concurrently.
	Signal func(rewards []float64) bool
	// Counters reads the run's totals. If nil, a step's stats omit them.
	Counters func() Counters
	// Warn reports each prompt without a group, at the end of a step. It may be nil.
	Warn func(format string, args ...any)
	// Lanes are the trace's rows for the groups' spans: "prompt" while the fleet samples and
	// "score" while the reward runs. A group's flow has its request's seed as ID and opens
	// with the prompt span. The zero Track records nothing.
	Lanes trace.Track
}

// Producer samples the batches of a run, one step after another.
type Producer struct {
	cfg     Config
	deps    Deps
	sampler sample.Sampler
	retries atomic.Int64 // Counters.RewardRetries at the end of the last step
}

// New returns a producer. It fails if cfg is invalid.
func New(cfg Config, deps Deps) (*Producer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Producer{cfg: cfg, deps: deps,
		sampler: sample.Sampler{Fleet: deps.Fleet, Reward: deps.Reward, Text: deps.Text, AtOnce: cfg.Scoring}}, nil
}

// Start samples and scores a batch and returns the stream of its groups. Sampling never
// waits for the stream's reader. The stream ends early with ctx's error if ctx ends, and
// with an error that wraps ErrBudget if too many groups fail.
func (p *Producer) Start(ctx context.Context, batch rollout.Batch) rollout.Stream {
	s := newStep(p, batch)
	s.work.Go(func() { s.run(ctx) }) // ends with the stream, see step.Wait
	return s
}

// counters returns the run's totals so far.
func (p *Producer) counters() Counters {
	if p.deps.Counters == nil {
		return Counters{}
	}
	return p.deps.Counters()
}

// spare returns the prompt that replaces prompt index of a batch in an attempt, which counts from 1.
// Its place depends only on the step, the index and the attempt, so that neither the order in which
// groups finish nor a resume changes it.
func (p *Producer) spare(batch *rollout.Batch, index, attempt int) rollout.Prompt {
	return p.deps.Spare(((batch.Number-1)*p.cfg.DynamicSampling+attempt-1)*len(batch.Prompts) + index)
}

// seedOf returns the seed of a prompt's request: a chain of SplitMix64 over the run's seed,
// the step and the prompt's index in its batch.
func seedOf(run uint64, step, index int) uint64 {
	h := splitmix.At(run, 0)
	h = splitmix.At(h^uint64(step), 0)
	return splitmix.At(h^uint64(index), 0)
}
