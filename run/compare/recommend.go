package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/report/steptime"
)

// Recommend is the mode and the split of cores expected to be fastest.
type Recommend struct {
	Mode     string         `json:"mode"`
	Settings []string       `json:"settings"` // for easyrl train -set
	Share    steptime.Split `json:"share"`
	Step     float64        `json:"step"`          // seconds, at the speed the machine had during the first run
	Speedup  float64        `json:"speedup"`       // over the first run
	Run      string         `json:"run,omitempty"` // name of the measured run; empty if Step is an estimate
}

// at returns the run's step time, scaled to the machine's speed during the first run.
func (r *Result) at(first *Result) float64 {
	return first.Step / r.Speedup * (r.Tokens / float64(r.Timed)) / (first.Tokens / float64(first.Timed))
}

// paced returns the run's times, scaled to the speed the machine had during the first run.
func (r *Result) paced(first *Result) steptime.Measured {
	k := r.at(first) / r.Step
	return steptime.Measured{Split: r.Share, WaitsForBatch: r.inTurn(), Servers: r.Servers, Step: k * r.Step,
		Sampling: k * r.Sampling, Training: k * r.Training, FirstGroup: k * r.First, Overhead: k * r.Rest,
		IdleInstances: r.IdleInstances}
}

// better is the factor by which an estimated step must be shorter to be preferred over a measured
// one, or over one that leaves the trainer more threads.
const better = 0.98

// recommend picks the fastest run and, without a sweep, also considers the other splits of the cores,
// whose times report/steptime estimates. It considers only splits with no more threads than this
// machine has cores, and returns nil if there is none or if the sweep changes the work itself.
func (c *comparing) recommend(variants []variant) *Recommend {
	runs := c.found.Runs
	first, best := &runs[0], &Recommend{Step: math.Inf(1)}
	if !c.sameWork() {
		return nil
	}
	for i := range runs {
		r := &runs[i]
		if r.Share.Threads() <= c.o.Cores && r.at(first) < best.Step {
			best = &Recommend{Mode: r.Mode, Share: r.Share, Step: r.at(first), Run: r.Name, Settings: named(variants, r.Name).settings}
		}
	}
	if c.o.Sweep == "" && first.Share.Instances > 0 {
		best = c.estimate(best)
	}
	if best.Mode == "" {
		return nil
	}
	best.Speedup = first.Step / best.Step
	return best
}

// named returns the variant with a name.
func named(variants []variant, name string) *variant {
	return &variants[slices.IndexFunc(variants, func(v variant) bool { return v.name == name })]
}

// estimate returns the fastest of best and of the splits that were not measured.
func (c *comparing) estimate(best *Recommend) *Recommend {
	runs := c.found.Runs
	var steps []steptime.Measured
	for i := range runs {
		steps = append(steps, runs[i].paced(&runs[0]))
	}
	model := steptime.Fit(steps, c.batch)
	for _, s := range splits(c.found.Cores, runs[0].Share.Instances) {
		mode := configs.PeriodicAsync
		if s.Alternating {
			mode = configs.Colocated
		}
		measured := slices.ContainsFunc(runs, func(r Result) bool { return r.Share == s && r.Mode == mode })
		step := model.Step(s, float64(s.SamplingThreads()))
		if !measured && known(runs, s) && step < best.Step*better {
			best = &Recommend{Mode: mode, Share: s, Step: step, Settings: c.settings(mode, s)}
		}
	}
	return best
}

// known reports whether the sampling time of a split follows from the runs: they
// measured its number of sampling threads, or two others.
func known(runs []Result, s steptime.Split) bool {
	return slices.ContainsFunc(runs, func(r Result) bool {
		return r.Share.SamplingThreads() == s.SamplingThreads() || r.Share.SamplingThreads() != runs[0].Share.SamplingThreads()
	})
}

// splits returns the ways to divide cores, the largest trainer share first.
func splits(cores, instances int) []steptime.Split {
	n := max(1, min(instances, cores-1))
	all := []steptime.Split{{TrainerThreads: cores, Instances: n, InstanceThreads: max(1, cores/n), Alternating: true}}
	for each := 1; n*each < cores; each++ {
		all = append(all, steptime.Split{TrainerThreads: cores - n*each, Instances: n, InstanceThreads: each, LendsIdle: true})
	}
	return all
}

// settings returns the settings for a mode and a split.
func (c *comparing) settings(mode string, s steptime.Split) []string {
	trainer := s.TrainerThreads
	if s.LendsIdle {
		trainer = 0 // what the instances leave, plus what they lend
	}
	all := []string{"run.mode=" + mode, fmt.Sprint("device.threads=", trainer),
		fmt.Sprint("inference.instances=", s.Instances), fmt.Sprint("inference.threads=", s.InstanceThreads)}
	if c.swaps && mode != configs.Colocated {
		all = append(all, "train.swap=false")
	}
	return all
}

// sameWork reports whether the swept key changes only where work runs, not what it computes.
func (c *comparing) sameWork() bool {
	section, name, swept := strings.Cut(c.sweptKey(), ".")
	return !swept || section == "inference" || section == "device" || section == "parallel" && name != "reduce"
}

// advice names the recommended mode and split and says whether its gain was measured, or that the
// configuration should stay.
func (c *comparing) advice() string {
	r, runs := c.found.Recommend, c.found.Runs
	switch {
	case !c.sameWork():
		return fmt.Sprintf("No recommendation: %s changes the work itself, so the times of the runs are not comparable.", c.sweptKey())
	case r == nil:
		return fmt.Sprintf("No recommendation: every run computes with more threads than the %d cores of this machine. "+
			"Compare with fewer instances or threads.", c.o.Cores)
	case r.Run != "" && r.Run == c.found.Current:
		return fmt.Sprintf("Keep the configuration: it already has %s, %s, the fastest of the measured and estimated splits.", r.Mode, r.Share)
	}
	for i := range runs {
		if own := &runs[i]; own.Name == c.found.Current && r.Speedup < own.Speedup*(1+own.uncertainty()) {
			return fmt.Sprintf("Keep the configuration: no measured or estimated split is faster than %s by more than the measurement noise.", own.Name)
		}
	}
	text := fmt.Sprintf("Recommended: %s, %s: -set %s.", r.Mode, r.Share, strings.Join(r.Settings, " -set "))
	switch {
	case r.Run == "":
		text += fmt.Sprintf(" Estimated from Ti and Tt, not measured: %s per step, %s× as fast as %s.", seconds(r.Step), times(r.Speedup), runs[0].Name)
	case r.Run != runs[0].Name:
		text += fmt.Sprintf(" The measured run %s is %s× as fast as %s.", r.Run, times(r.Speedup), runs[0].Name)
	}
	return text
}
