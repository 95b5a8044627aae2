// Package steptime predicts, from measured steps, how long a step takes if trainer and instances share
// the threads differently.
package steptime

import "fmt"

// Split is how a run divides its threads between trainer and instances.
type Split struct {
	TrainerThreads  int  `json:"trainer"`
	Instances       int  `json:"instances"` // embedded ones
	InstanceThreads int  `json:"each"`      // threads per instance
	LendsIdle       bool `json:"lends"`     // the trainer also uses the threads of idle instances
	Alternating     bool `json:"in_turn"`   // trainer and instances take turns
}

// SamplingThreads returns the number of threads of all instances.
func (s Split) SamplingThreads() int { return s.Instances * s.InstanceThreads }

// Threads returns the largest number of threads that compute at once.
func (s Split) Threads() int {
	if s.Alternating {
		return max(s.TrainerThreads, s.SamplingThreads())
	}
	return s.TrainerThreads + s.SamplingThreads()
}

// String describes s briefly enough for a table cell.
func (s Split) String() string {
	by := "+"
	if s.Alternating {
		by = "or"
	}
	if s.Instances == 0 {
		return fmt.Sprintf("%d threads train, servers sample", s.TrainerThreads)
	}
	return fmt.Sprintf("%d %s %d×%d threads", s.TrainerThreads, by, s.Instances, s.InstanceThreads)
}

// Measured is the mean step of a run. Times are in seconds.
type Measured struct {
	Split
	WaitsForBatch bool    // training starts once the batch is complete, as in sync and colocated
	Servers       float64 // the number of inference servers, if no instance is embedded
	Step          float64
	Sampling      float64 // Ti: time in which the instances have requests
	Training      float64 // Tt: time of forward passes, backward passes and the optimizer
	FirstGroup    float64 // time until the first group is complete; unused if WaitsForBatch
	Overhead      float64 // time in which the trainer neither waits nor trains, such as publishing
	IdleInstances float64 // share of the step, 0 to 1, in which the instances have no requests
}

// samplers returns the number of sampling threads, or of servers.
func (m *Measured) samplers() float64 {
	if m.Instances == 0 {
		return max(1, m.Servers)
	}
	return float64(m.SamplingThreads())
}

// trainers returns the mean number of threads that trained. Threads that instances lend count only for
// the share of time in which they do not sample.
func (m *Measured) trainers() float64 {
	own, lent := float64(m.TrainerThreads), 0.0
	if m.LendsIdle {
		lent = float64(m.SamplingThreads())
		if !m.WaitsForBatch {
			lent *= m.IdleInstances
		}
	}
	return own + lent
}

// Workload is the amount of sampling in a step.
type Workload struct {
	Groups float64
	Waves  float64 // number of responses divided by the number that the instances sample at once
}

// Model predicts the time of a step from the split of threads. With the sampling
// time Ti and the training time Tt as functions of threads,
//
//	alternating: overhead + Ti(sampling) + Tt(after)
//	overlapping: scale · (overhead + Ti(sampling) + left · Tt(after))
//
// where training counts the trainer's own threads, and after adds the threads that idle instances lend.
// left is the part of training that does not overlap with sampling. It is at least the last group, and at
// least 1 - (1-first)·Ti(sampling)/Tt(training), because training cannot start before the first group.
type Model struct {
	Ti       Scaling `json:"ti"`
	Tt       Scaling `json:"tt"`
	Overhead float64 `json:"rest"`
	// FirstGroup is the share of Ti before the first group. It does not depend on the
	// number of threads. More servers shorten Ti but not the time to the first group.
	FirstGroup float64 `json:"first"`
	// Servers is the number of servers with which FirstGroup was measured, or 0.
	Servers   float64 `json:"servers,omitempty"`
	LastGroup float64 `json:"last"` // share of Tt, 0 to 1, that the last group takes
	// Scale is the measured time of periodic-async steps divided by the computed time.
	Scale float64 `json:"scale"`
}

// Fit fits a model to one or more steps with the same workload. If all of them waited for the batch, it
// assumes that the first group comes with the first wave.
func Fit(steps []Measured, batch Workload) Model {
	m := Model{LastGroup: 1 / batch.Groups, FirstGroup: max(1/batch.Groups, 1/max(batch.Waves, 1)), Scale: 1}
	var sequential, overlapping []Measured
	for _, s := range steps {
		if s.WaitsForBatch {
			sequential = append(sequential, s)
		} else {
			overlapping = append(overlapping, s)
		}
	}
	fitted := sequential // preferred, because in these steps sampling and training do not slow each other
	if len(fitted) == 0 {
		fitted = overlapping
	}
	var sampled, trained []point
	for _, s := range fitted {
		sampled = append(sampled, point{s.samplers(), s.Sampling})
		trained = append(trained, point{s.trainers(), s.Training})
		m.Overhead += s.Overhead / float64(len(fitted))
	}
	m.Ti, m.Tt = fitScaling(sampled), fitScaling(trained)
	if steps[0].Instances == 0 {
		m.Servers = steps[0].samplers()
	}
	if len(overlapping) == 0 {
		return m
	}
	first, scale := 0.0, 0.0
	for _, s := range overlapping {
		first += min(1, s.FirstGroup/max(s.Sampling, 1e-9)) / float64(len(overlapping))
	}
	m.FirstGroup = first
	for _, s := range overlapping {
		scale += s.Step / m.Step(s.Split, s.samplers()) / float64(len(overlapping))
	}
	m.Scale = scale
	return m
}

// Step predicts the time of a step with split s in which the given number of threads,
// or of servers, sample.
func (m Model) Step(s Split, sampling float64) float64 {
	ti, after := m.Ti.At(sampling), float64(s.TrainerThreads)
	if s.LendsIdle {
		after += float64(s.SamplingThreads())
	}
	if s.Alternating {
		return m.Overhead + ti + m.Tt.At(after)
	}
	first := m.FirstGroup * ti
	if m.Servers > 0 {
		first = min(ti, m.FirstGroup*m.Ti.At(m.Servers))
	}
	left := max(m.LastGroup, 1-(ti-first)/m.Tt.At(float64(s.TrainerThreads)))
	return m.Scale * (m.Overhead + ti + left*m.Tt.At(after))
}

// Scaling is a time as a function of n threads: Serial + Parallel/n. If all
// measurements have the same number of threads, all time counts as parallel, which is
// nearly true of training but not of sampling.
type Scaling struct {
	Serial   float64 `json:"serial"`
	Parallel float64 `json:"parallel"`
}

// At returns the time with the given number of threads.
func (s Scaling) At(threads float64) float64 { return s.Serial + s.Parallel/threads }

// point is a time measured with a number of threads.
type point struct{ threads, seconds float64 }

// fitScaling fits a Scaling to points by least squares, with neither part below 0.
func fitScaling(points []point) Scaling {
	var n, x, y, xx, xy float64
	for _, p := range points {
		u := 1 / p.threads
		n++
		x += u
		y += p.seconds
		xx += u * u
		xy += u * p.seconds
	}
	determinant := n*xx - x*x
	if determinant < 1e-9*n*xx { // all with the same number of threads
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
