package device

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
)

func openCPU(t *testing.T) npu.Device {
	t.Helper()
	dev, err := Open(CPU, npu.FP32, 1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	return dev
}

func TestOpen(t *testing.T) {
	t.Parallel()
	dev := openCPU(t)
	require.Contains(t, dev.Info().Name, "cpu/")
	require.Equal(t, 1, npu.Threads(dev))
	_, err := Open(CPU, npu.FP32, -1)
	require.ErrorContains(t, err, "-1 threads")
	for _, kind := range []string{"cuda", "ascend", filepath.Join(t.TempDir(), "libeasyrl_none.so")} {
		_, err := Open(kind, npu.FP32, 1)
		require.ErrorContains(t, err, "open device library")
		require.ErrorContains(t, err, kind)
	}
}

// accelerator is a device without the methods of npu.Cores.
type accelerator struct{ npu.Device }

func (accelerator) Info() npu.Info { return npu.Info{Name: "cuda/sm90"} }

// A CPU is measured; the rates of other devices are unknown.
func TestMeasure(t *testing.T) {
	t.Parallel()
	dev := openCPU(t)
	require.Positive(t, PeakFLOPS(dev))
	read, copied, err := Bandwidth(dev, 1<<20)
	require.NoError(t, err)
	require.Positive(t, read)
	require.Positive(t, copied)
	c, err := Ceilings(dev)
	require.NoError(t, err)
	require.Equal(t, 1, c.All.Threads)

	other := accelerator{dev}
	require.Zero(t, PeakFLOPS(other))
	_, _, err = Bandwidth(other, 1<<20)
	require.EqualError(t, err, "measure bandwidth: device is cuda/sm90, expected a CPU")
	_, err = Ceilings(other)
	require.EqualError(t, err, "measure ceilings: device is cuda/sm90, expected a CPU")
}
