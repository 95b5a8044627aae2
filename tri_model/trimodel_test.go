package trimodel

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
	"github.com/easyrl/easyrl/optim"
)

func shape() *model.Config {
	return &model.Config{Type: "llama", HiddenSize: 24, FFNSize: 40, Layers: 2, Heads: 3, KVHeads: 1, HeadDim: 8,
		VocabSize:    29,
		MaxPositions: 64, NormEps: 1e-5, RopeTheta: 1e4, InitStd: 0.2, BOS: -1}
}

func open(t *testing.T, cfg Config) *Models {
	t.Helper()
	dev, err := cpu.Open(npu.FP32, 2)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	return openOn(t, dev, cfg)
}

func openOn(t *testing.T, dev npu.Device, cfg Config) *Models {
	t.Helper()
	w, err := model.NewWeights(dev, shape(), npu.Weights)
	require.NoError(t, err)
	require.NoError(t, w.Init(1))
	cfg.Optim, cfg.Format = optim.Default(), optim.FixedPoint(1, 16)
	m, err := New(dev, w, cfg)
	require.NoError(t, err)
	return m
}

func layout() *attention.Layout {
	var l attention.Layout
	root := l.Add(-1, []int32{3, 1, 4, 1, 5}, false)
	l.AddResponse(root, []int32{9, 2, 6})
	l.AddResponse(root, []int32{5, 3, 5, 8})
	return &l
}

// pass returns one model's log-probabilities of the layout, computed on a separate tape.
func pass(t *testing.T, m *Models, w *model.Weights) []float32 {
	t.Helper()
	tape := model.NewTape(m.dev, w.Config)
	defer tape.Close()
	logp := make([]float32, len(layout().Targets))
	require.NoError(t, tape.Forward(w, layout(), m.cfg.Temperature, false, logp, make([]float32, len(logp))))
	require.NoError(t, tape.Wait())
	return logp
}

// latest returns the last published version, 0 for none.
func latest(m *Models) int64 {
	if m.current == nil {
		return 0
	}
	return m.current.Version()
}

// update returns the next update.
func update(m *Models) backend.Update {
	return backend.Update{Number: m.Policy.opt.Updates + 1, Scale: 1, LR: 1e-2, Clip: 1}
}

// step takes one optimizer step that makes the layout likelier.
func step(t *testing.T, m *Models) {
	t.Helper()
	lp, err := m.Forward(layout(), latest(m))
	require.NoError(t, err)
	grad := make([]float32, len(lp.Values[backend.Policy]))
	for i := range grad {
		grad[i] = -1
	}
	require.NoError(t, m.Backward(backend.Values{backend.Policy: grad}))
	_, err = m.Step(t.Context(), update(m))
	require.NoError(t, err)
}

// The pass of an old policy that equals the policy is skipped, because it would give the
// same bits.
func TestSkippedPassIsIdentical(t *testing.T) {
	m := open(t, Config{OldPolicy: loss.Behaviour, Temperature: 0.9})
	for range 3 {
		snapshot, err := m.Publish(t.Context(), 1)
		require.NoError(t, err)
		lp, err := m.Forward(layout(), latest(m))
		require.NoError(t, err)
		require.Same(t, &lp.Values[backend.Policy][0], &lp.Values[backend.OldPolicy][0], "one pass")
		require.Equal(t, pass(t, m, snapshot.(*model.Snapshot).Weights()), lp.Values[backend.Policy])
		require.Equal(t, lp.Values[backend.Policy], lp.Values[backend.Sampler])
		step(t, m)
	}
}

// After an optimizer step within a rollout step, the old policy is still the published one,
// and the rollouts are compared with it.
func TestOldPolicyIsPublishedPolicy(t *testing.T) {
	m := open(t, Config{OldPolicy: loss.Behaviour, Temperature: 1})
	snapshot, err := m.Publish(t.Context(), 1)
	require.NoError(t, err)
	before := pass(t, m, m.Policy.Weights)
	step(t, m)
	lp, err := m.Forward(layout(), latest(m))
	require.NoError(t, err)
	require.Equal(t, before, lp.Values[backend.OldPolicy])
	require.Equal(t, before, lp.Values[backend.Sampler])
	require.Equal(t, before, pass(t, m, snapshot.(*model.Snapshot).Weights()))
	require.Equal(t, pass(t, m, m.Policy.Weights), lp.Values[backend.Policy])
	require.NotEqual(t, before, lp.Values[backend.Policy])
}

// "the old policy network holds weights delayed by one training step relative
// to the policy model" (section 4.1; Algorithm 1, lines 20 and 21).
func TestPreviousStepIsOneStepBehind(t *testing.T) {
	m := open(t, Config{OldPolicy: loss.PreviousStep, Temperature: 1})
	var history [][]float32
	for version := int64(1); version <= 4; version++ {
		history = append(history, pass(t, m, m.Policy.Weights))
		_, err := m.Publish(t.Context(), version)
		require.NoError(t, err)
		lp, err := m.Forward(layout(), latest(m))
		require.NoError(t, err)
		require.Equal(t, history[max(0, len(history)-2)], lp.Values[backend.OldPolicy], "version %d", version)
		require.Equal(t, history[len(history)-1], lp.Values[backend.Sampler])
		step(t, m)
	}
}

