package splitmix

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Draws have the bits of N(0, 1) on every machine.
func TestNormalBits(t *testing.T) {
	t.Parallel()
	r, sum, squares := Normal{Seed: 17}, fnv.New64a(), 0.0
	const draws = 100_000
	for range draws {
		x := r.Next()
		squares += float64(x * x)
		_, err := sum.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(x)))
		require.NoError(t, err)
	}
	require.InDelta(t, 1, squares/draws, 0.02)
	require.Equal(t, uint64(0xdc03be59f0979c19), sum.Sum64(), "%#x", sum.Sum64())
}
