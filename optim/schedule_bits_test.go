package optim

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Learning rates have the same bits on every machine.
func TestScheduleBits(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]uint64{Constant: 0x4b2dcee8520bca65, Linear: 0xe1c41ffe5731b478,
		Cosine: 0xd33b1309d9350854} {
		sum := fnv.New64a()
		for _, ratio := range []float64{0, 0.1} {
			for step := range 1000 {
				lr := Schedule{Kind: kind, Peak: 3e-6, Warmup: 37, MinRatio: ratio}.LR(step+1, 1000)
				_, err := sum.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(lr)))
				require.NoError(t, err)
			}
		}
		require.Equal(t, want, sum.Sum64(), "%s: %#x", kind, sum.Sum64())
	}
}