// All mini-batches of a step have the old policy of the step before.
func TestPreviousStepIsNotThePreviousMinibatch(t *testing.T) {
	m := open(t, Config{OldPolicy: loss.PreviousStep, Temperature: 1})
	var history [][]float32 // of the policies that sampled
	for version := int64(1); version <= 3; version++ {
		history = append(history, pass(t, m, m.Policy.Weights))
		_, err := m.Publish(t.Context(), version)
		require.NoError(t, err)
		for mini := range 3 {
			lp, err := m.Forward(layout(), latest(m))
			require.NoError(t, err)
			require.Equal(t, history[max(0, len(history)-2)], lp.Values[backend.OldPolicy],
				"version %d, mini-batch %d", version, mini)
			require.Equal(t, pass(t, m, m.Policy.Weights), lp.Values[backend.Policy])
			step(t, m)
		}
	}
}

// A resumed run has the same old policy as before, even if it was saved after the next
// step's weights were published: for an evaluation, or because that step was given up. A
// step whose gradient is not finite counts too, and one that trains nothing.
func TestSampledSurvivesResume(t *testing.T) {
	for _, published := range []bool{false, true} {
		for _, last := range []string{"an update", "a skipped update", "nothing"} {
			m := open(t, Config{OldPolicy: loss.PreviousStep, Temperature: 1})
			version := int64(1)
			publish := func(m *Models) {
				_, err := m.Publish(t.Context(), version)
				require.NoError(t, err)
			}
			publish(m)
			step(t, m)
			if last != "an update" {
				version++
				publish(m)
			}
			if last == "a skipped update" {
				skippedStep(t, m)
			}
			version++
			if published {
				publish(m)
			}
			resumed := open(t, Config{OldPolicy: loss.PreviousStep, Temperature: 1})
			write, err := m.Capture(t.Context(), int(version-1))
			require.NoError(t, err)
			dir := t.TempDir()
			require.NoError(t, write(dir))
			require.NoError(t, resumed.Restore(t.Context(), dir, int(version-1), m.Policy.opt.Updates))
			publish(resumed)
			if !published {
				publish(m)
			}
			want, err := m.Forward(layout(), latest(m))
			require.NoError(t, err)
			got, err := resumed.Forward(layout(), latest(resumed))
			require.NoError(t, err)
			require.Equal(t, want, got, "published %v, last step made %s", published, last)
		}
	}
}

// skippedStep takes an optimizer step that changes nothing, because its gradient is not
// finite.
func skippedStep(t *testing.T, m *Models) {
	t.Helper()
	lp, err := m.Forward(layout(), latest(m))
	require.NoError(t, err)
	grad := make([]float32, len(lp.Values[backend.Policy]))
	grad[1] = float32(math.Inf(1))
	require.NoError(t, m.Backward(backend.Values{backend.Policy: grad}))
	_, err = m.Step(t.Context(), update(m))
	require.ErrorIs(t, err, optim.ErrNonFinite)
}

// A snapshot does not change until the second Publish after it.
func TestSnapshotsDoNotChange(t *testing.T) {
	m := open(t, Config{OldPolicy: loss.Behaviour, Temperature: 1})
	first, err := m.Publish(t.Context(), 1)
	require.NoError(t, err)
	sum := first.Checksum()
	step(t, m)
	second, err := m.Publish(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, sum, first.(*model.Snapshot).Weights().Checksum())
	require.NotEqual(t, sum, second.Checksum())
}

func TestReferenceIsStartingPolicy(t *testing.T) {
	m := open(t, Config{OldPolicy: loss.Behaviour, Reference: true, Temperature: 1})
	start := pass(t, m, m.Policy.Weights)
	for range 2 {
		_, err := m.Publish(t.Context(), 1)
		require.NoError(t, err)
		step(t, m)
	}
	lp, err := m.Forward(layout(), latest(m))
	require.NoError(t, err)
	require.Equal(t, start, lp.Values[backend.Reference])
	require.NotEqual(t, start, lp.Values[backend.Policy])
}

// A gradient that is not finite changes no weight and is cleared.
func TestNonFiniteGradientChangesNothing(t *testing.T) {
	m := open(t, Config{OldPolicy: loss.Behaviour, Temperature: 1})
	_, err := m.Publish(t.Context(), 1)
	require.NoError(t, err)
	before := m.Policy.Weights.Checksum()
	skippedStep(t, m)
	require.Equal(t, before, m.Policy.Weights.Checksum())
	require.Zero(t, m.Policy.opt.Updates)
	step(t, m)
	for i, p := range m.Policy.Weights.Params {
		vals := make([]float32, p.Rows*max(p.Cols, 1))
		m.Policy.Weights.Read(i, vals)
		for _, v := range vals {
			require.False(t, v-v != 0, p.Name)
		}
	}
}

// little is a device that has memory for a limited number of allocations.
type little struct {
	npu.Device
	left int
}

func (d *little) Alloc(dtype npu.DType, n int, purpose npu.Purpose) (npu.Buffer, error) {
	if d.left--; d.left < 0 {
		return npu.Buffer{}, errors.New("no memory")
	}
	return d.Device.Alloc(dtype, n, purpose)
}

// If memory runs out, New frees everything.
func TestFailedNewFreesEverything(t *testing.T) {
	t.Parallel()
	dev, err := cpu.Open(npu.FP32, 1)
	require.NoError(t, err)
	defer dev.Close()
	for left := 1; ; left++ {
		d := &little{dev, left}
		w, err := model.NewWeights(d, shape(), npu.Weights)
		require.NoError(t, err)
		m, err := New(d, w, Config{Reference: true, Temperature: 1, Optim: optim.Default(),
			Format: optim.FixedPoint(1, 16)})
		if err == nil {
			require.Equal(t, 5, left, "policy, gradients, two moments, reference")
			m.Close()
		} else {
			require.ErrorContains(t, err, "no memory")
		}
		require.Zero(t, dev.Allocated())
		if err == nil {
			return
		}
	}
}
