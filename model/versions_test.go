package model

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
)

// The last n versions are held, in memory that the versions after them reuse.
func TestVersions(t *testing.T) {
	t.Parallel()
	dev, err := cpu.Open(npu.FP32, 1)
	require.NoError(t, err)
	c := shapes()["qwen3"]
	for n := MinVersions; n <= 4; n++ {
		allocated, fails := 0, errors.New("no memory")
		v := NewVersions(n, nil, func() (*Weights, error) {
			if fails != nil {
				return nil, fails
			}
			allocated++
			return NewWeights(dev, c, npu.Weights)
		})
		_, err := v.Next()
		require.ErrorIs(t, err, fails)
		fails = nil
		for version := range int64(10) {
			require.EqualValues(t, version%int64(n), v.Slot())
			w, err := v.Next()
			require.NoError(t, err)
			again, err := v.Next()
			require.NoError(t, err)
			require.Same(t, w, again, "a version that failed does not take another slot")
			v.Hold(NewSnapshot(w, version))
			for old := range version + 2 {
				held := v.Find(old)
				if old > version || old <= version-int64(n) {
					require.Nil(t, held)
					continue
				}
				require.Equal(t, old, held.Version())
			}
		}
		require.Equal(t, n, allocated)
		v.Free()
		require.Nil(t, v.Find(9))
	}
}
