package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/report/steptime"
)

// Recommend is the mode and split expected to be fastest.
type Recommend struct {
	Mode     string         `json:"mode"`
	Settings []string       `json:"settings"` // for easyrl train -set
	Change   []string       `json:"change"`   // those of Settings that the configuration does not have already
	Share    steptime.Split `json:"share"`
	Servers  int            `json:"servers,omitempty"` // recommended number of servers, if servers sample
	Step     float64        `json:"step"`              // seconds, at the speed the machine had during the first run
	Speedup  float64        `json:"speedup"`           // over the first run
	Run      string         `json:"run,omitempty"`     // name of the measured run with this split, if any
	// Partial reports that splits with other numbers of sampling threads are excluded: Ti
	// was measured with one number only, so its scaling is unknown.
	Partial bool           `json:"partial,omitempty"`
	Model   steptime.Model `json:"model"`
}

// name returns a folder name made of the mode, the split and the remaining settings.
func (r *Recommend) name() string {
	name := fmt.Sprintf("%s-%d-%dx%d", r.Mode, r.Share.TrainerThreads, r.Share.Instances, r.Share.InstanceThreads)
	if r.Share.LendsIdle {
		name += "-lent"
	}
	for _, s := range without(r.Settings, sharing()...) {
		name += "-" + s
	}
	return name
}

// Verified holds a run of the recommendation and a repeat of the first run beside it.
type Verified struct {
	Runs    []Result `json:"runs"`
	Speedup float64  `json:"speedup"` // of the second run over the first
	Off     float64  `json:"off"`     // predicted/measured - 1
}

// paced returns the run's times, scaled to the speed the machine had during the first
// run.
func (r *Result) paced(first *Result) steptime.Measured {
	k := r.at(first) / r.Step
	return steptime.Measured{Split: r.Share, WaitsForBatch: r.inTurn(), Servers: r.Servers, Step: k * r.Step, Sampling: k * r.Sampling, Training: k * r.Training,
		FirstGroup: k * r.First, Overhead: k * r.Rest, IdleInstances: r.IdleInstances}
}

// at returns the run's step time, scaled to the machine's speed during the first run.
func (r *Result) at(first *Result) float64 {
	return first.Step / r.Speedup * (r.Tokens / float64(r.Timed)) / (first.Tokens / float64(first.Timed))
}

// better is the factor by which a predicted step must be shorter to be preferred over a
// measured one, or over one that leaves the trainer more threads.
const better = 0.98

// recommend picks the fastest of the measured runs and of the splits that the model
// predicts, among those with no more threads than this machine has cores. It returns nil if
// there is none or if the sweep changes the work itself.
func recommend(c *Comparison, batch steptime.Workload) *Recommend {
	key, _, swept := strings.Cut(c.Sweep, "=")
	if swept && !dividesCores(key) {
		return nil
	}
	first := &c.Runs[0]
	fastest := &c.Runs[0]
	best := &Recommend{Step: math.Inf(1)}
	for i := range c.Runs {
		r := &c.Runs[i]
		if r.at(first) < fastest.at(first) {
			fastest = r
		}
		if r.Share.Threads() <= c.machine && r.at(first) < best.Step {
			best = &Recommend{Mode: r.Mode, Share: r.Share, Step: r.at(first), Run: r.Name, Settings: r.settings()}
		}
	}
	alike := slices.DeleteFunc(slices.Clone(c.Runs), func(r Result) bool { return !slices.Equal(r.kept(), fastest.kept()) })
	var steps []steptime.Measured
	for i := range alike {
		steps = append(steps, alike[i].paced(first))
	}
	m, partial := steptime.Fit(steps, batch), false
	if first.Share.Instances == 0 {
		best = c.servers(m, first)
	} else {
		for _, r := range splits(c.Cores, fastest.Share.Instances) {
			if !known(alike, r.Share) {
				partial = true
				continue
			}
			if slices.ContainsFunc(alike, func(done Result) bool { return done.Share == r.Share && done.Mode == r.Mode }) {
				continue // already measured
			}
			if r.Step = m.Step(r.Share, float64(r.Share.SamplingThreads())); r.Step < best.Step*better {
				r.Settings = append(r.Settings, fastest.kept()...)
				best = &r
			}
		}
	}
	if best.Mode == "" {
		return nil
	}
	best.Speedup, best.Model, best.Partial = first.Step/best.Step, m, partial
	return best
}

