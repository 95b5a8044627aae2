package run

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
)

// namedDevice is a device under another name.
type namedDevice struct {
	npu.Device
	name string
}

func (d namedDevice) Name() string { return d.name }

// perf/mfu takes the CPU's ceiling; that of other devices is not known.
func TestPeakFLOPS(t *testing.T) {
	t.Parallel()
	dev, err := openDevice("cpu", 1)
	require.NoError(t, err)
	defer dev.Close()
	require.Positive(t, peakFLOPS(dev))
	require.Zero(t, peakFLOPS(namedDevice{dev, "cuda/sm90"}))
}
