package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/configs"
)

// Recommend is the mode and the split that should be fastest.
type Recommend struct {
	Mode     string   `json:"mode"`
	Settings []string `json:"settings"` // of easyrl train -set
	Share    Share    `json:"share"`
	Servers  int      `json:"servers,omitempty"` // where servers sample: how many should
	Step     float64  `json:"step"`              // seconds, as the model has it
	Speedup  float64  `json:"speedup"`           // over the first run
	Run      string   `json:"run,omitempty"`     // the measured run that is the same
	// Partial says that splits with other numbers of threads that sample were left
	// out: Ti was measured with one, and how it changes is not known.
	Partial bool  `json:"partial,omitempty"`
	Model   Model `json:"model"`
}

// Verified is a run of what is recommended, beside the first run once more.
type Verified struct {
	Runs    []Result `json:"runs"`
	Speedup float64  `json:"speedup"` // of the second over the first
	Off     float64  `json:"off"`     // predicted/measured - 1
}

// Model is how a step's time follows from who has how many threads. With Ti and
// Tt as functions of threads,
//
//	in turn: rest + Ti(sampling) + Tt(training)
//	at once: scale · (rest + Ti(sampling) + left · Tt(after))
//
// where left is the part of the training that does not fit beside the sampling
// once the first group is there: at least the last group, and at least
// 1 - (1-first)·Ti(sampling)/Tt(training). After the sampling the trainer has the
// instances' threads too where they are lent.
type Model struct {
	Ti    Scaling `json:"ti"`
	Tt    Scaling `json:"tt"`
	Rest  float64 `json:"rest"`
	First float64 `json:"first"` // the share of Ti before the first group
	Last  float64 `json:"last"`  // the share of Tt that the last group takes
	// Scale is what the measured steps of periodic-async took over what is computed.
	Scale float64 `json:"scale"`
}

// Scaling is a time with n threads: Serial + Parallel/n. With measurements of one
// number of threads it is all taken to be parallel: training nearly is, sampling is
// not.
type Scaling struct {
	Serial   float64 `json:"serial"`
	Parallel float64 `json:"parallel"`
}

func (s Scaling) at(threads float64) float64 { return s.Serial + s.Parallel/threads }

// point is a time that was measured with a number of threads.
type point struct{ threads, seconds float64 }

// fit is the line through points over 1/threads, least squares, with neither part
// below 0.
func fit(points []point) Scaling {
	var n, x, y, xx, xy float64
	for _, p := range points {
		u := 1 / p.threads
		n, x, y, xx, xy = n+1, x+u, y+p.seconds, xx+u*u, xy+u*p.seconds
	}
	determinant := n*xx - x*x
	if determinant < 1e-9*n*xx { // one number of threads
		return Scaling{Parallel: xy / xx}
	}
	s := Scaling{Serial: (y*xx - x*xy) / determinant, Parallel: (n*xy - x*y) / determinant}
	switch {
	case s.Parallel < 0:
		return Scaling{Serial: y / n}
	case s.Serial < 0:
		return Scaling{Parallel: xy / xx}
	}
	return s
}

// newModel fits a model to runs of the same work. groups are those of a step.
func newModel(runs []Result, groups int) Model {
	m := Model{Last: 1 / float64(groups), First: 1 / float64(groups), Scale: 1}
	turns := slices.DeleteFunc(slices.Clone(runs), func(r Result) bool { return !r.inTurn() })
	at := slices.DeleteFunc(slices.Clone(runs), func(r Result) bool { return r.inTurn() })
	alone := turns // where nothing else runs, Ti and Tt are what they are
	if len(alone) == 0 {
		alone = at
	}
	var sampled, trained []point
	for _, r := range alone {
		sampled = append(sampled, point{r.samplers(), r.Sampling})
		trained = append(trained, point{r.trainers(), r.Training})
		m.Rest += r.Rest / float64(len(alone))
	}
	m.Ti, m.Tt = fit(sampled), fit(trained)
	if len(at) == 0 {
		return m
	}
	first, scale := 0.0, 0.0
	for _, r := range at {
		first += min(1, r.First/max(r.Sampling, 1e-9)) / float64(len(at))
	}
	m.First = first
	for _, r := range at {
		scale += r.Step / m.step(r.Share, r.samplers()) / float64(len(at))
	}
	m.Scale = scale
	return m
}

// samplers are the threads, or the servers, that sampled.
func (r *Result) samplers() float64 {
	if r.Share.Instances == 0 {
		return max(1, r.Servers)
	}
	return float64(r.Share.sampling())
}

// trainers are the threads that trained, those that were lent included: beside
// sampling, for the part of the time in which it rested.
func (r *Result) trainers() float64 {
	own, lent := float64(r.Share.Trainer), 0.0
	if r.Share.Lends {
		lent = float64(r.Share.sampling())
		if !r.inTurn() {
			lent *= r.IdleInstances
		}
	}
	return own + lent
}

