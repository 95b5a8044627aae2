package compare

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
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
		require.InDelta(t, row.want, m.step(row.share, float64(row.share.sampling())), 1e-9, name)
	}
	m.Scale = 2
	require.InDelta(t, 2*(0.5+2+(1-1.5/4)*2), m.step(Share{Trainer: 4, Instances: 1, Each: 4, Lends: true}, 4), 1e-9)
}

// A model of what was measured gives it back.
func TestModelGivesBackWhatWasMeasured(t *testing.T) {
	t.Parallel()
	split := Share{Trainer: 1, Instances: 1, Each: 1, Lends: true}
	runs := []Result{
		{Mode: configs.Sync, Share: split, Step: 3.1, Sampling: 1, Training: 2, Rest: 0.1},
		{Mode: configs.PeriodicAsync, Share: split, Step: 2.9, Sampling: 1.2, Training: 2.5, First: 0.12, Rest: 0.1},
		{Mode: configs.Colocated, Share: Share{Trainer: 2, Instances: 1, Each: 2, InTurn: true}, Step: 2.9, Sampling: 0.8, Training: 2, Rest: 0.1},
	}
	m := newModel(runs, 32)
	require.InDelta(t, 2.9, m.step(split, 1), 1e-9)
	require.InDelta(t, 2.9, m.step(runs[2].Share, 2), 1e-9)
	require.InDelta(t, 0.6, m.Ti.Serial, 1e-9)
	require.InDelta(t, 0.4, m.Ti.Parallel, 1e-9)
	require.InDelta(t, 0.1, m.First, 1e-9)
	require.False(t, math.IsNaN(newModel(runs[1:2], 32).Scale), "of one mode alone")
}

// Servers are as many as sample no longer than is trained.
func TestServers(t *testing.T) {
	t.Parallel()
	first := Result{Mode: configs.Sync, Share: Share{Trainer: 4}, Step: 12, Sampling: 8, Training: 4, Servers: 2, Cores: 4}
	r := servers(newModel([]Result{first}, 10), first)
	require.Equal(t, 4, r.Servers)
	require.InDelta(t, 4+0.1*4, r.Step, 1e-9) // Ti and the last group; the first comes after a tenth
}

func TestSplits(t *testing.T) {
	t.Parallel()
	all := splits(4, 2)
	require.Len(t, all, 2)
	require.Equal(t, []string{"run.mode=colocated", "device.threads=4", "inference.instances=2", "inference.threads=2"}, all[0].Settings)
	require.Equal(t, []string{"run.mode=periodic-async", "device.threads=0", "inference.instances=2", "inference.threads=1"}, all[1].Settings)
	require.Len(t, splits(2, 3), 2, "no more instances than cores are left")
	require.Len(t, splits(1, 1), 1, "one core takes turns")
}
