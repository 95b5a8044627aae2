package steptime

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFitScaling(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		points           []point
		serial, parallel float64
	}{
		{[]point{{2, 3}}, 0, 6},
		{[]point{{2, 3}, {2, 5}}, 0, 8},
		{[]point{{1, 5}, {4, 2}}, 1, 4},
		{[]point{{1, 2}, {2, 3}}, 2.5, 0},      // slower with more threads
		{[]point{{1, 4}, {2, 1}}, 0, 18.0 / 5}, // superlinear
	} {
		s := fitScaling(row.points)
		require.InDelta(t, row.serial, s.Serial, 1e-9, row)
		require.InDelta(t, row.parallel, s.Parallel, 1e-9, row)
	}
}

func TestStep(t *testing.T) {
	t.Parallel()
	m := Model{Ti: Scaling{Parallel: 8}, Tt: Scaling{Parallel: 16}, Overhead: 0.5, FirstGroup: 0.25,
		LastGroup: 0.1, Scale: 1}
	for name, row := range map[string]struct {
		share Split
		want  float64
	}{
		"in turn": {Split{TrainerThreads: 8, Instances: 1, InstanceThreads: 8, Alternating: true}, 0.5 + 1 + 2},
		// Ti = 2, of which 1.5 overlaps with 1.5/4 of the training. The rest uses all cores.
		"lent": {Split{TrainerThreads: 4, Instances: 1, InstanceThreads: 4, LendsIdle: true},
			0.5 + 2 + (1-1.5/4)*2},
		"not lent": {Split{TrainerThreads: 4, Instances: 2, InstanceThreads: 2}, 0.5 + 2 + (1-1.5/4)*4},
		// Sampling takes longer: only the last group is left.
		"hidden": {Split{TrainerThreads: 7, Instances: 1, InstanceThreads: 1, LendsIdle: true}, 0.5 + 8 + 0.1*2},
	} {
		require.InDelta(t, row.want, m.Step(row.share, float64(row.share.SamplingThreads())), 1e-9, name)
	}
	m.Scale = 2
	require.InDelta(t, 2*(0.5+2+(1-1.5/4)*2),
		m.Step(Split{TrainerThreads: 4, Instances: 1, InstanceThreads: 4, LendsIdle: true}, 4), 1e-9)
}

// A model reproduces the steps that it was fitted to.
func TestFitReproducesMeasurements(t *testing.T) {
	t.Parallel()
	split := Split{TrainerThreads: 1, Instances: 1, InstanceThreads: 1, LendsIdle: true}
	runs := []Measured{
		{WaitsForBatch: true, Split: split, Step: 3.1, Sampling: 1, Training: 2, Overhead: 0.1},
		{Split: split, Step: 2.9, Sampling: 1.2, Training: 2.5, FirstGroup: 0.12, Overhead: 0.1},
		{WaitsForBatch: true, Split: Split{TrainerThreads: 2, Instances: 1, InstanceThreads: 2, Alternating: true},
			Step: 2.9, Sampling: 0.8, Training: 2, Overhead: 0.1},
	}
	m := Fit(runs, Workload{Groups: 32, Waves: 8})
	require.InDelta(t, 2.9, m.Step(split, 1), 1e-9)
	require.InDelta(t, 2.9, m.Step(runs[2].Split, 2), 1e-9)
	require.InDelta(t, 0.6, m.Ti.Serial, 1e-9)
	require.InDelta(t, 0.4, m.Ti.Parallel, 1e-9)
	require.InDelta(t, 0.1, m.FirstGroup, 1e-9)
	require.False(t, math.IsNaN(Fit(runs[1:2], Workload{Groups: 32, Waves: 8}).Scale), "of one mode alone")
}

// machine is a machine with known times: sampling takes serial seconds and parallel
// thread-seconds, training takes training thread-seconds, in equal groups.
type machine struct {
	groups                     int
	serial, parallel, training float64
	first                      float64 // share of Ti until the first group
}

// run simulates a step group by group.
func (m machine) run(s Split, gated bool) Measured {
	out := Measured{Split: s, WaitsForBatch: gated, Overhead: 0.05,
		Sampling: m.serial + m.parallel/float64(s.SamplingThreads()), FirstGroup: m.first}
	out.FirstGroup *= out.Sampling
	now := out.Overhead
	for i := range m.groups {
		there := out.FirstGroup + (out.Sampling-out.FirstGroup)*float64(i)/float64(m.groups-1)
		if gated {
			there = out.Sampling
		}
		now = max(now, out.Overhead+there)
		began := now
		left := m.training / float64(m.groups) // thread-seconds
		beside := min(left/float64(s.TrainerThreads), max(0, out.Overhead+out.Sampling-now))
		now, left = now+beside, left-beside*float64(s.TrainerThreads)
		after := float64(s.TrainerThreads)
		if s.LendsIdle {
			after += float64(s.SamplingThreads())
		}
		now += left / after
		out.Training += now - began
	}
	out.Step = now
	out.IdleInstances = 1 - out.Sampling/out.Step
	return out
}

// A model fitted to one split and to alternating on all cores predicts the times of
// all other splits.
func TestPredictions(t *testing.T) {
	t.Parallel()
	const cores = 8
	for name, m := range map[string]machine{
		"training is longer":        {32, 0.1, 4, 16, 0.1},
		"sampling is longer":        {32, 0.1, 16, 4, 0.1},
		"as long as each other":     {32, 0, 8, 8, 0.1},
		"sampling is mostly serial": {32, 2, 4, 16, 0.1},
		"late first group":          {32, 0.1, 8, 16, 0.5},
		"few groups":                {6, 0.1, 8, 8, 0.2},
	} {
		half := Split{TrainerThreads: 4, Instances: 1, InstanceThreads: 4, LendsIdle: true}
		turns := Split{TrainerThreads: cores, Instances: 1, InstanceThreads: cores, Alternating: true}
		model := Fit([]Measured{m.run(half, true), m.run(half, false), m.run(turns, true)},
			Workload{Groups: float64(m.groups), Waves: 1 / m.first})
		blind := Fit([]Measured{m.run(half, true), m.run(turns, true)},
			Workload{Groups: float64(m.groups), Waves: 1 / m.first})
		for each := 1; each < cores; each++ {
			for _, lends := range []bool{true, false} {
				s := Split{TrainerThreads: cores - each, Instances: 1, InstanceThreads: each, LendsIdle: lends}
				took := m.run(s, false).Step
				require.InEpsilon(t, took, model.Step(s, float64(each)), 0.03, "%s: %s, lends: %v", name, s, lends)
				require.InEpsilon(t, took, blind.Step(s, float64(each)), 0.03,
					"%s: %s, lends: %v, periodic-async not measured", name, s, lends)
			}
		}
		require.InEpsilon(t, m.run(turns, true).Step, model.Step(turns, cores), 1e-6, name)
	}
}
