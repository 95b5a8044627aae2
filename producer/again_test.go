package producer

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
)

// drawn answers with a token that depends on the seed alone.
func drawn(_ context.Context, req inference.Request) ([]inference.Completion, error) {
	out := answer(req)
	for i := range out {
		out[i].IDs[0] = int32(req.Seed % 997)
	}
	return out, nil
}

// A repeated request for some prompts of a batch gives the same groups, replaced ones
// included, with and without the gate.
func TestOnlySomePrompts(t *testing.T) {
	t.Parallel()
	for _, gate := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			some := func(_ context.Context, in reward.Input) (reward.Score, error) {
				return reward.Score{Value: float64(len(in.Text) + int(in.Prompt.IDs[0]))}, nil
			}
			p := newProducer(t, &fakeFleet{room: 8, generate: drawn}, some,
				func(c *Config) { c.Gate, c.DynamicSampling = gate, 2 })
			p.deps.Spare = func(place int) rollout.Prompt {
				return rollout.Prompt{ID: fmt.Sprint("spare-", place), IDs: []int32{1}}
			}
			b := batch(1, 2, 3, 4)
			_, all, _, err := produce(t.Context(), t, p, b)
			require.NoError(t, err)
			whole := map[int]rollout.Group{}
			for _, g := range all {
				require.Len(t, g.Before, 2)
				whole[g.Index] = g
			}
			b.Only = []int{3, 1}
			_, again, _, err := produce(t.Context(), t, p, b)
			require.NoError(t, err)
			require.Len(t, again, 2)
			for _, g := range again {
				require.Contains(t, b.Only, g.Index)
				require.Equal(t, whole[g.Index], g)
			}
		})
	}
}

// The failures of some prompts count against the budget of the whole batch.
func TestOnlySomePromptsFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := func(context.Context, reward.Input) (reward.Score, error) {
			return reward.Score{}, errors.New("no verdict")
		}
		p := newProducer(t, &fakeFleet{room: 8}, broken, nil)
		b := batch(1, 1, 1)
		b.Only = []int{2}
		_, groups, sum, err := produce(t.Context(), t, p, b)
		require.NoError(t, err)
		require.Empty(t, groups)
		require.Equal(t, 1, sum.Failed)
		b.Only = []int{3, -1}
		_, _, _, err = produce(t.Context(), t, p, b)
		require.ErrorContains(t, err, "index 3 to sample, expected 0 to 2\nindex -1 to sample")
	})
}
