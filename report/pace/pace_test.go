package pace

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFit(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		points           []point
		serial, parallel float64
	}{
		{[]point{{2, 3}}, 0, 6},
		{[]point{{2, 3}, {2, 5}}, 0, 8},
		{[]point{{1, 5}, {4, 2}}, 1, 4},
		{[]point{{1, 2}, {2, 3}}, 2.5, 0},      // slower with more threads
		{[]point{{1, 4}, {2, 1}}, 0, 18.0 / 5}, // better than twice as fast with twice as many
	} {
		s := fit(row.points)
		require.InDelta(t, row.serial, s.Serial, 1e-9, row)
		require.InDelta(t, row.parallel, s.Parallel, 1e-9, row)
	}
}

func TestStep(t *testing.T) {
	t.Parallel()
	m := Model{Ti: Scaling{Parallel: 8}, Tt: Scaling{Parallel: 16}, Rest: 0.5, First: 0.25, Last: 0.1, Scale: 1}
	for name, row := range map[string]struct {
		share Share
		want  float64
	}{
		"in turn": {Share{Trainer: 8, Instances: 1, Each: 8, InTurn: true}, 0.5 + 1 + 2},
		// Ti = 2, of which 1.5 beside 1.5/4 of the training; the rest with all cores.
		"lent":     {Share{Trainer: 4, Instances: 1, Each: 4, Lends: true}, 0.5 + 2 + (1-1.5/4)*2},
		"not lent": {Share{Trainer: 4, Instances: 2, Each: 2}, 0.5 + 2 + (1-1.5/4)*4},
		// Sampling is the longer: only the last group is left.
		"hidden": {Share{Trainer: 7, Instances: 1, Each: 1, Lends: true}, 0.5 + 8 + 0.1*2},
	} {
		require.InDelta(t, row.want, m.Step(row.share, float64(row.share.Sampling())), 1e-9, name)
	}
	m.Scale = 2
	require.InDelta(t, 2*(0.5+2+(1-1.5/4)*2), m.Step(Share{Trainer: 4, Instances: 1, Each: 4, Lends: true}, 4), 1e-9)
}

// A model of what was measured gives it back.
func TestModelGivesBackWhatWasMeasured(t *testing.T) {
	t.Parallel()
	split := Share{Trainer: 1, Instances: 1, Each: 1, Lends: true}
	runs := []Measured{
		{Gated: true, Share: split, Step: 3.1, Sampling: 1, Training: 2, Rest: 0.1},
		{Share: split, Step: 2.9, Sampling: 1.2, Training: 2.5, First: 0.12, Rest: 0.1},
		{Gated: true, Share: Share{Trainer: 2, Instances: 1, Each: 2, InTurn: true}, Step: 2.9, Sampling: 0.8, Training: 2, Rest: 0.1},
	}
	m := New(runs, Batch{Groups: 32, Waves: 8})
	require.InDelta(t, 2.9, m.Step(split, 1), 1e-9)
	require.InDelta(t, 2.9, m.Step(runs[2].Share, 2), 1e-9)
	require.InDelta(t, 0.6, m.Ti.Serial, 1e-9)
	require.InDelta(t, 0.4, m.Ti.Parallel, 1e-9)
	require.InDelta(t, 0.1, m.First, 1e-9)
	require.False(t, math.IsNaN(New(runs[1:2], Batch{Groups: 32, Waves: 8}).Scale), "of one mode alone")
}
