package cpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
	"github.com/easyrl/easyrl/npu/nputest"
)

func TestConformance(t *testing.T) {
	for _, isa := range cpu.ISAs() {
		t.Run(isa, func(t *testing.T) {
			t.Parallel()
			nputest.Run(t, func(threads int) (npu.Device, error) { return cpu.OpenISA(isa, threads) })
		})
	}
	t.Run("go", func(t *testing.T) {
		t.Parallel()
		nputest.Run(t, cpu.OpenPureGo)
	})
}

func TestSameBits(t *testing.T) {
	for _, isa := range cpu.ISAs() {
		t.Run(isa, func(t *testing.T) {
			t.Parallel()
			nputest.Same(t, open(t, cpu.OpenPureGo, 2), open(t, func(n int) (npu.Device, error) { return cpu.OpenISA(isa, n) }, 1))
		})
	}
}

func open(t testing.TB, open func(int) (npu.Device, error), threads int) npu.Device {
	t.Helper()
	d, err := open(threads)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func TestOpen(t *testing.T) {
	t.Parallel()
	d := open(t, cpu.Open, 0)
	require.Positive(t, d.Threads())
	require.Contains(t, d.Name(), "cpu/")
	_, err := cpu.Open(-1)
	require.ErrorContains(t, err, "-1 threads")
	_, err = cpu.Open(100000)
	require.ErrorContains(t, err, "100000 threads")
	_, err = cpu.OpenISA("mmx", 1)
	require.ErrorContains(t, err, `instruction set "mmx", expected`)
}
