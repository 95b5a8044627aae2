package trainer

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/rollout"
)

// Each component is averaged over the responses that have it and takes no other metric's
// name.
func TestComponents(t *testing.T) {
	t.Parallel()
	group := func(parts ...map[string]float64) *rollout.Group {
		g := &rollout.Group{}
		for _, p := range parts {
			g.Responses = append(g.Responses, rollout.Response{Reward: 1, Parts: p})
		}
		return g
	}
	r := &rollouts{}
	var all, mini metrics
	r.measureGroup(&mini, group(map[string]float64{"right": 1, "mean": 9}, map[string]float64{"right": 0}),
		[]float64{1, 1})
	all.merge(&mini)
	mini = metrics{}
	r.measureGroup(&mini, group(map[string]float64{"form/think": 0.5}, nil), []float64{1, 1})
	all.merge(&mini)
	v := report.Values{"reward/retries": 3}
	all.into(v)
	for name, want := range map[string]float64{
		"reward/mean": 1, "reward/retries": 3, "reward/right/mean": 0.5, "reward/mean/mean": 9,
		"reward/form/think/mean": 0.5,
	} {
		require.Equal(t, want, v[name], name)
	}
}

// Each data source has the mean of its own responses, under a name that no component can
// have.
func TestRewardsBySource(t *testing.T) {
	t.Parallel()
	r := &rollouts{Rollouts: Rollouts{BySource: true}}
	var all metrics
	for _, g := range []struct {
		source  string
		rewards []float64
	}{{"a", []float64{1, 0}}, {"b/c", []float64{0.5, 0.25}}, {"a", []float64{1, 1}}, {"", []float64{2, 3}}} {
		var mini metrics
		group := &rollout.Group{Prompt: rollout.Prompt{Source: g.source}}
		for _, reward := range g.rewards {
			group.Responses = append(group.Responses,
				rollout.Response{Reward: reward, Parts: map[string]float64{"source/a": 9, "by_source/a": 9}})
		}
		r.measureGroup(&mini, group, g.rewards)
		all.merge(&mini)
	}
	v := report.Values{}
	all.into(v)
	require.Equal(t, 9.0, v["reward/source/a/mean"])
	maps.DeleteFunc(v, func(name string, _ float64) bool { return !strings.HasPrefix(name, "reward_by_source/") })
	require.Equal(t, report.Values{"reward_by_source/a/mean": 0.75, "reward_by_source/b/c/mean": 0.375,
		"reward_by_source//mean": 2.5}, v)
}
