package sharded

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/parallel"
)

func half(lp backend.Outputs) (backend.Values, error) {
	gradient := make([]float32, len(lp.Values[backend.Policy]))
	for i := range gradient {
		gradient[i] = 0.5
	}
	return backend.Values{backend.Policy: gradient}, nil
}

// An error of derive is returned, and the models continue after Discard as if the step had not
// begun. So do they after a cancelled context.
func TestDiscard(t *testing.T) {
	t.Parallel()
	c, cfg := shapes()["qwen3"], config()
	want := hashOf(t, one(t, c, cfg, 2))
	for _, own := range []Config{{Mesh: parallel.Mesh{DP: 2, TP: 2, PP: 2}, Zero: 2},
		{Mesh: parallel.Mesh{DP: 1, TP: 1, PP: 3}}, {Mesh: parallel.Mesh{DP: 1, TP: 2, PP: 1}}} {
		own.Models = cfg
		m := open(t, c, own)
		_, err := m.Publish(t.Context(), 1)
		require.NoError(t, err)
		failure := errors.New("no derivative")
		calls := 0
		for _, l := range layouts(c, 9, 12) {
			if err = m.Pass(t.Context(), l, 1, func(lp backend.Outputs) (backend.Values, error) {
				if calls++; calls == 3 {
					return nil, failure
				}
				return half(lp)
			}); err != nil {
				break
			}
		}
		if err == nil {
			err = m.Flush(t.Context())
		}
		require.ErrorIs(t, err, failure)
		m.Discard()
		cancelled, cancel := context.WithCancel(t.Context())
		defer cancel()
		for i, l := range layouts(c, 9, 9) {
			if i == 4 {
				cancel()
			}
			if m.Pass(cancelled, l, 0, half) != nil {
				break
			}
		}
		require.Error(t, m.Flush(cancelled))
		m.Discard()
		require.True(t, m.Idle())
		require.Equal(t, want, hashOf(t, train(t, m, c, 1, 2)), "%s", own.Mesh)
	}
}

// A layout without targets has no rows to compute.
func TestNoTargets(t *testing.T) {
	t.Parallel()
	c := shapes()["llama"]
	m := open(t, c, Config{Mesh: parallel.Mesh{DP: 1, TP: 2, PP: 2}, Models: config()})
	var l attention.Layout
	l.Add(-1, []int32{1, 2, 3}, false)
	require.NoError(t, m.Pass(t.Context(), &l, 0, half))
	require.NoError(t, m.Flush(t.Context()))
	logp, err := m.Score(t.Context(), &l)
	require.NoError(t, err)
	require.Empty(t, logp)
}

// A value out of range on any rank skips the update on all. The error names the parameter, the
// bound and the largest value of all replicas.
func TestNotFinite(t *testing.T) {
	t.Parallel()
	c := shapes()["qwen3"]
	whole := ""
	for _, own := range []Config{{Mesh: parallel.Mesh{DP: 1, TP: 1, PP: 1}}, {Mesh: parallel.Mesh{DP: 3, TP: 1, PP: 1}},
		{Mesh: parallel.Mesh{DP: 2, TP: 1, PP: 2}, Zero: 1}, {Mesh: parallel.Mesh{DP: 2, TP: 1, PP: 1}, Zero: 2},
		{Mesh: parallel.Mesh{DP: 2, TP: 2, PP: 2}},
		{Mesh: parallel.Mesh{DP: 2, TP: 2, PP: 1}, Zero: 2, Sequence: true}} {
		own.Models = config()
		own.Models.Format = npu.FixedPoint{Scale: own.Models.Format.Scale, Limit: 1}
		m := open(t, c, own)
		_, err := m.Publish(t.Context(), 1)
		require.NoError(t, err)
		for _, l := range layouts(c, 3, 4) {
			require.NoError(t, m.Pass(t.Context(), l, 1, half))
		}
		_, err = m.Step(t.Context(), backend.Update{Number: 1, Scale: 1, LR: 1e-3})
		require.ErrorIs(t, err, optim.ErrNonFinite)
		require.ErrorIs(t, err, optim.ErrOutOfRange)
		require.Regexp(t, `^gradient of model\.[a-z_.0-9]+: a value of a leaf is [0-9.e+-]+ in magnitude, `+
			`expected at most [0-9.e+-]+, the bound of the fixed-point sums of gradients$`, err.Error())
		if whole == "" {
			whole = err.Error()
		}
		if own.Mesh.TP == 1 { // otherwise the value is the largest of a part
			require.Equal(t, whole, err.Error(), "%+v", own)
		}
		require.NoError(t, m.CheckFinite())
	}
}

// bad is a device that fails or panics when it has been used some times.
type bad struct {
	npu.Device
	left   int
	panics bool
}

func (d *bad) SwiGLU(y, gate, up npu.Buffer) {
	if d.left--; d.left == 0 && d.panics {
		panic("broken kernel")
	}
	d.Device.SwiGLU(y, gate, up)
}

func (d *bad) Sync() error {
	if d.left <= 0 && !d.panics {
		return errors.New("device lost")
	}
	return d.Device.Sync()
}

// forks is a device whose third fork is bad.
type forks struct {
	npu.Device
	bad *bad
	n   int
}

func (d *forks) Fork(threads int) (npu.Device, error) {
	dev, err := d.Device.Fork(threads)
	if d.n++; d.n == 3 && err == nil {
		d.bad.Device = dev
		return d.bad, nil
	}
	return dev, err
}

// If a rank fails or panics, every call returns an error that names it, and nothing hangs.
func TestRankFails(t *testing.T) {
	t.Parallel()
	c := shapes()["llama"]
	for _, mesh := range []parallel.Mesh{{DP: 2, TP: 2, PP: 1}, {DP: 1, TP: 2, PP: 2}, {DP: 1, TP: 1, PP: 3}} {
		for _, fault := range []bad{{left: 6}, {left: 6, panics: true}} {
			dev := &forks{Device: openCPU(t, 1), bad: &fault}
			var ends []parallel.Transport
			for _, end := range parallel.NewLocal(mesh.Size()) {
				ends = append(ends, end)
			}
			m, err := New(t.Context(), dev, c, drawn(c), Config{Mesh: mesh, Models: config()}, ends, 1)
			require.NoError(t, err)
			for err == nil {
				for _, l := range layouts(c, 3, 9) {
					if err = m.Pass(t.Context(), l, 0, half); err != nil {
						break
					}
				}
				if err == nil {
					err = m.Flush(t.Context())
				}
			}
			var failed *parallel.RankError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, 2, failed.Rank)
			require.ErrorContains(t, err, "rank 2: ")
			if fault.panics {
				require.ErrorContains(t, err, "broken kernel")
			} else {
				require.ErrorContains(t, err, "device lost")
			}
			m.Discard()
			_, err = m.Capture(t.Context(), 1)
			require.ErrorContains(t, err, "rank 2")
			m.Close()
		}
	}
}

// An answer to another command than the trainer's ends the run: answers after it would mix too.
func TestAnswerToAnotherCommand(t *testing.T) {
	t.Parallel()
	m := open(t, shapes()["llama"], Config{Mesh: parallel.Mesh{DP: 2, TP: 1, PP: 1}, Models: config()})
	w := m.Current()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		w.ranks[1].direct <- answer{Action: score}
	}()
	_, err := w.answer(w.ranks[1], barrier)
	<-sent
	require.ErrorContains(t, err, "rank answers command")
	require.Equal(t, err, m.Flush(t.Context()), "later calls return it, and Close ends")
}
