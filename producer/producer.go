// Package producer keeps the inference instances busy: it hands out prompts,
// scores what comes back and queues finished groups.
//
// It is the temporary data generator of periodic asynchrony (Lu 2025, section
// 4.3): for each period it runs one task a prompt, which samples a group of
// responses, scores them and queues them for the trainer, while the trainer
// works on the groups that came before.
package producer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/internal/splitmix"
	"github.com/easyrl/easyrl/report/trace"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
)

// The orders in which groups are delivered.
const (
	Arrival = "arrival" // as they finish
	Prompt  = "prompt"  // as their prompts stand in the period
)

// ErrBudget is a period of which more groups failed than may.
var ErrBudget = errors.New("too many groups failed")

// Config is what stays the same in all periods.
type Config struct {
	// Order is Arrival or Prompt.
	Order string
	// Gate holds all groups back until the period's last one is in.
	Gate bool
	// InFlight is the number of groups that are with the fleet at once, those
	// being scored apart; 0 follows the fleet.
	InFlight int
	// Scoring is the number of responses of a group that are scored at once.
	Scoring int
	// Refill is how often a prompt whose responses all have the same reward,
	// from which nothing can be learned, is replaced by another (Yu et al. 2025,
	// "DAPO", dynamic sampling); after that its group is delivered as it is.
	// What was replaced is in Summary.Replaced.
	Refill int
	// MaxFailed is the number of a period's groups that may fail because of
	// their prompt or their reward, as Budget says, and MaxLost the number that
	// may because no instance could sample them. Beyond that the period fails.
	MaxFailed, MaxLost int
	// Lanes are the rows of the groups' spans: "prompt" while the fleet samples and
	// "score" while the reward is asked. A group's flow has its request's seed as
	// its name, and opens with its prompt. The zero Track records nothing.
	Lanes trace.Track
}

// Budget is how many of a period's groups may fail because of their prompt or
// reward: a tenth, and 1 of a small period. So many are a matter of single
// prompts; more are the fault of who scores, and would change what is learned.
func Budget(prompts int) int { return max(1, prompts/10) }

// DefaultConfig delivers groups as they arrive and lets none be lost.
func DefaultConfig() Config {
	return Config{Order: Arrival, Scoring: 8, MaxFailed: 1}
}

// Validate reports all faults of c.
func (c *Config) Validate() error {
	var faults []error
	if c.Order != Arrival && c.Order != Prompt {
		faults = append(faults, fmt.Errorf("producer: order %q, expected %q or %q", c.Order, Arrival, Prompt))
	}
	for _, v := range []struct {
		name       string
		value, low int
	}{
		{"in flight", c.InFlight, 0},
		{"scoring", c.Scoring, 1},
		{"refill", c.Refill, 0},
		{"max failed", c.MaxFailed, 0},
		{"max lost", c.MaxLost, 0},
	} {
		if v.value < v.low {
			faults = append(faults, fmt.Errorf("producer: %s %d, expected at least %d", v.name, v.value, v.low))
		}
	}
	return errors.Join(faults...)
}

// Fleet samples. *fleet.Fleet is one.
type Fleet interface {
	// Generate returns the completions and the instance that sampled them. It
	// tries other instances itself: an error is final.
	Generate(ctx context.Context, req inference.Request) ([]inference.Completion, string, error)
	// Room is the number of requests of so many responses that it should have at
	// once, as things are now.
	Room(responses int) int
}

// Producer runs periods. It holds no state between them.
type Producer struct {
	cfg    Config
	fleet  Fleet
	reward reward.Func
	decode func(ids []int32) string
}

// New returns a producer. decode is the text of a response for the reward and
// the record, without stop and other special tokens; where it is nil the
// instances' text is taken.
func New(cfg Config, fleet Fleet, fn reward.Func, decode func(ids []int32) string) (*Producer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Producer{cfg: cfg, fleet: fleet, reward: fn, decode: decode}, nil
}

// Period is one batch of prompts for one version of the weights.
type Period struct {
	Step      int // from 1
	Version   int64
	Prompts   []rollout.Prompt // with IDs
	GroupSize int
	Sampling  inference.Sampling
	Seed      uint64 // of the run
	// Another is the prompt that replaces prompt index, attempt counting from 1.
	// It is needed with Config.Refill and must depend on nothing else, so that
	// neither arrival nor a resume matters.
	Another func(index, attempt int) rollout.Prompt
}

func (p *Period) validate() error {
	var faults []error
	if p.Version < 1 {
		faults = append(faults, fmt.Errorf("version %d, expected 1 or more", p.Version))
	}
	if len(p.Prompts) == 0 {
		faults = append(faults, errors.New("no prompts"))
	}
	if p.GroupSize < 1 {
		faults = append(faults, fmt.Errorf("group size %d, expected at least 1", p.GroupSize))
	}
	return errors.Join(faults...)
}

// Failed is a prompt that gave no group.
type Failed struct {
	Index  int // in the period
	Prompt rollout.Prompt
	Lost   bool // for want of an instance, not for a fault of the prompt or its reward
	Err    error
}

// Summary is the account of a period. Each prompt is either in Groups or in
// Failed, unless the period failed.
type Summary struct {
	Groups         int             // delivered
	Replaced       []rollout.Group // of prompts that were refilled, scored; those of an index in turn
	Failed         []Failed        // in the prompts' order
	PromptTokens   int64           // of the groups that finished, each prompt once
	ResponseTokens int64           // of the groups that finished
	FirstGroup     time.Duration   // from the start to the first delivery
	Sampled        time.Duration   // from the start to the last group's score
	Generating     time.Duration   // tasks' time in the fleet, waiting included, summed
	Scoring        time.Duration   // responses' time in the reward, summed
	Blocked        time.Duration   // finished groups waited for the trainer
	ByInstance     map[string]int
}

// Run samples and scores a period and delivers each group once to out, which it
// closes before it returns. Sampling never waits for who reads out. It ends
// early, with ctx's error, when ctx does, and with an error that wraps ErrBudget
// when too many groups fail; all it started has ended when it returns.
func (p *Producer) Run(ctx context.Context, period Period, out chan<- rollout.Group) (Summary, error) {
	defer close(out)
	if err := period.validate(); err != nil {
		return Summary{}, fmt.Errorf("produce step %d: %w", period.Step, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &run{
		Producer: p, period: &period, cancel: cancel, start: time.Now(),
		results: make(chan result, len(period.Prompts)), freed: make(chan struct{}, 1),
		sum: Summary{ByInstance: map[string]int{}},
	}
	var wg conc.WaitGroup
	wg.Go(func() { r.dispatch(ctx) })
	err := r.deliver(ctx, out)
	cancel(nil)
	wg.Wait()
	slices.SortFunc(r.sum.Failed, func(a, b Failed) int { return a.Index - b.Index })
	if err != nil {
		return r.sum, fmt.Errorf("produce step %d: %w", period.Step, err)
	}
	return r.sum, nil
}

// Seed is that of a prompt's request: a chain of SplitMix64 over the run's seed,
// the step and the prompt's index in its period.
func Seed(run uint64, step, index int) uint64 {
	h := splitmix.At(run, 0)
	h = splitmix.At(h^uint64(step), 0)
	return splitmix.At(h^uint64(index), 0)
}
