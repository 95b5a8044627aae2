package splitmix

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The first outputs of the published generator.
func TestPublishedOutputs(t *testing.T) {
	t.Parallel()
	for n, want := range []uint64{0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f, 0xf88bb8a8724c81ec} {
		require.Equal(t, want, At(0, uint64(n)))
	}
	for n, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431,
		16408922859458223821} {
		require.Equal(t, want, At(1234567, uint64(n)))
	}
	require.Zero(t, Mix(0))
	require.Equal(t, At(42, 0), Mix(42+0x9e3779b97f4a7c15))
}

// Every version draws the same initial weights.
func TestDrawsNeverChange(t *testing.T) {
	t.Parallel()
	r := Normal{Seed: 17}
	for _, want := range []uint64{0x10108ebe05dc6e, 0xc869fec569d1d, 0xa81ad86e05a83} {
		require.Equal(t, float64(want)/(1<<53), r.uniform())
	}
}
