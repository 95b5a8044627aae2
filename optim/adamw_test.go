package optim

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
)

// recorder is a device that records the updates it is asked for.
type recorder struct {
	npu.Device
	updated []npu.Buffer
	params  []npu.AdamWParams
	failure error
}

func (r *recorder) AdamW(w, _, _, _ npu.Buffer, p npu.AdamWParams) {
	r.updated, r.params = append(r.updated, w), append(r.params, p)
}

func (r *recorder) SumSquares(x npu.Buffer) float64 {
	sum := 0.0
	for _, v := range x.Float32s() {
		sum += float64(v) * float64(v)
	}
	return sum
}

func (r *recorder) Sync() error { return r.failure }

func hostParam(name string, decay bool, g ...float32) Param {
	buffer := func() npu.Buffer { return npu.HostBuffer(make([]float32, len(g))) }
	return Param{Name: name, W: buffer(), G: npu.HostBuffer(g), M: buffer(), V: buffer(), Decay: decay}
}

func TestStepUpdatesEachParameterOnce(t *testing.T) {
	t.Parallel()
	cfg := Config{LR: 1, Schedule: Constant, Beta2: 0.95, WeightDecay: 0.01}
	a, err := NewAdamW(cfg)
	require.NoError(t, err)
	dev := &recorder{}
	params := []Param{hostParam("q_proj.weight", true, 1, 2), hostParam("norm.weight", false, 3)}
	require.NoError(t, a.Step(dev, params, 0.5, 0.25))
	require.NoError(t, a.Step(dev, params, 2, 0.125))
	require.Equal(t, 2, a.Updates)
	require.Equal(t, []npu.Buffer{params[0].W, params[1].W, params[0].W, params[1].W}, dev.updated)
	common := npu.AdamWParams{LR: 0.25, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, GradScale: 0.5, Step: 1}
	decayed := common
	decayed.WeightDecay = 0.01
	require.Equal(t, decayed, dev.params[0])
	require.Equal(t, common, dev.params[1])
	common.Step, common.LR, common.GradScale = 2, 0.125, 2
	require.Equal(t, common, dev.params[3])
}

func TestStepRefusesAndReports(t *testing.T) {
	t.Parallel()
	a, err := NewAdamW(Default())
	require.NoError(t, err)
	dev := &recorder{}
	require.ErrorIs(t, a.Step(dev, nil, math.NaN(), 1), ErrNonFinite)
	require.ErrorIs(t, a.Step(dev, nil, 1, math.Inf(1)), ErrNonFinite)
	require.Zero(t, a.Updates)
	dev.failure = errors.New("device lost")
	require.EqualError(t, a.Step(dev, nil, 1, 1), "optimizer step 1: device lost")
	_, err = GradNorm(dev, nil)
	require.EqualError(t, err, "gradient norm: device lost")
}

func TestGradNorm(t *testing.T) {
	t.Parallel()
	dev := &recorder{}
	norm, err := GradNorm(dev, []Param{hostParam("a", true, 3, 0), hostParam("b", true, 4), hostParam("c", false, 12)})
	require.NoError(t, err)
	require.Equal(t, 13.0, norm)
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		_, err = GradNorm(dev, []Param{hostParam("a", true, 3, 0), hostParam("layers.1.up_proj.weight", true, 1, bad), hostParam("c", true, bad)})
		require.ErrorIs(t, err, ErrNonFinite)
		require.ErrorContains(t, err, "layers.1.up_proj.weight")
	}
	norm, err = GradNorm(dev, nil)
	require.NoError(t, err)
	require.Zero(t, norm)
}