// step is the time of a step of a share in which the given number of threads, or
// servers, sample.
func (m Model) step(s Share, sampling float64) float64 {
	ti, after := m.Ti.at(sampling), float64(s.Trainer)
	if s.Lends {
		after += float64(s.sampling())
	}
	if s.InTurn {
		return m.Rest + ti + m.Tt.at(after)
	}
	left := max(m.Last, 1-(1-m.First)*ti/m.Tt.at(float64(s.Trainer)))
	return m.Scale * (m.Rest + ti + left*m.Tt.at(after))
}

// better is how much shorter a predicted step must be to be preferred to one that
// was measured, or that keeps more threads for the trainer.
const better = 0.98

// recommend takes the fastest of what was measured and what the model says of
// other splits. It is nil where the sweep changes the work itself.
func recommend(c *Comparison, groups int) *Recommend {
	if key, _, swept := strings.Cut(c.Sweep, "="); swept && !sameWork(key) {
		return nil
	}
	m := newModel(c.Runs, groups)
	first := c.Runs[0]
	var best *Recommend
	partial := false
	consider := func(r Recommend) {
		if best == nil || r.Step < best.Step*better {
			best = &r
		}
	}
	fastest := slices.MinFunc(c.Runs, func(a, b Result) int { return int(math.Copysign(1, a.Step-b.Step)) })
	consider(Recommend{Mode: fastest.Mode, Share: fastest.Share, Step: fastest.Step, Run: fastest.Name, Settings: fastest.settings()})
	if first.Share.Instances == 0 {
		best = servers(m, first)
	} else {
		for _, r := range splits(c.Cores, first.Share.Instances) {
			if !known(c.Runs, r.Share) {
				partial = true
				continue
			}
			if slices.ContainsFunc(c.Runs, func(done Result) bool { return done.Share == r.Share && done.Mode == r.Mode }) {
				continue // measured
			}
			r.Step = m.step(r.Share, float64(r.Share.sampling()))
			consider(r)
		}
	}
	best.Speedup, best.Model, best.Partial = first.Step/best.Step, m, partial
	return best
}

// known says that the time in which a share samples can be told from runs: they
// measured its number of threads, or two others.
func known(runs []Result, s Share) bool {
	return slices.ContainsFunc(runs, func(r Result) bool {
		return r.Share.sampling() == s.sampling() || r.Share.sampling() != runs[0].Share.sampling()
	})
}

// sameWork says that a key changes who computes and not what.
func sameWork(key string) bool {
	section, _, _ := strings.Cut(strings.TrimSpace(key), ".")
	return section == "inference" || section == "device"
}

// splits are the ways to share out cores, the trainer's share from the largest on.
func splits(cores, instances int) []Recommend {
	n := max(1, min(instances, cores-1))
	all := []Share{{Trainer: cores, Instances: n, Each: max(1, cores/n), InTurn: true}}
	for each := 1; n*each < cores; each++ {
		all = append(all, Share{Trainer: cores - n*each, Instances: n, Each: each, Lends: true})
	}
	var out []Recommend
	for _, s := range all {
		mode := configs.PeriodicAsync
		if s.InTurn {
			mode = configs.Colocated
		}
		out = append(out, Recommend{Mode: mode, Share: s, Settings: settings(mode, s)})
	}
	return out
}

// settings are those that give a run a mode and a share.
func settings(mode string, s Share) []string {
	trainer := s.Trainer
	if s.Lends {
		trainer = 0 // what the instances leave, and what they lend
	}
	all := []string{"run.mode=" + mode, fmt.Sprint("device.threads=", trainer)}
	if s.Instances > 0 {
		all = append(all, fmt.Sprint("inference.instances=", s.Instances), fmt.Sprint("inference.threads=", s.Each))
	}
	return all
}

// settings are those that repeat the run: what was swept too.
func (r *Result) settings() []string {
	all := settings(r.Mode, r.Share)
	key, _, swept := strings.Cut(r.Value, "=")
	if !swept || slices.ContainsFunc(all, func(s string) bool { return strings.HasPrefix(s, key+"=") }) {
		return all
	}
	return append(all, r.Value)
}

// servers is the smallest number of servers that sample no longer than is trained.
func servers(m Model, first Result) *Recommend {
	share := first.Share
	share.InTurn = false
	n := math.Ceil(m.Ti.Parallel/max(m.Tt.at(float64(share.Trainer))-m.Ti.Serial, m.Ti.Parallel/1e6) - 1e-9)
	n = max(1, n)
	return &Recommend{Mode: configs.PeriodicAsync, Share: share, Servers: int(n), Step: m.step(share, n), Settings: []string{"run.mode=" + configs.PeriodicAsync}}
}
