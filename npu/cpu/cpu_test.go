package cpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/soak"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
	"github.com/easyrl/easyrl/npu/nputest"
)

// The race detector does not see C, so under it the C kernels run Contract alone.
func TestConformance(t *testing.T) {
	test := nputest.Run
	if soak.Race {
		test = nputest.Contract
	}
	for _, numerics := range []npu.Numerics{npu.FP32, npu.BF16} {
		for _, isa := range cpu.ISAs() {
			t.Run(isa+" "+numerics.String(), func(t *testing.T) {
				t.Parallel()
				test(t, func(threads int) (npu.Device, error) { return cpu.OpenISA(isa, numerics, threads) })
			})
		}
		t.Run("go "+numerics.String(), func(t *testing.T) {
			t.Parallel()
			nputest.Run(t, in(numerics, cpu.OpenPureGo))
		})
	}
}

func TestSameBits(t *testing.T) {
	t.Parallel()
	if soak.Race {
		t.Skip("TestConformance shares memory between more threads")
	}
	for _, numerics := range []npu.Numerics{npu.FP32, npu.BF16} {
		t.Run(numerics.String(), func(t *testing.T) {
			t.Parallel()
			var all []npu.Device
			for _, isa := range cpu.ISAs() {
				all = append(all, open(t, func(n int) (npu.Device, error) { return cpu.OpenISA(isa, numerics, n) }, 1))
			}
			nputest.Same(t, open(t, in(numerics, cpu.OpenPureGo), 2), all...)
		})
	}
}

// Kernels without chains differ between the numerics only in the rounding of results.
func TestRounded(t *testing.T) {
	t.Parallel()
	if soak.Race {
		t.Skip("TestConformance shares memory between more threads")
	}
	nputest.Rounded(t, open(t, in(npu.FP32, cpu.Open), 2), open(t, in(npu.BF16, cpu.OpenPureGo), 2),
		open(t, in(npu.BF16, cpu.Open), 2))
}

// in returns open for some numerics.
func in(numerics npu.Numerics, open func(npu.Numerics, int) (npu.Device, error)) func(int) (npu.Device, error) {
	return func(threads int) (npu.Device, error) { return open(numerics, threads) }
}

func open(t testing.TB, open func(int) (npu.Device, error), threads int) npu.Device {
	t.Helper()
	d, err := open(threads)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// A fork of the host's memory has its own threads.
func TestFork(t *testing.T) {
	t.Parallel()
	for _, from := range []func(npu.Numerics, int) (npu.Device, error){cpu.Open, cpu.OpenPureGo} {
		d := open(t, in(npu.FP32, from), 1)
		f := open(t, d.Fork, 3)
		require.Equal(t, 1, npu.Threads(d))
		require.Equal(t, 3, npu.Threads(f))
		require.Equal(t, d.Info(), f.Info())
		_, err := d.Fork(-1)
		require.ErrorContains(t, err, "-1 threads")
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	d := open(t, in(npu.FP32, cpu.Open), 0)
	require.Positive(t, npu.Threads(d))
	require.Contains(t, d.Info().Name, "cpu/")
	require.True(t, d.Info().Exact)
	require.Same(t, npu.Host, d.Space())
	_, err := cpu.Open(npu.FP32, -1)
	require.ErrorContains(t, err, "-1 threads")
	_, err = cpu.Open(npu.FP32, 100000)
	require.ErrorContains(t, err, "100000 threads")
	_, err = cpu.OpenISA("mmx", npu.FP32, 1)
	require.ErrorContains(t, err, `instruction set "mmx", expected`)
}
