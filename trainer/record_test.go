package trainer

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/rollout"
)

// The rollouts of a step have each response's advantage, and the entropies of those with a
// gradient. Their mean is the step's entropy.
func TestRolloutsHaveAdvantagesAndEntropies(t *testing.T) {
	s := newScript(t)
	tr := s.trainer(1, nil)
	require.NoError(t, tr.Run(t.Context()))
	path := filepath.Join(s.dir, "rollouts", "step-000001.jsonl")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	sum, n := 0.0, 0
	for line := range bytes.Lines(text) {
		var g rollout.Group
		require.NoError(t, json.Unmarshal(line, &g))
		want := loss.Advantages(tr.source.(*rollouts).Loss.Advantage, rewardsOf(&g))
		for i, r := range g.Responses {
			require.NotNil(t, r.Advantage)
			require.InDelta(t, want[i], *r.Advantage, 1e-12)
			if *r.Advantage == 0 {
				require.Empty(t, r.Entropies)
				continue
			}
			require.Len(t, r.Entropies, len(r.Spans[0].IDs))
			for _, e := range r.Entropies {
				require.InDelta(t, math.Round(float64(e)*1e4), float64(e)*1e4, 1e-2, "four decimals")
				sum, n = sum+float64(e), n+1
			}
		}
	}
	require.Positive(t, n)
	require.Greater(t, sum/float64(n), 1.0, "a tiny random model is uncertain")
}
