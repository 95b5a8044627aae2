package carry

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
	"github.com/easyrl/easyrl/npu/device"
	"github.com/easyrl/easyrl/npu/far"
	"github.com/easyrl/easyrl/parallel"
)

// eachRank runs a function on every rank of a tensor group of 3, with a buffer of n values on a device that open
// returns, and returns the results.
func eachRank[T any](t *testing.T, open func() (npu.Device, error), dtype npu.DType, n int,
	run func(c *Carry, rank int, x npu.Buffer) T) []T {
	t.Helper()
	var all sync.WaitGroup
	results, carries := make([]T, 3), make([]*Carry, 3)
	for rank, end := range parallel.NewLocal(3) {
		dev, err := open()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, dev.Close()) })
		group, err := parallel.NewGroup(end, "tp", []int{0, 1, 2}, 0)
		require.NoError(t, err)
		x, err := dev.Alloc(dtype, n, npu.Activations)
		require.NoError(t, err)
		carries[rank] = New(t.Context(), dev, group)
		all.Go(func() { results[rank] = run(carries[rank], rank, x) })
	}
	all.Wait()
	for _, c := range carries {
		require.NoError(t, c.Err())
	}
	return results
}

func testSums(t *testing.T, open func() (npu.Device, error)) {
	t.Helper()
	for _, sums := range eachRank(t, open, npu.Int64, 5, func(c *Carry, rank int, x npu.Buffer) []int64 {
		values, write := npu.ReadInt64s(c.dev, x)
		c.err = c.dev.Sync()
		copy(values, []int64{1 << 60, -7, int64(rank), 1<<32 - 1, 0})
		write()
		c.Sum(x)
		values, _ = npu.ReadInt64s(c.dev, x)
		c.err = errors.Join(c.err, c.dev.Sync())
		return values
	}) {
		require.Equal(t, []int64{3 << 60, -21, 3, 3<<32 - 3, 0}, sums)
	}
	for _, sum := range eachRank(t, open, npu.Float32, 2, func(c *Carry, rank int, x npu.Buffer) float32 {
		c.dev.Upload(x, []float32{0, []float32{1, 1e8, -1e8}[rank]})
		c.Along(x.Slice(0, 1), func() { c.dev.Add(x.Slice(0, 1), x.Slice(1, 2)) })
		result := make([]float32, 1)
		c.dev.Download(result, x.Slice(0, 1))
		c.err = errors.Join(c.err, c.dev.Sync())
		return result[0]
	}) {
		require.Zero(t, sum, "in the order of ranks 1 is lost")
	}
}

func TestSums(t *testing.T) {
	t.Parallel()
	testSums(t, func() (npu.Device, error) { return cpu.Open(npu.FP32, 1) })
}

func TestFarSums(t *testing.T) {
	t.Parallel()
	lib := far.Library(t)
	testSums(t, func() (npu.Device, error) { return device.Open(lib, npu.FP32, 1) })
}
