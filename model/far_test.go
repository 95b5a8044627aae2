package model

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/device"
	"github.com/easyrl/easyrl/npu/far"
)

// The host waits for the device once in a decode step.
func TestDecodeWaitsOnce(t *testing.T) {
	library := far.Library(t)
	dev, err := device.Open(library, 1)
	require.NoError(t, err)
	defer dev.Close()
	c := shapes()["qwen3"]
	w := testWeights(t, dev, c)
	const n = 3
	r, err := NewRunner(dev, c, n)
	require.NoError(t, err)
	defer r.Close()
	cache, err := NewCache(dev, c, n)
	require.NoError(t, err)
	defer cache.Close()
	ids, logp, params := []int32{1, 2, 3}, make([]float32, n), make([]npu.SampleParams, n)
	for step := range int32(4) {
		require.NoError(t, dev.Sync())
		far.Reset(library)
		at, slots := []int32{step, step, step}, []int32{step, npu.PageSize + step, 2*npu.PageSize + step}
		logits, err := r.Decode(w, cache, ids, at, slots, []int32{0, 1, 2}, 1, []int32{step + 1, step + 1, step + 1})
		require.NoError(t, err)
		require.NoError(t, r.Sample(ids, logp, logits, params))
		require.EqualValues(t, 1, far.Read(library).Waits)
	}
}