// known reports whether the sampling time of a split follows from the runs: they
// measured its number of sampling threads, or two others.
func known(runs []Result, s steptime.Split) bool {
	return slices.ContainsFunc(runs, func(r Result) bool {
		return r.Share.SamplingThreads() == s.SamplingThreads() || r.Share.SamplingThreads() != runs[0].Share.SamplingThreads()
	})
}

// sameWork reports whether a key changes only where work runs, not what it computes.
func sameWork(key string) bool {
	section, name, _ := strings.Cut(strings.TrimSpace(key), ".")
	return dividesCores(key) || section == "parallel" && name != "reduce"
}

// dividesCores reports whether a key changes only how trainer and instances share cores.
func dividesCores(key string) bool {
	section, _, _ := strings.Cut(strings.TrimSpace(key), ".")
	return section == "inference" || section == "device"
}

// splits returns the ways to divide cores, the largest trainer share first.
func splits(cores, instances int) []Recommend {
	n := max(1, min(instances, cores-1))
	all := []steptime.Split{{TrainerThreads: cores, Instances: n, InstanceThreads: max(1, cores/n), Alternating: true}}
	for each := 1; n*each < cores; each++ {
		all = append(all, steptime.Split{TrainerThreads: cores - n*each, Instances: n, InstanceThreads: each, LendsIdle: true})
	}
	var out []Recommend
	for _, s := range all {
		mode := configs.PeriodicAsync
		if s.Alternating {
			mode = configs.Colocated
		}
		out = append(out, Recommend{Mode: mode, Share: s, Settings: settings(mode, s)})
	}
	return out
}

// settings returns the settings for a mode and a split.
func settings(mode string, s steptime.Split) []string {
	trainer := s.TrainerThreads
	if s.LendsIdle {
		trainer = 0 // what the instances leave, plus what they lend
	}
	all := []string{"run.mode=" + mode, fmt.Sprint("device.threads=", trainer)}
	if s.Instances > 0 {
		all = append(all, fmt.Sprint("inference.instances=", s.Instances), fmt.Sprint("inference.threads=", s.InstanceThreads))
	}
	return all
}

// settings returns the settings that reproduce the run, the swept one included.
func (r *Result) settings() []string { return append(settings(r.Mode, r.Share), r.kept()...) }

// kept returns the swept setting, unless the split determines it.
func (r *Result) kept() []string {
	key, _, swept := strings.Cut(r.Value, "=")
	if !swept || slices.Contains(sharing(), key) {
		return nil
	}
	return []string{r.Value}
}

// sharing returns the keys that every recommendation sets.
func sharing() []string {
	return []string{"run.mode", "device.threads", "inference.threads", "inference.instances"}
}

// servers recommends the smallest number of servers with which sampling takes no longer
// than training. Servers on this machine, like those of first, share its cores with the
// trainer; of the splits between them it recommends the fastest.
func (c *Comparison) servers(m steptime.Model, first *Result) *Recommend {
	share := first.Share
	share.Alternating = false
	n := math.Ceil(m.Ti.Parallel/max(m.Tt.At(float64(share.TrainerThreads))-m.Ti.Serial, m.Ti.Parallel/1e6) - 1e-9)
	n = max(1, n)
	best := &Recommend{Mode: configs.PeriodicAsync, Share: share, Servers: int(n), Step: m.Step(share, n), Settings: []string{"run.mode=" + configs.PeriodicAsync}}
	if !c.local || first.ServerCores == 0 || first.Servers == 0 {
		return best
	}
	each := max(1, first.ServerCores/int(first.Servers))
	if share.TrainerThreads+best.Servers*each <= c.machine {
		return best
	}
	best = &Recommend{Step: math.Inf(1)}
	for n := 1; n*each < c.machine; n++ {
		share.TrainerThreads = min(first.Share.TrainerThreads, c.machine-n*each)
		if step := m.Step(share, float64(n)); step < best.Step {
			best = &Recommend{Mode: configs.PeriodicAsync, Share: share, Servers: n, Step: step,
				Settings: []string{"run.mode=" + configs.PeriodicAsync, fmt.Sprint("device.threads=", share.TrainerThreads)}}
		}
	}
	return best
}
