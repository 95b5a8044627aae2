// Package advice turns a run's metrics into one-time warnings. A warning says what was seen, why it
// matters and what helps.
//
// The package reads only metrics and the Run that describes the configuration. It changes nothing.
package advice

import (
	"slices"
	"strings"

	"github.com/easyrl/easyrl/report"
)

// Run describes the parts of a run's configuration that rules need in addition to metrics.
type Run struct {
	// Mode is "sync", "colocated" or "periodic-async".
	Mode string
	// Servers says that servers sample. Otherwise instances in the trainer's process
	// sample, on cores of their own.
	Servers bool
	// Training is the number of the trainer's threads, Sampling that of all instances in its process.
	// Lends says that the trainer borrows the threads of idle instances.
	Training, Sampling int
	Lends              bool
	// Groups is the number of groups in a step. Waves is a step's responses divided by
	// the number that the instances sample at once.
	Groups, Waves float64
	// Band is the largest expected mismatch/kl.
	Band float64
	// MaxTokens is the response length limit. DynamicSampling says whether groups without
	// a signal are replaced. Clip is the bound on the gradient norm.
	MaxTokens       int
	DynamicSampling bool
	Clip            float64
	// LR is the peak learning rate, EpsilonHigh the upper clip range of the policy ratio, and Beta the
	// weight of the divergence from the reference.
	LR, EpsilonHigh, Beta float64
}

// Bands of mismatch/kl, in nats per token.
const (
	// ExactBand applies to instances that compute exactly what the trainer computes, in the same order.
	// Their mismatch is 0 up to the rounding of the estimate.
	ExactBand = 1e-6
	// ServerBand applies to other engines. In bfloat16 their mismatch is 0.001 or less. A mismatch of
	// 0.01 adds up to 10 nats over 1,000 tokens: one side finds the sequence 20,000 times as likely as
	// the other.
	ServerBand = 1e-2
)

// Adviser watches a run. It is not safe for concurrent use.
type Adviser struct {
	run   Run
	seen  history
	given []string // kinds of the warnings given so far
}

// New returns an Adviser for a run that has already given some warnings.
func New(run Run, given []report.Warning) *Adviser {
	a := &Adviser{run: run}
	for _, w := range given {
		a.given = append(a.given, w.Kind)
	}
	return a
}

// rule is a check for one kind of problem. say checks a history after its last step and returns the text
// of a warning, or "" if there is none.
type rule struct {
	kind string
	say  func(h *history, run *Run) string
}

// rules returns all rules in the order in which Step applies them.
func rules() []rule {
	return []rule{
		{"idle-trainer", trainerIdle},
		{"idle-instances", instancesIdle},
		{"collapse", collapsed},
		{"equal-rewards", withoutSignal},
		{"entropy", entropyCollapse},
		{"length-limit", cutResponses},
		{"mismatch", mismatch},
		{"gradient", gradientSpike},
		{"held-out", heldOut},
	}
}

// Remember adds a step from before a resume without checking the rules.
func (a *Adviser) Remember(values report.Values) { a.seen.add(values) }

// Step adds a step and returns the warnings that it triggers for the first time.
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

// point is a metric's value at one step.
type point struct {
	step  int
	value float64
}

// history holds the watched metrics by name, in step order.
type history struct {
	last   int // step
	series map[string][]point
}

// watched reports whether a rule reads the metric of this name.
func watched(name string) bool {
	switch name {
	case stepTime, waitTime, sampleTime, publishTime, groupTime, idleTrainer, idleInstances, fleetSize, rewardMean,
		rewardStd, noSignal, entropy, cutShare, mismatchKL, gradNorm, actorLoss:
		return true
	}
	return strings.HasPrefix(name, "eval/")
}

// Names of the metrics that rules read.
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
	noSignal      = "reward/no_signal_frac"
	entropy       = "actor/entropy"
	cutShare      = "response_length/clip_ratio"
	mismatchKL    = "mismatch/kl"
	gradNorm      = "actor/grad_norm"
	actorLoss     = "actor/loss"
)

// add appends the watched values of a step.
func (h *history) add(values report.Values) {
	if h.series == nil {
		h.series = map[string][]point{}
	}
	h.last = int(values["step"])
	for name, x := range values {
		if watched(name) && (report.Finite(x) || name == mismatchKL) { // a divergence may be infinite
			h.series[name] = append(h.series[name], point{h.last, x})
		}
	}
}

// recent returns the last n values of name, or nil if one of the last n steps lacks
// it.
func (h *history) recent(name string, n int) []point {
	all := h.series[name]
	if len(all) < n || all[len(all)-n].step != h.last-n+1 {
		return nil
	}
	return all[len(all)-n:]
}

// lately returns the mean of the last n values of name, and false if one of the last n steps lacks it.
func (h *history) lately(name string, n int) (float64, bool) {
	some := h.recent(name, n)
	return mean(some), len(some) > 0
}

// meanUpTo returns the mean of the n values of name up to and including step, and false if there are
// fewer.
func (h *history) meanUpTo(name string, step, n int) (float64, bool) {
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

// mean returns the mean of the values, NaN if there are none.
func mean(some []point) float64 {
	sum := 0.0
	for _, p := range some {
		sum += p.value
	}
	return sum / float64(len(some))
}
