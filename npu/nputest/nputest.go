// Package nputest holds the conformance suite that every device must pass.
package nputest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
)

// Run checks every kernel of the devices that open returns, of any numerics, against float64 references written
// from the formulas. On devices that claim exactness, it also checks what the fixed order of summation promises:
// results do not depend on the other rows of a call, on the number of threads, or on how a long sum is
// split into calls.
func Run(t *testing.T, open func(threads int) (npu.Device, error)) {
	Contract(t, open)
	t.Run("dense", func(t *testing.T) { testDense(t, open) })
	t.Run("input", func(t *testing.T) { testInput(t, open) })
	t.Run("leaves", func(t *testing.T) { testLeaves(t, open) })
	t.Run("units", func(t *testing.T) { testUnits(t, open) })
	t.Run("rows", func(t *testing.T) { testRows(t, open) })
	t.Run("vocabulary", func(t *testing.T) { testVocab(t, open) })
	t.Run("sample", func(t *testing.T) { testSample(t, open) })
	t.Run("update", func(t *testing.T) { testUpdate(t, open) })
	t.Run("norm", func(t *testing.T) { testNorm(t, open) })
	t.Run("pointwise", func(t *testing.T) { testPointwise(t, open) })
	t.Run("attention", func(t *testing.T) { testAttention(t, open) })
}

// Contract checks memory, the queue, events, graphs, the checks of arguments and the sums of panels. For a
// device that runs the kernels of another device, Contract and Same are enough.
func Contract(t *testing.T, open func(threads int) (npu.Device, error)) {
	t.Run("memory", func(t *testing.T) { testMemory(t, open) })
	t.Run("convert", func(t *testing.T) {
		testConvert(t, open)
		testWiden(t, open)
	})
	t.Run("queue", func(t *testing.T) { testQueue(t, open) })
	t.Run("events", func(t *testing.T) { testEvents(t, open) })
	t.Run("capture", func(t *testing.T) { testCapture(t, open) })
	t.Run("checks", func(t *testing.T) { testChecks(t, open) })
	t.Run("panels", func(t *testing.T) { testPanels(t, open) })
}

// Same requires every kernel of the devices got to give the same bits as on want. All of them have the same
// numerics and claim exactness.
func Same(t *testing.T, want npu.Device, got ...npu.Device) {
	require.True(t, want.Info().Exact)
	for _, d := range got {
		require.True(t, d.Info().Exact, d.Info().Name)
		require.Equal(t, numerics(want), numerics(d), d.Info().Name)
	}
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

// Rounded requires the kernels without chains of the devices got, of BF16, to give the bits of want, a device of FP32,
// with activations and weights rounded. All of them claim exactness.
func Rounded(t *testing.T, want npu.Device, got ...npu.Device) {
	t.Run("norm", func(t *testing.T) {
		roundedOutputs(t, want, got, normCases, func(c *normCase, output string) bool {
			return output == "y" || c.activations && output != "dWeight"
		})
	})
	t.Run("rope", func(t *testing.T) {
		roundedOutputs(t, want, got, ropeCases, func(*ropeCase, string) bool { return true })
	})
	t.Run("swiglu", func(t *testing.T) {
		roundedOutputs(t, want, got, swigluCases, func(*swigluCase, string) bool { return true })
	})
	t.Run("softmax", func(t *testing.T) {
		roundedOutputs(t, want, got, softmaxCases, func(_ *softmaxCase, output string) bool {
			return output == "dLogits"
		})
	})
	t.Run("update", func(t *testing.T) { roundedUpdate(t, want, got) })
	t.Run("sample", func(t *testing.T) { sameSample(t, want, got) })
}

// device opens a device and closes it at the end of the test.
func device(t *testing.T, open func(threads int) (npu.Device, error), threads int) npu.Device {
	t.Helper()
	d, err := open(threads)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// teams opens a device for each number of threads, whose results must have the same bits. It returns none
// if the devices do not run on cores or do not claim exactness.
func teams(t *testing.T, open func(threads int) (npu.Device, error), threads ...int) []npu.Device {
	t.Helper()
	var all []npu.Device
	for _, n := range threads {
		d := device(t, open, n)
		if _, cores := d.(npu.Cores); !cores || !d.Info().Exact {
			return nil
		}
		all = append(all, d)
	}
	return all
}

// exactOnly skips the test if the device does not claim exactness.
func exactOnly(t *testing.T, d npu.Device) {
	t.Helper()
	if !d.Info().Exact {
		t.Skipf("%s does not claim exactness", d.Info().Name)
	}
}
