package findings

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/parallel"
)

// The parts of the ranks of a replica are the whole decoder.
func TestRanks(t *testing.T) {
	t.Parallel()
	mesh := parallel.Mesh{DP: 2, TP: 2, PP: 2}
	shape := &model.Config{Type: "qwen3", HiddenSize: 64, FFNSize: 320, Layers: 6, Heads: 8, KVHeads: 4, HeadDim: 8,
		VocabSize: 200, MaxPositions: 128, QKNorm: true}
	ranks, err := divided(mesh, shape, []string{"trainer"})
	require.NoError(t, err)
	require.Len(t, ranks, 8)
	require.Equal(t, []string{"trainer", embedding, publishing}, ranks[0].Duties)
	require.Equal(t, []string{embedding}, ranks[2].Duties)
	require.Equal(t, []string{logProbs, publishing}, ranks[5].Duties)
	require.Equal(t, Rank{Rank: 7, DP: 1, TP: 1, PP: 1,
		Part: &Part{Layers: Range{3, 5}, Heads: Range{4, 7}, KVHeads: Range{2, 3}, FFN: Range{160, 319},
			Vocabulary: Range{128, 199}, Duties: []string{logProbs}}}, ranks[7])
	require.Equal(t, Range{0, 2}, ranks[0].Layers)
	_, err = divided(parallel.Mesh{DP: 1, TP: 8, PP: 1}, shape, nil)
	require.ErrorContains(t, err, "key-value heads")
}
