package producer

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/tracetest"
	"github.com/easyrl/easyrl/report/trace"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
)

// Each sampled prompt has a flow to its score, even if another prompt replaces it.
func TestSpans(t *testing.T) {
	path := filepath.Join(t.TempDir(), trace.File)
	synctest.Test(t, func(t *testing.T) {
		spans := trace.New(100)
		equal := func(ctx context.Context, _ reward.Input) (reward.Score, error) {
			return reward.Score{Value: 1}, sleep(ctx, time.Second)
		}
		p := newProducer(t, &fakeFleet{room: 8}, equal, func(c *Config) { c.DynamicSampling = 1 })
		p.deps.Lanes = spans.Lanes("producer")
		p.deps.Spare = func(place int) rollout.Prompt {
			return rollout.Prompt{ID: fmt.Sprint("spare", place-2*2), IDs: []int32{3}} // of step 3
		}
		_, groups, _, err := produce(t.Context(), t, p, batch(2, 5))
		require.NoError(t, err)
		require.Equal(t, []uint64{seedOf(42, 3, 2), seedOf(42, 3, 3)}, []uint64{groups[0].Seed, groups[1].Seed},
			"of the second tries")
		require.Zero(t, time.Since(groups[1].Scored))
		require.NoError(t, spans.WriteFile(path))
	})
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	tr, err := tracetest.Read(data)
	require.NoError(t, err)
	require.Equal(t, []string{"producer", "producer (2)"}, tr.Rows)
	got := map[string][]float64{} // seconds
	for _, flow := range tr.Flows {
		require.Len(t, flow, 2)
		prompt, score := flow[0], flow[1]
		require.Equal(t, []string{"prompt", "score"}, []string{prompt.Name, score.Name})
		require.Equal(t, prompt.Row, score.Row)
		got[prompt.Args["prompt"].(string)] = []float64{prompt.Begin / 1e6, score.Begin / 1e6, score.End / 1e6}
	}
	require.Equal(t, map[string][]float64{"p0": {0, 2, 3}, "spare0": {3, 6, 7}, "p1": {0, 5, 6}, "spare1": {6, 9, 10}},
		got)
}
