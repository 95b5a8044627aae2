// Package advice says what a good colleague would say of a run's numbers, each
// thing once: what is seen, why it matters, and what helps.
//
// It knows names and numbers and what Run tells of the run, and changes nothing.
package advice

import (
	"slices"
	"strings"

	"github.com/easyrl/easyrl/report"
)

// Run is what the numbers do not tell.
type Run struct {
	// Mode is "sync", "colocated" or "periodic-async".
	Mode string
	// Servers sample; else instances in the trainer's process do, with cores that
	// it has not.
	Servers bool
	// Training and Sampling are the threads of the trainer and of all instances in
	// its process. Lends says that the trainer has those of instances that rest.
	Training, Sampling int
	Lends              bool
	// Groups are those of a step, and Waves its responses over those that instances
	// sample at once.
	Groups, Waves float64
	// Band is the mismatch/kl that is expected at most.
	Band float64
	// MaxTokens is the longest response, Refill whether groups with equal rewards
	// are replaced, Clip the bound of the gradient's norm.
	MaxTokens int
	Refill    bool
	Clip      float64
}

// The bands of mismatch/kl, in nats a token.
const (
	// ExactBand is for instances that compute what the trainer computes, in the
	// same order: 0 but for the rounding of the estimate itself.
	ExactBand = 1e-6
	// ServerBand is for other engines. In bfloat16 they differ by 0.001 or less;
	// 0.01 adds up to 10 nats over a response of 1,000 tokens, a sequence that one
	// side holds for 20,000 times as likely as the other does.
	ServerBand = 1e-2
)

// Adviser watches a run. It is used by one goroutine.
type Adviser struct {
	run   Run
	seen  history
	given []string // kinds
}

// New watches a run of which the given warnings were said before.
func New(run Run, given []report.Warning) *Adviser {
	a := &Adviser{run: run}
	for _, w := range given {
		a.given = append(a.given, w.Kind)
	}
	return a
}

// rule looks at a history after its last step and returns what is to be said, or
// nothing.
type rule struct {
	kind string
	say  func(h *history, run *Run) string
}

func rules() []rule {
	return []rule{
		{"idle-trainer", trainerIdle},
		{"idle-instances", instancesIdle},
		{"equal-rewards", equalRewards},
		{"entropy", entropyCollapse},
		{"length-limit", cutResponses},
		{"mismatch", mismatch},
		{"gradient", gradientSpike},
		{"held-out", heldOut},
	}
}

// Remember takes a step of the time before, of which nothing is said any more.
func (a *Adviser) Remember(values report.Values) { a.seen.add(values) }

// Step takes the values of a step and returns the warnings that they are a
// reason for and that were not given yet.
func (a *Adviser) Step(values report.Values) []report.Warning {
	a.seen.add(values)
	var all []report.Warning
	for _, r := range rules() {
		if slices.Contains(a.given, r.kind) {
			continue
		}
		if text := r.say(&a.seen, &a.run); text != "" {
			a.given = append(a.given, r.kind)
			all = append(all, report.Warning{Step: int(values["step"]), Kind: r.kind, Text: text})
		}
	}
	return all
}

// point is a value of a step.
type point struct {
	step  int
	value float64
}

// history has the values that rules look at, by name, in the order of the steps.
type history struct {
	last   int // step
	series map[string][]point
}

// watched reports whether a rule looks at name.
func watched(name string) bool {
	switch name {
	case stepTime, waitTime, sampleTime, publishTime, groupTime, idleTrainer, idleInstances, fleetSize, rewardMean, rewardStd, zeroStd,
		entropy, cutShare, mismatchKL, gradNorm, actorLoss:
		return true
	}
	return strings.HasPrefix(name, "eval/")
}

// The names that rules look at.
const (
	stepTime      = "timing_s/step"
	waitTime      = "timing_s/wait"
	sampleTime    = "timing_s/sample"
	publishTime   = "timing_s/publish"
	groupTime     = "timing_s/first_group"
	idleTrainer   = "idle/trainer"
	idleInstances = "idle/instances"
	fleetSize     = "fleet/size"
	rewardMean    = "reward/mean"
	rewardStd     = "reward/std"
	zeroStd       = "reward/zero_std_frac"
	entropy       = "actor/entropy"
	cutShare      = "response_length/clip_ratio"
	mismatchKL    = "mismatch/kl"
	gradNorm      = "actor/grad_norm"
	actorLoss     = "actor/loss"
)

func (h *history) add(values report.Values) {
	if h.series == nil {
		h.series = map[string][]point{}
	}
	h.last = int(values["step"])
	for name, x := range values {
		if watched(name) && x-x == 0 {
			h.series[name] = append(h.series[name], point{h.last, x})
		}
	}
}

// recent are the last n values of name. There are none where one of the last n
// steps lacks it.
func (h *history) recent(name string, n int) []point {
	all := h.series[name]
	if len(all) < n || all[len(all)-n].step != h.last-n+1 {
		return nil
	}
	return all[len(all)-n:]
}

// lately is the mean of the last n values of name; false where there are fewer.
func (h *history) lately(name string, n int) (float64, bool) {
	some := h.recent(name, n)
	return mean(some), len(some) > 0
}

// around is the mean of the n values of name up to a step.
func (h *history) around(name string, step, n int) (float64, bool) {
	all := h.series[name]
	end, found := slices.BinarySearchFunc(all, step, func(p point, step int) int { return p.step - step })
	if found {
		end++
	}
	if end < n {
		return 0, false
	}
	return mean(all[end-n : end]), true
}

func mean(some []point) float64 {
	sum := 0.0
	for _, p := range some {
		sum += p.value
	}
	return sum / float64(len(some))
}
