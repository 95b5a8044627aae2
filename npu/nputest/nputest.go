// Package nputest holds the conformance suite that every device must pass.
package nputest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
)

// Run checks every kernel of the devices that open returns. It compares with float64
// references written from the formulas. It also checks the properties that the fixed
// order of summation promises: results do not depend on the other rows of a call, on
// the number of threads, or on how a long sum is split into calls.
func Run(t *testing.T, open func(threads int) (npu.Device, error)) {
	t.Run("memory", func(t *testing.T) { testMemory(t, open) })
	t.Run("dense", func(t *testing.T) { testDense(t, open) })
	t.Run("input", func(t *testing.T) { testInput(t, open) })
	t.Run("leaves", func(t *testing.T) { testLeaves(t, open) })
	t.Run("rows", func(t *testing.T) { testRows(t, open) })
	t.Run("vocabulary", func(t *testing.T) { testVocab(t, open) })
	t.Run("sample", func(t *testing.T) { testSample(t, open) })
	t.Run("update", func(t *testing.T) { testUpdate(t, open) })
	t.Run("norm", func(t *testing.T) { testNorm(t, open) })
	t.Run("pointwise", func(t *testing.T) { testPointwise(t, open) })
	t.Run("attention", func(t *testing.T) { testAttention(t, open) })
}

// Same requires two devices that claim exactness to give the same bits in every
// kernel.
func Same(t *testing.T, want, got npu.Device) {
	t.Run("dense", func(t *testing.T) { sameDense(t, want, got) })
	t.Run("input", func(t *testing.T) { sameInput(t, want, got) })
	t.Run("rows", func(t *testing.T) { sameRows(t, want, got) })
	t.Run("vocabulary", func(t *testing.T) { sameVocab(t, want, got) })
	t.Run("sample", func(t *testing.T) { sameSample(t, want, got) })
	t.Run("update", func(t *testing.T) { sameUpdate(t, want, got) })
	t.Run("norm", func(t *testing.T) { sameNorm(t, want, got) })
	t.Run("pointwise", func(t *testing.T) { samePointwise(t, want, got) })
	t.Run("attention", func(t *testing.T) { sameAttention(t, want, got) })
}

// testMemory checks allocation, transfers and their failures.
func testMemory(t *testing.T, open func(threads int) (npu.Device, error)) {
	d := device(t, open, 2)
	require.NotEmpty(t, d.Name())
	require.Positive(t, d.Threads())
	require.Zero(t, d.Allocated())

	b, err := d.Alloc(1001, npu.Weights)
	require.NoError(t, err)
	require.Equal(t, 1001, b.Len())
	m := newMemory(t, d)
	require.Equal(t, make([]float32, 1001), m.get(b), "fresh memory is zero")
	c, err := d.Alloc(17, npu.KV)
	require.NoError(t, err)
	require.Equal(t, [npu.NumPurposes]int64{npu.Weights: 4004, npu.KV: 68}, d.Allocated())
	none, err := d.Alloc(0, npu.KV)
	require.NoError(t, err)
	require.True(t, none.IsNil())
	d.Free(none)
	_, err = d.Alloc(-1, npu.KV)
	require.ErrorContains(t, err, "allocate -1 values for kv")

	x := ramp(1001)
	d.Upload(b, x)
	require.Equal(t, x, m.get(b))
	if host := b.Float32s(); host != nil {
		require.Equal(t, x, host)
	}
	d.Copy(c, b.Slice(100, 117))
	require.Equal(t, x[100:117], m.get(c))
	d.Add(c, b.Slice(3, 20))
	for i, v := range m.get(c) {
		require.Equal(t, x[100+i]+x[3+i], v)
	}
	d.Zero(b.Slice(500, 1001))
	require.Equal(t, append(ramp(500), make([]float32, 501)...), m.get(b))
	require.Panics(t, func() { d.Copy(b, c) }, "lengths differ")
	require.Panics(t, func() { d.Upload(c, x) }, "lengths differ")
	require.NoError(t, d.Sync())
	d.Free(b)
	d.Free(c)
	require.Zero(t, d.Allocated())
}

func ramp(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(i) - 7.5
	}
	return x
}
