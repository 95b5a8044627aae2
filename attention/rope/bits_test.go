package rope

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Tables have the same bits on every machine, also at large positions.
func TestBits(t *testing.T) {
	t.Parallel()
	const positions = 32 << 10
	for _, c := range []struct {
		name    string
		theta   float64
		scaling Scaling
		want    uint64
	}{
		{"default", 1e6, Scaling{Kind: plain}, 0x1bf5377e9d9d1bc6},
		{"linear", 1e4, Scaling{Kind: linear, Factor: 4}, 0xdcafc7bace470e52},
		{"dynamic", 1e4, Scaling{Kind: dynamic, Factor: 4}, 0x26fb065ce6c9d323},
		{"yarn", 1e6, Scaling{Kind: yarn, Factor: 4, Original: 8192, BetaFast: 32, BetaSlow: 1, Truncate: true},
			0x48e18332e935dec3},
		{"yarn with scales", 1e4, Scaling{Kind: yarn, Factor: 40, Original: 4096, BetaFast: 32, BetaSlow: 1, MScale: 1,
			MScaleAll: 0.7}, 0xf8d490f066a658f2},
		{"llama3", 5e5, Scaling{Kind: llama3, Factor: 8, Original: 8192, LowFreq: 1, HighFreq: 4}, 0x4429b699cc05da2f},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			table := Table{Theta: c.theta, Scaling: c.scaling, Dim: 32, Context: positions}
			sum := fnv.New64a()
			for _, v := range table.values(positions) {
				_, _ = sum.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v))) // never fails
			}
			require.Equal(t, c.want, sum.Sum64(), "%#x", sum.Sum64())
		})
	}
}
