package trainer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/rollout"
)

// Components have means of their own over the responses that have them, and take
// no other metric's name.
func TestComponents(t *testing.T) {
	t.Parallel()
	group := func(parts ...map[string]float64) *rollout.Group {
		g := &rollout.Group{}
		for _, p := range parts {
			g.Responses = append(g.Responses, rollout.Response{Reward: 1, Parts: p})
		}
		return g
	}
	var all, mini tally
	mini.group(group(map[string]float64{"right": 1, "mean": 9}, map[string]float64{"right": 0}), []float64{1, 1}, nil)
	all.add(&mini)
	mini = tally{}
	mini.group(group(map[string]float64{"form/think": 0.5}, nil), []float64{1, 1}, nil)
	all.add(&mini)
	v := report.Values{"reward/retries": 3}
	all.means(v, false)
	for name, want := range map[string]float64{
		"reward/mean": 1, "reward/retries": 3, "reward/right/mean": 0.5, "reward/mean/mean": 9, "reward/form/think/mean": 0.5,
	} {
		require.Equal(t, want, v[name], name)
	}
}
