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
	updated []npu.Update
	params  []npu.AdamWParams
	failure error
}

func (r *recorder) AdamW(updates []npu.Update, p npu.AdamWParams) {
	r.updated, r.params = append(r.updated, updates...), append(r.params, p)
}

func (r *recorder) SumSquaresExact(sums []npu.Squares, g []npu.Sums) error {
	for i := range g {
		for _, v := range g[i].Int64s() {
			sums[i].Sum[0] += uint64(v * v)
		}
		sums[i].Worst = math.Float32frombits(uint32(g[i].Mark.Int64s()[0]))
	}
	return r.failure
}

func (r *recorder) Sync() error { return r.failure }

func hostParam(name string, decay bool, g ...float32) Param {
	buffer := func() npu.Buffer { return npu.HostBuffer(make([]float32, len(g))) }
	sums := npu.NewSums(npu.HostBuffer(make([]int64, len(g)+1)))
	setSums(sums, g)
	return Param{Name: name, Update: npu.Update{W: buffer(), G: sums, M: buffer(), V: buffer(), Decay: decay}}
}

// format returns the format of the tests' sums.
func format() npu.FixedPoint { return npu.FixedPoint{Scale: 1 << 20, Limit: 1 << 60} }

// setSums sets sums in host memory to the gradients of a leaf. It marks them if one is out of
// range.
func setSums(s npu.Sums, g []float32) {
	s.Mark.Int64s()[0] = 0
	for i, v := range g {
		scaled := v * format().Scale
		if !(scaled <= format().Limit && -scaled <= format().Limit) { //nolint:staticcheck // also true of NaN
			s.Mark.Int64s()[0] = max(s.Mark.Int64s()[0], int64(math.Float32bits(v)&^(1<<31)))
			continue
		}
		s.Int64s()[i] = int64(math.RoundToEven(float64(scaled)))
	}
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
	require.Equal(t, []npu.Update{params[0].Update, params[1].Update, params[0].Update, params[1].Update}, dev.updated)
	want := npu.AdamWParams{LR: 0.25, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.01, GradScale: 0.5, Step: 1}
	require.Equal(t, want, dev.params[0])
	want.Step, want.LR, want.GradScale = 2, 0.125, 2
	require.Equal(t, want, dev.params[1])
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
	_, err = GradNorm(dev, nil, format())
	require.EqualError(t, err, "gradient norm: device lost")
}

func TestGradNorm(t *testing.T) {
	t.Parallel()
	dev := &recorder{}
	norm, err := GradNorm(dev, []Param{hostParam("a", true, 3, 0), hostParam("b", true, 4), hostParam("c", false, 12)},
		format())
	require.NoError(t, err)
	require.Equal(t, 13.0, norm)
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)),
		math.MaxFloat32, -1 << 41} {
		_, err = GradNorm(dev, []Param{hostParam("a", true, 3, 0), hostParam("layers.1.up_proj.weight", true, 1, bad),
			hostParam("c", true, bad)}, format())
		require.ErrorIs(t, err, ErrNonFinite)
		require.ErrorContains(t, err, "layers.1.up_proj.weight")
	}
	split := hostParam("k_norm.weight", true, float32(math.NaN()))
	split.Terms = 3
	_, err = GradNorm(dev, []Param{split}, npu.FixedPoint{Scale: 4, Limit: 1 << 20})
	require.EqualError(t, err, "gradient of k_norm.weight: a value of a leaf is NaN: not finite")
	require.NotErrorIs(t, err, ErrOutOfRange)
	split.G.Mark.Int64s()[0] = int64(math.Float32bits(123456789))
	_, err = GradNorm(dev, []Param{split}, npu.FixedPoint{Scale: 4, Limit: 1 << 20})
	require.EqualError(t, err,
		"gradient of k_norm.weight: a value of a leaf is 1.235e+08 in magnitude, expected at most 6.554e+04, "+
			"the bound of the fixed-point sums of gradients", "a quarter of the leaf's limit")
	require.ErrorIs(t, err, ErrOutOfRange)
	require.ErrorIs(t, err, ErrNonFinite, "it is skipped like one that is not finite")
	norm, err = GradNorm(dev, nil, format())
	require.NoError(t, err)
	require.Zero(t, norm)
}

// The format depends on the bounds alone.
func TestFixedPoint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		divisor float64
		leaves  int
		want    npu.FixedPoint
	}{
		{1, 1, npu.FixedPoint{Scale: 1 << 44, Limit: 1 << 61}},
		{0.5, 0, npu.FixedPoint{Scale: 1 << 44, Limit: 1 << 61}},
		{256, 64, npu.FixedPoint{Scale: 1 << 36, Limit: 1 << 55}},
		{257, 65, npu.FixedPoint{Scale: 1 << 35, Limit: 1 << 54}},
		{1 << 26, 1 << 14, npu.FixedPoint{Scale: 1 << 18, Limit: 1 << 47}},
		{1e30, 3, npu.FixedPoint{Scale: 1, Limit: 1 << 59}},
	} {
		require.Equal(t, c.want, FixedPoint(c.divisor, c.leaves), "divisor %v, %d leaves", c.divisor, c.leaves)
	}
}
