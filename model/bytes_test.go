package model

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention/cache"
	"github.com/easyrl/easyrl/npu"
)

// The predicted sizes equal what the device counts, except for the tables of rotary
// positions.
func TestPredictedBytesEqualAllocated(t *testing.T) {
	t.Parallel()
	inBoth(t, testBytes)
}

func testBytes(t *testing.T, n npu.Numerics) {
	c := shapes()["qwen3"]
	dev := openIn(t, n, 1)
	w := testWeights(t, dev, c)
	const rows, pages = 40, 7
	r, err := NewRunner(dev, c, rows)
	require.NoError(t, err)
	defer r.Close()
	shape := c.Cache(pages, 3, 100)
	held, err := cache.New(dev, shape)
	require.NoError(t, err)
	defer held.Close()
	require.Equal(t, shape.Bytes(n), dev.Allocated()[npu.KV])
	want := make([]int32, 9)
	tokens := randomTokens(rand.New(rand.NewPCG(1, 2)), rows, c.VocabSize)
	_, err = r.Prefill(w, held, []Chunk{{Tokens: tokens, Pages: []int32{0, 1, 2}}}, want)
	require.NoError(t, err)
	table := tableBytes(c)
	index := r.batch.Bytes() + r.after.Bytes() + r.ids.Bytes()
	require.Equal(t, RunnerBytes(c, n, rows, len(want))+table+index, dev.Allocated()[npu.Activations])
}

// tableBytes returns the size of the table of rotary positions of short sequences.
func tableBytes(c *Config) int64 { return 4 * int64(min(512, c.MaxPositions)*c.HeadDim) }

// The predicted size of a tape equals what the device counts. It grows with the rows, also
// beyond those whose logits fit.
func TestPredictedActivationsEqualAllocated(t *testing.T) {
	t.Parallel()
	inBoth(t, testActivationBytes)
}

func testActivationBytes(t *testing.T, numerics npu.Numerics) {
	c := shapes()["qwen2"]
	dev := openIn(t, numerics, 1)
	w, l := testWeights(t, dev, c), testForest(c)
	for _, recompute := range []bool{true, false} {
		tape := NewTape(dev, c)
		tape.Recompute = recompute
		n := len(l.Targets)
		require.NoError(t, tape.Forward(w, l, 1, true, make([]float32, n), make([]float32, n)))
		require.NoError(t, tape.Wait())
		table := tableBytes(c)
		require.Equal(t, ActivationBytes(c, numerics, l.Rows(), l.Rows(), n, recompute)+table+tape.batch.Bytes(),
			dev.Allocated()[npu.Activations])
		tape.Close()
	}
	require.Greater(t, ActivationBytes(c, numerics, 1<<40, 1<<40, 1<<40, true), int64(1<<40))
}
