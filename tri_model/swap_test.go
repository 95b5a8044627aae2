package trimodel

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/npu"
)

// captured returns the files of a checkpoint of m.
func captured(t *testing.T, m *Models) map[string]string {
	t.Helper()
	dir := t.TempDir()
	write, err := m.Capture(t.Context(), 1)
	require.NoError(t, err)
	require.NoError(t, write(dir))
	files := map[string]string{}
	for _, name := range []string{weightsFile, optimizerFile, sampledFile} {
		if b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name))); err == nil {
			files[name] = string(b)
		}
	}
	require.GreaterOrEqual(t, len(files), 2)
	return files
}

// Models that are swapped out and in between updates end in the bits of models that are not, and a
// checkpoint is the same in both states. Graphs of passes are captured again after a swap and
// replayed within a step. Out, the device holds only published weights.
func TestSwap(t *testing.T) {
	for name, cfg := range map[string]Config{
		"policy":    {OldPolicy: loss.Behaviour, Temperature: 1},
		"three":     {OldPolicy: loss.PreviousStep, Reference: true, Temperature: 0.7},
		"recompute": {OldPolicy: loss.Behaviour, Reference: true, Temperature: 1, Recompute: true},
	} {
		t.Run(name, func(t *testing.T) {
			dev, library := openFar(t)
			m, host := openOn(t, dev, cfg), open(t, cfg)
			defer m.Close()
			defer host.Close()
			for number := range 4 {
				for _, x := range []*Models{m, host} {
					_, err := x.Publish(t.Context(), int64(number+1))
					require.NoError(t, err)
				}
				in := captured(t, m)
				require.NoError(t, m.SwapOut(t.Context()))
				require.NoError(t, m.SwapOut(t.Context()), "again")
				m.Discard()
				held := [npu.NumPurposes]int64{npu.Weights: int64(min(2, number+1)) * m.current.Weights().Bytes()}
				require.Equal(t, held, m.Allocated())
				require.Equal(t, in, captured(t, m))
				require.NoError(t, m.SwapIn(t.Context()))
				require.NoError(t, m.SwapIn(t.Context()), "again")
				require.Equal(t, in, captured(t, m))
				for i, l := range []*attention.Layout{long(8), long(9), long(8)} {
					c, err := measured(t, m, library, l)
					switch i {
					case 0: // also sends the table of rotary positions
						require.Positive(t, c.Captures)
					case 2: // in the first pass, activations grow
						require.NoError(t, err)
						require.Zero(t, c.Captures, "the layouts have one shape")
					}
					require.NoError(t, host.Pass(t.Context(), l, latest(host), ones))
				}
				for _, x := range []*Models{m, host} {
					_, err := x.Step(t.Context(), update(x))
					require.NoError(t, err)
				}
				require.Equal(t, captured(t, host), captured(t, m), "step %d", number)
			}
		})
	}
}

// On a device of host memory nothing moves.
func TestSwapOfHostMemory(t *testing.T) {
	t.Parallel()
	m := open(t, Config{OldPolicy: loss.Behaviour, Reference: true, Temperature: 1})
	defer m.Close()
	_, err := m.Publish(t.Context(), 1)
	require.NoError(t, err)
	require.NoError(t, m.Pass(t.Context(), layout(), latest(m), ones))
	held, first := m.Allocated(), m.Policy.First
	require.NoError(t, m.SwapOut(t.Context()))
	require.Equal(t, held, m.Allocated())
	require.NoError(t, m.SwapIn(t.Context()))
	require.Same(t, first, m.Policy.First)
}

// Gradients are never lost: SwapOut refuses models that have some.
func TestSwapOfGradients(t *testing.T) {
	dev, _ := openFar(t)
	m := openOn(t, dev, Config{OldPolicy: loss.Behaviour, Temperature: 1})
	defer m.Close()
	_, err := m.Publish(t.Context(), 1)
	require.NoError(t, err)
	require.NoError(t, m.Pass(t.Context(), layout(), latest(m), ones))
	require.ErrorContains(t, m.SwapOut(t.Context()), "sums of gradients are not zero")
	_, err = m.Step(t.Context(), update(m))
	require.NoError(t, err)
	require.NoError(t, m.SwapOut(t.Context()), "the policy is not published, and moves to host memory")
	require.NoError(t, m.SwapIn(t.Context()))
	require.NoError(t, m.Pass(t.Context(), layout(), latest(m), ones))
	m.Discard()
	require.NoError(t, m.SwapOut(t.Context()))
}

// broken is a device on which some transfers and allocations fail.
type broken struct {
	npu.Device
	good int // calls that succeed
	err  error
}

func (d *broken) spoil(err error) bool {
	if d.good--; d.good < 0 && d.err == nil {
		d.err = err
	}
	return d.err != nil
}

func (d *broken) PackMatrix(m npu.Matrix, src []float32) {
	if !d.spoil(errBroken) {
		d.Device.PackMatrix(m, src)
	}
}

func (d *broken) UnpackMatrix(dst []float32, m npu.Matrix) {
	if !d.spoil(errBroken) {
		d.Device.UnpackMatrix(dst, m)
	}
}

func (d *broken) Alloc(dtype npu.DType, n int, purpose npu.Purpose) (npu.Buffer, error) {
	if d.spoil(errBroken) {
		d.err = nil
		return npu.Buffer{}, errBroken
	}
	return d.Device.Alloc(dtype, n, purpose)
}

func (d *broken) Sync() error {
	err := d.err
	if d.err = nil; err != nil {
		_ = d.Device.Sync()
		return err
	}
	return d.Device.Sync()
}

const errBroken = brokenError("broken cable")

type brokenError string

func (e brokenError) Error() string { return string(e) }

// A swap that fails anywhere loses nothing: a checkpoint is the same, and another try succeeds.
func TestSwapFails(t *testing.T) {
	far, _ := openFar(t)
	dev := &broken{Device: far, good: 1 << 30}
	m := openOn(t, dev, Config{OldPolicy: loss.Behaviour, Reference: true, Temperature: 1})
	defer m.Close()
	failures := map[bool]int{}
	step := func(version int64) {
		_, err := m.Publish(t.Context(), version)
		require.NoError(t, err)
		require.NoError(t, m.Pass(t.Context(), layout(), latest(m), ones))
		_, err = m.Step(t.Context(), update(m))
		require.NoError(t, err)
		_, err = m.Publish(t.Context(), version+1)
		require.NoError(t, err)
	}
	step(1)
	want := captured(t, m)
	for _, out := range []bool{true, false} {
		for good := 0; ; good++ {
			swap, other := m.SwapIn, m.SwapOut
			if out {
				swap, other = other, swap
			}
			require.NoError(t, other(t.Context()))
			dev.good = good
			err := swap(t.Context())
			dev.good = 1 << 30
			require.Equal(t, want, captured(t, m), "%d calls succeed", good)
			if err == nil {
				break
			}
			failures[out]++
			require.ErrorIs(t, err, errBroken)
			require.NoError(t, swap(t.Context()), "%d calls succeed", good)
			require.Equal(t, want, captured(t, m), "%d calls succeed", good)
		}
	}
	require.Greater(t, failures[true], 20)
	require.Greater(t, failures[false], 20)
	step(3)
}
