// Package steptime says how long a step takes where trainer and instances share out
// threads in another way, from how long steps took.
package steptime

import "fmt"

// Split is how a run's cores are shared out.
type Split struct {
	TrainerThreads  int  `json:"trainer"`   // threads
	Instances       int  `json:"instances"` // that are embedded
	InstanceThreads int  `json:"each"`      // threads of an instance
	LendsIdle       bool `json:"lends"`     // the trainer has the threads of resting instances too
	Alternating     bool `json:"in_turn"`   // trainer and instances never work at once
}

// SamplingThreads is the number of threads that sample.
func (s Split) SamplingThreads() int { return s.Instances * s.InstanceThreads }

// String is short: they are a cell of a table.
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

// Measured is what a step of a run took, as a mean, in seconds.
type Measured struct {
	Split
	WaitsForBatch bool    // nothing is trained before the batch is whole, as in sync and colocated
	Servers       float64 // that sampled, where no instance is embedded
	Step          float64
	Sampling      float64 // Ti: the instances have requests
	Training      float64 // Tt: forward, backward, optimizer
	FirstGroup    float64 // until there is a group to train; it says nothing where WaitsForBatch
	Overhead      float64 // publishing, and what is neither waiting nor training
	IdleInstances float64 // share of the step in which the instances have no requests
}

// samplers are the threads, or the servers, that sampled.
func (m *Measured) samplers() float64 {
	if m.Instances == 0 {
		return max(1, m.Servers)
	}
	return float64(m.SamplingThreads())
}

// trainers are the threads that trained, those that were lent included: beside
// sampling, for the part of the time in which it rested.
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

// Workload is what a step samples.
type Workload struct {
	Groups float64
	Waves  float64 // its responses over those that the instances sample at once
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
	Ti       Scaling `json:"ti"`
	Tt       Scaling `json:"tt"`
	Overhead float64 `json:"rest"`
	// FirstGroup is the share of Ti before the first group. It stays one with other
	// threads; more servers shorten Ti, but not the time to the first group.
	FirstGroup float64 `json:"first"`
	// Servers are those that FirstGroup is of, where servers sample.
	Servers   float64 `json:"servers,omitempty"`
	LastGroup float64 `json:"last"` // the share of Tt that the last group takes
	// Scale is what the measured steps of periodic-async took over what is computed.
	Scale float64 `json:"scale"`
}

// Fit fits a model to steps of the same work. Where all were gated, the first
// group is taken to come with the first wave.
func Fit(steps []Measured, batch Workload) Model {
	m := Model{LastGroup: 1 / batch.Groups, FirstGroup: max(1/batch.Groups, 1/max(batch.Waves, 1)), Scale: 1}
	var alone, beside []Measured
	for _, s := range steps {
		if s.WaitsForBatch {
			alone = append(alone, s)
		} else {
			beside = append(beside, s)
		}
	}
	if len(alone) == 0 { // else Ti and Tt are what they are where nothing else runs
		alone = beside
	}
	var sampled, trained []point
	for _, s := range alone {
		sampled = append(sampled, point{s.samplers(), s.Sampling})
		trained = append(trained, point{s.trainers(), s.Training})
		m.Overhead += s.Overhead / float64(len(alone))
	}
	m.Ti, m.Tt = fitScaling(sampled), fitScaling(trained)
	if steps[0].Instances == 0 {
		m.Servers = steps[0].samplers()
	}
	if len(beside) == 0 {
		return m
	}
	first, scale := 0.0, 0.0
	for _, s := range beside {
		first += min(1, s.FirstGroup/max(s.Sampling, 1e-9)) / float64(len(beside))
	}
	m.FirstGroup = first
	for _, s := range beside {
		scale += s.Step / m.Step(s.Split, s.samplers()) / float64(len(beside))
	}
	m.Scale = scale
	return m
}

// Step is the time of a step of a share in which the given number of threads, or
// servers, sample.
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

// Scaling is a time with n threads: Serial + Parallel/n. With measurements of one
// number of threads it is all taken to be parallel: training nearly is, sampling is
// not.
type Scaling struct {
	Serial   float64 `json:"serial"`
	Parallel float64 `json:"parallel"`
}

// At is the time with a number of threads.
func (s Scaling) At(threads float64) float64 { return s.Serial + s.Parallel/threads }

// point is a time that was measured with a number of threads.
type point struct{ threads, seconds float64 }

// fitScaling is the line through points over 1/threads, least squares, with neither part
// below 0.
func fitScaling(points []point) Scaling {
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
