package inference

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Known answers of philox4x32-10 from Random123 1.14 (tests/kat_vectors).
func TestPhiloxKnownAnswers(t *testing.T) {
	t.Parallel()
	ones := uint32(0xffffffff)
	for _, c := range []struct {
		ctr  [4]uint32
		key  [2]uint32
		want [4]uint32
	}{
		{want: [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{ones, ones, ones, ones}, [2]uint32{ones, ones},
			[4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{
			[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
			[2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
		},
	} {
		require.Equal(t, c.want, philox(c.ctr, c.key))
	}
}

func TestUniformUsesTopBitsOfFirstWord(t *testing.T) {
	t.Parallel()
	require.Equal(t, float32(0x6627e8d5>>8)/(1<<24), Uniform(0, 0, 0))
	seen := map[float32]int{}
	var sum float64
	const n = 4096
	for i := range uint32(n) {
		u := Uniform(7, i%64, i/64)
		require.True(t, u >= 0 && u < 1)
		seen[u]++
		sum += float64(u)
	}
	require.Greater(t, len(seen), n-8, "draws of different samples and positions differ")
	require.InDelta(t, 0.5, sum/n, 0.02)
	require.NotEqual(t, Uniform(1, 2, 3), Uniform(1, 3, 2))
	require.NotEqual(t, Uniform(1, 2, 3), Uniform(1<<32, 2, 3))
}
