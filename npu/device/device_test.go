package device

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
)

func openCPU(t *testing.T) npu.Device {
	t.Helper()
	dev, err := Open(CPU, 1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	return dev
}

func TestOpen(t *testing.T) {
	t.Parallel()
	dev := openCPU(t)
	require.Contains(t, dev.Name(), "cpu/")
	require.Equal(t, 1, dev.Threads())
	_, err := Open(CPU, -1)
	require.ErrorContains(t, err, "-1 threads")
	for _, kind := range []string{"cuda", "ascend", filepath.Join(t.TempDir(), "libeasyrl_none.so")} {
		_, err := Open(kind, 1)
		require.ErrorContains(t, err, "open device library")
		require.ErrorContains(t, err, kind)
	}
}

// namedDevice is a device under another name.
type namedDevice struct {
	npu.Device
	name string
}

func (d namedDevice) Name() string { return d.name }

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

	other := namedDevice{dev, "cuda/sm90"}
	require.Zero(t, PeakFLOPS(other))
	_, _, err = Bandwidth(other, 1<<20)
	require.EqualError(t, err, "measure bandwidth: device is cuda/sm90, expected a CPU")
	_, err = Ceilings(other)
	require.EqualError(t, err, "measure ceilings: device is cuda/sm90, expected a CPU")
}
