package advice

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report"
)

// curve returns steps with a mean reward that goes straight from point to point, with noise.
func curve(noise float64, points ...[2]float64) func(step int) report.Values {
	random := rand.New(rand.NewPCG(1, 2))
	return func(step int) report.Values {
		v := healthy(step)
		at := 1
		for at < len(points)-1 && float64(step) > points[at][0] {
			at++
		}
		a, b := points[at-1], points[at]
		share := min(1, max(0, (float64(step)-a[0])/(b[0]-a[0])))
		v[rewardMean] = a[1] + share*(b[1]-a[1]) + noise*random.NormFloat64()
		return v
	}
}

func TestCollapse(t *testing.T) {
	t.Parallel()
	run := threads(8, 8)
	run.LR, run.EpsilonHigh = 1e-5, 0.2
	for _, test := range []struct {
		name string
		step func(step int) report.Values
		warn bool
	}{
		{"rises and falls", curve(.01, [2]float64{1, .1}, [2]float64{40, .8}, [2]float64{50, .1}, [2]float64{60, .1}),
			true},
		{"falls at once", curve(.01, [2]float64{1, .1}, [2]float64{40, .8}, [2]float64{41, .02}, [2]float64{60, .02}),
			true},
		{"falls by half of the rise", curve(.01, [2]float64{1, .1}, [2]float64{40, .8}, [2]float64{45, .4},
			[2]float64{60, .4}), true},
		{"negative rewards", curve(.01, [2]float64{1, -1}, [2]float64{40, -.2}, [2]float64{45, -1}, [2]float64{60, -1}),
			true},
		{"falls from the start", curve(.01, [2]float64{1, .5}, [2]float64{10, .48}, [2]float64{20, .1},
			[2]float64{60, .1}), true},
		{"rises", curve(.02, [2]float64{1, .1}, [2]float64{60, .9}), false},
		{"rises, then rests", curve(.05, [2]float64{1, .1}, [2]float64{30, .8}, [2]float64{60, .75}), false},
		{"loses a little", curve(.02, [2]float64{1, .1}, [2]float64{30, .8}, [2]float64{60, .6}), false},
		{"loses what it gained, which was little",
			curve(.0001, [2]float64{1, .4}, [2]float64{30, .43}, [2]float64{60, .4}), false},
		{"noise", curve(.1, [2]float64{1, .4}, [2]float64{60, .4}), false},
		{"noise around 0", curve(.01, [2]float64{1, .01}, [2]float64{60, .01}), false},
		{"falls too late to know", curve(.01, [2]float64{1, .1}, [2]float64{58, .8}, [2]float64{60, .1}), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			given := watch(t, run, 60, test.step)
			if !test.warn {
				require.Empty(t, given)
				return
			}
			require.Len(t, given, 1)
			require.Equal(t, "collapse", given[0].Kind)
			require.Contains(t, given[0].Text, "The usual cause is a learning rate that is too high. Continue from "+
				"a checkpoint before the fall with a lower train.lr, such as 3e-06 (now 1e-05). ")
			require.Contains(t, given[0].Text, "lower loss.epsilon_high (now 0.2) and train.clip_grad (now 1), or "+
				"set loss.beta > 0. Look at the reward itself only after that.")
		})
	}
}

// A reward that fell to 0 for all responses is not blamed either.
func TestCollapseComesBeforeTheReward(t *testing.T) {
	t.Parallel()
	risen := curve(.001, [2]float64{1, .1}, [2]float64{40, .8}, [2]float64{41, 0}, [2]float64{60, 0})
	given := watch(t, threads(8, 8), 60, func(step int) report.Values {
		v := risen(step)
		if step > 40 {
			v[rewardMean], v[rewardStd], v[noSignal], v[entropy] = 0, 0, 1, 5
		}
		return v
	})
	require.Len(t, given, 2)
	require.Equal(t, "collapse", given[0].Kind)
	require.Regexp(t, `^the reward fell from 0\.7\d* at step (39|40) to \S+, after it had risen from 0\.1\d*, and `+
		`entropy rose from 0\.3\d* to \S+ nats per token\. `, given[0].Text)
	require.Equal(t, "equal-rewards", given[1].Kind)
	require.Regexp(t, `^in \d+% of groups all advantages are 0, so these groups teach nothing\. The reward was `+
		`0\.7\d* at step (39|40) and is \S+ now: the policy collapsed\. Lower train\.lr`, given[1].Text)
}
