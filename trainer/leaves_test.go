package trainer

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/rollout"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// The micro-batch budget changes no bit of the gradients, even if it is smaller than a group.
func TestMicroBatchBudgetKeepsBits(t *testing.T) {
	gradients := func(budget, threads int) (all []int64) {
		m := tinyModels(t, threads, trimodel.Config{OldPolicy: loss.Behaviour, Temperature: 1})
		r := tinySource(t, m, budget, Rollouts{Loss: loss.Default()})
		require.NoError(t, r.train(t.Context(), &step{number: 1}, &miniBatch{}, tinyGroups(4, 3)))
		for _, p := range m.Policy.Gradients.Params {
			all = append(append(all, p.Int64s()...), p.Mark.Int64s()...)
		}
		return all
	}
	want := gradients(100000, 1)
	for _, budget := range []int{1, 20, 60, 90, 200} { // the largest group has about 60 rows
		require.Equal(t, want, gradients(budget, 2), "budget %d", budget)
	}
}

// leafless are models that do not sum by leaves.
type leafless struct {
	backend.Models
	rows int // that fit in memory; 0 if that is unknown
}

func (leafless) LeafRows(int) int { return 0 }

func (m leafless) MicroBatchRows() int { return m.rows }

func TestPartsCutGroups(t *testing.T) {
	r := &rollouts{Rollouts: Rollouts{Loss: loss.Default()},
		t: &Trainer{cfg: Config{MicroBatchTokens: 10}, Deps: Deps{Models: leafless{}}}}
	g := &rollout.Group{Prompt: rollout.Prompt{IDs: make([]int32, 4)}}
	for _, n := range []int{3, 4, 2, 30, 1} {
		g.Responses = append(g.Responses, rollout.Response{Spans: rollout.Demonstrated(make([]int32, n))})
	}
	// cut returns the indices of the responses in each part. Their lengths identify them.
	cut := func(advantages []float64, kept []int) (got [][]int) {
		for p := range r.cut(g, advantages, kept) {
			var responses []int
			for _, s := range p.responses {
				i := slices.IndexFunc(g.Responses, func(r rollout.Response) bool {
					return r.Spans.Tokens() == s.spans.Tokens()
				})
				require.Equal(t, slices.Repeat([]float32{float32(advantages[i])}, s.spans.Tokens()), s.advantage)
				responses = append(responses, i)
			}
			got = append(got, responses)
		}
		return got
	}
	got := cut([]float64{1, 1, -1, 1, 1}, []int{0, 1, 2, 3, 4})
	require.Equal(t, [][]int{{0, 1, 2}, {3}, {4}}, got[:min(3, len(got))])
	for rows, want := range map[int][][]int{6: {{0}, {1}, {2}, {3}, {4}}, 9: {{0, 1}, {2}, {3}, {4}}, 1000: got} {
		r.t.Models = leafless{rows: rows}
		require.Equal(t, want, cut([]float64{1, 1, -1, 1, 1}, []int{0, 1, 2, 3, 4}), "memory for %d rows", rows)
	}
	r.t.Models = leafless{}
	advantages := []float64{0, 1, 1, 1e-50, -1}
	require.Equal(t, []int{1, 2, 4}, withGradient(&r.Loss, make([]float64, 5), advantages))
	require.Equal(t, []int{1, 4}, withGradient(&loss.Config{Keep: 2}, []float64{1, 3, 1, 1, 0}, advantages))
	require.Equal(t, []int{0, 1, 2, 3, 4}, withGradient(&loss.Config{Beta: 0.1}, make([]float64, 5), advantages))
	require.Equal(t, [][]int{{1, 4}}, cut(advantages, []int{1, 4}))
	g.Responses[1].Spans[0].Trained = false
	require.Equal(t, [][]int{{4}}, cut(advantages, []int{1, 4}), "nothing of response 1 is trained")
	r.t.cfg.PromptsPerStep, r.t.cfg.MiniBatches = 8, 3
	for mini, want := range [][2]int{{0, 2}, {2, 5}, {5, 8}} {
		first, end := r.t.miniBatchRange(mini)
		require.Equal(t, want, [2]int{first, end})
	}
}
