package layout

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/parallel"
)

func shape() *model.Config {
	return &model.Config{Type: "qwen3", HiddenSize: 64, FFNSize: 320, Layers: 6, Heads: 8, KVHeads: 4, HeadDim: 8, VocabSize: 200, MaxPositions: 128, QKNorm: true}
}

// The parts of the ranks of a replica are the whole decoder.
func TestRanks(t *testing.T) {
	t.Parallel()
	mesh := parallel.Mesh{DP: 2, TP: 2, PP: 2}
	ranks, err := Ranks(mesh, shape(), []string{"trainer"})
	require.NoError(t, err)
	require.Len(t, ranks, 8)
	require.Equal(t, []string{"trainer", Embedding, Publishing}, ranks[0].Duties)
	require.Equal(t, []string{Embedding}, ranks[2].Duties)
	require.Equal(t, []string{LogProbs, Publishing}, ranks[5].Duties)
	require.Equal(t, Rank{Rank: 7, DP: 1, TP: 1, PP: 1, Part: &Part{Layers: Range{3, 5}, Heads: Range{4, 7}, KVHeads: Range{2, 3}, FFN: Range{160, 319},
		Vocabulary: Range{128, 199}, Duties: []string{LogProbs}}}, ranks[7])
	require.Equal(t, Range{0, 2}, ranks[0].Layers)
	_, err = Ranks(parallel.Mesh{DP: 1, TP: 8, PP: 1}, shape(), nil)
	require.ErrorContains(t, err, "key-value heads")
}

// Ranks of an all-reduce send 2(n-1)/n of the values on average.
func TestAllReduce(t *testing.T) {
	t.Parallel()
	for n := 2; n < 6; n++ {
		for _, count := range []int{0, 1, 7, 60} {
			sum := int64(0)
			for rank := range n {
				sum += allReduce(rank, n, count, 8)
			}
			require.EqualValues(t, 2*(n-1)*count*8, sum)
		}
	}
	require.EqualValues(t, 3*8, allReduce(0, 2, 3, 8))
	require.EqualValues(t, 3*8, allReduce(1, 2, 3, 8))
}

func TestStep(t *testing.T) {
	t.Parallel()
	mesh := parallel.Mesh{DP: 1, TP: 1, PP: 3}
	part, err := shape().Shard(mesh, parallel.Coord{PP: 1}, false)
	require.NoError(t, err)
	got := Step(part, Pass{Rows: 10, Targets: 5, OtherRows: 20, OtherTargets: 10}, 3, false)
	require.Equal(t, Traffic{Pipeline: (30 + 10) * 64 * 4}, got, "30 rows forward and 10 back")
	got = Step(part, Pass{}, 3, true)
	require.Equal(t, Traffic{Publish: 4 * part.NumParams()}, got)
	mesh = parallel.Mesh{DP: 2, TP: 1, PP: 1}
	part, err = shape().Shard(mesh, parallel.Coord{DP: 1}, false)
	require.NoError(t, err)
	require.Equal(t, Traffic{Data: 3 * 8 * (part.NumParams() + int64(len(part.Params())))}, Step(part, Pass{Rows: 10}, 3, true))
}

func TestWaits(t *testing.T) {
	t.Parallel()
	require.Equal(t, Waits{Pipeline: 1.0 / 3, Stages: 2, MicroBatches: 2, Ranks: 1, Chunks: 1, Rows: 4096}, WaitsOf(parallel.Mesh{DP: 3, TP: 1, PP: 2}, 2, 4096, true))
	require.Equal(t, Waits{HandOn: 1.0 / 9, Stages: 1, MicroBatches: 5, Ranks: 2, Chunks: 8, Rows: 4096}, WaitsOf(parallel.Mesh{DP: 1, TP: 2, PP: 1}, 5, 4096, true))
	require.Equal(t, Waits{HandOn: 3.0 / 5, Stages: 1, MicroBatches: 1, Ranks: 4, Chunks: 2, Rows: 48}, WaitsOf(parallel.Mesh{DP: 1, TP: 4, PP: 1}, 0, 48, true))
	require.Zero(t, WaitsOf(parallel.Mesh{DP: 1, TP: 4, PP: 1}, 1, 48, false).HandOn)
}
