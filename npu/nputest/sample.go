package nputest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/soak"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/nputest/reference"
)

// sample draws a token for each row and waits. It returns the error of Sync.
func sample(t *testing.T, d npu.Device, logits []float32, vocab int, params []npu.SampleParams) (
	ids []int32, logp []float32, err error) {
	t.Helper()
	m := newMemory(t, d)
	defer m.free()
	to, toLogp := m.alloc(npu.Int32, len(params)), m.nan(len(params))
	d.Sample(to, toLogp, m.put(logits), vocab, m.params(params))
	ids, logp = make([]int32, len(params)), make([]float32, len(params))
	d.DownloadInts(ids, to)
	d.Download(logp, toLogp)
	return ids, logp, d.Sync()
}

// drawn is sample for finite logits, which must not fail.
func drawn(t *testing.T, d npu.Device, logits []float32, vocab int, params ...npu.SampleParams) ([]int32, []float32) {
	t.Helper()
	ids, logp, err := sample(t, d, logits, vocab, params)
	require.NoError(t, err)
	return ids, logp
}

// testSample checks the drawing of tokens.
func testSample(t *testing.T, open func(threads int) (npu.Device, error)) {
	d := device(t, open, 1)
	t.Run("greedy", func(t *testing.T) {
		logits := []float32{1, 3, -2, 3, 2, -1, -1, float32(math.Inf(-1)), -1, -4}
		ids, logp := drawn(t, d, logits, 5, npu.SampleParams{TopP: 1}, npu.SampleParams{TopP: 1, Uniform: 0.99})
		require.Equal(t, []int32{1, 0}, ids, "the lowest id among equals")
		require.InDelta(t, 3-math.Log(math.Exp(1)+2*math.Exp(3)+math.Exp(-2)+math.Exp(2)), logp[0], 1e-6)
		require.InDelta(t, -1-math.Log(3*math.Exp(-1)+math.Exp(-4)), logp[1], 1e-6)
	})
	if numerics(d) == npu.FP32 || soak.Long() { // logits are float32 in both
		t.Run("distribution", func(t *testing.T) { testDistribution(t, d) })
		t.Run("chi-square", func(t *testing.T) { testChiSquare(t, d) })
		t.Run("integers", func(t *testing.T) {
			exactOnly(t, d)
			testTerms(t, d)
			testExactDraw(t, d)
		})
	}
	t.Run("ties", func(t *testing.T) {
		logits := []float32{0, 2, 1, 2, 2, 1}
		for k, want := range map[int32][]int32{1: {1, 1}, 2: {1, 3}, 3: {1, 4}, 4: {1, 4}, 5: {1, 5}, 6: {0, 5}} {
			p := npu.SampleParams{Temperature: 1, TopP: 1, TopK: k}
			high := p
			high.Uniform = math.Nextafter32(1, 0)
			ids, _ := drawn(t, d, append(append([]float32{}, logits...), logits...), 6, p, high)
			require.Equal(t, want, ids, "top-k %d", k)
		}
	})
	t.Run("limits keep the likeliest", func(t *testing.T) {
		logits := []float32{1, 5, 5, -3}
		for _, p := range []npu.SampleParams{{TopP: 1e-9}, {TopP: 0}, {TopP: 1, MinP: 1}, {TopP: 0, MinP: 2, TopK: 1}} {
			p.Temperature = 0.5
			ids, _ := drawn(t, d, logits, 4, p)
			require.Equal(t, []int32{1}, ids, "%+v", p)
		}
	})
	t.Run("not finite", func(t *testing.T) {
		nan, inf := float32(math.NaN()), float32(math.Inf(1))
		for _, bad := range [][]float32{{0, nan, 1}, {nan, nan, nan}, {0, inf, 1}, {-inf, -inf, -inf}} {
			for _, temperature := range []float32{0, 1} {
				p := npu.SampleParams{Temperature: temperature, TopP: 1}
				ids, logp, err := sample(t, d, append([]float32{1, 2, 3}, bad...), 3, []npu.SampleParams{p, p})
				require.ErrorContains(t, err, "sample: logits of row 1 are not finite", "%v", bad)
				require.NoError(t, d.Sync(), "a failure is reported once")
				require.False(t, math.IsNaN(float64(logp[0])))
				require.True(t, math.IsNaN(float64(logp[1])))
				require.GreaterOrEqual(t, ids[1], int32(0))
			}
		}
	})
	t.Run("failure", func(t *testing.T) { testFailure(t, d) })
	t.Run("threads", func(t *testing.T) {
		sameSample(t, d, teams(t, open, 3))
	})
}

// testFailure requires Sync and the sums of squares to report the first of two failures, once. Transfers do
// not report it.
func testFailure(t *testing.T, d npu.Device) {
	m := newMemory(t, d)
	defer m.free()
	ids, logp, w := m.alloc(npu.Int32, 3), m.nan(3), m.putMatrix(ramp(6), 2, 3)
	params := m.params(make([]npu.SampleParams, 3))
	fail := func(row int) {
		logits := make([]float32, 6)
		logits[2*row] = float32(math.NaN())
		d.Sample(ids, logp, m.put(logits), 2, params)
	}
	reports := map[string]func() error{
		"sync":           d.Sync,
		"sum of squares": func() error { return d.SumSquares(make([]float64, 1), []npu.Buffer{logp}) },
		"exact sum of squares": func() error {
			return d.SumSquaresExact(make([]npu.Squares, 1), []npu.Sums{m.sums(3)})
		},
	}
	for name, report := range reports {
		fail(2)
		fail(0)
		d.Download(make([]float32, 3), logp)
		d.UnpackMatrix(make([]float32, 6), w)
		require.ErrorContains(t, report(), "sample: logits of row 2 are not finite", name)
		require.NoError(t, d.Sync(), name)
	}
}

// sampleSettings returns parameters with each limit alone and with several limits together.
func sampleSettings() []npu.SampleParams {
	return []npu.SampleParams{
		{Temperature: 1, TopP: 1},
		{Temperature: 0.6, TopP: 1},
		{Temperature: 1, TopP: 0.8},
		{Temperature: 1.3, TopP: 1, TopK: 5},
		{Temperature: 1, TopP: 0.7, TopK: 9},
		{Temperature: 1, TopP: 1, MinP: 0.1},
		{Temperature: 0.9, TopP: 0.95, TopK: 20, MinP: 0.05},
		{Temperature: 1, TopP: 1, TopK: 1000},
	}
}

// testDistribution steps uniform through [0, 1) and compares how often each token is
// drawn with its probability. Sampling inverts the distribution function, so the two
// agree to within one step.
func testDistribution(t *testing.T, d npu.Device) {
	const steps = 2000
	for n, p := range sampleSettings() {
		for _, vocab := range []int{1, 2, 17, 40} {
			row := normal(rand.New(rand.NewPCG(uint64(vocab), uint64(n))), vocab, 2)
			var logits []float32
			params, want, got := make([]npu.SampleParams, steps), reference.Distribution(row, p), make([]float64, vocab)
			for i := range params {
				params[i] = p
				params[i].Uniform = float32(i) / steps
				logits = append(logits, row...)
			}
			ids, logp := drawn(t, d, logits, vocab, params...)
			for i, id := range ids {
				got[id]++
				require.True(t, i == 0 || ids[i-1] <= id, "ids ascend with uniform")
			}
			free := npu.SampleParams{Temperature: p.Temperature, TopP: 1}
			all := reference.Distribution(row, free)
			require.InDelta(t, math.Log(all[ids[0]]), logp[0], 1e-5, "limits leave the reported log-probability alone")
			for i := range want {
				require.InDelta(t, want[i], got[i]/steps, 1.5/steps, "%+v, token %d of %d", p, i, vocab)
			}
		}
	}
}

func sameSample(t *testing.T, want npu.Device, got []npu.Device) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, vocab := range []int{1, 15, 33, 300, 5000} {
		for _, p := range sampleSettings() {
			params := make([]npu.SampleParams, 9)
			for i := range params {
				params[i] = p
				params[i].Uniform = r.Float32()
				if i == 4 {
					params[i].Temperature = 0
				}
			}
			logits := normal(r, len(params)*vocab, 3)
			for i := range logits {
				if i%3 == 0 { // ties
					logits[i] = float32(math.Round(float64(logits[i])))
				}
			}
			ids, logp := drawn(t, want, logits, vocab, params...)
			for _, d := range got {
				name := fmt.Sprintf("%s: vocabulary of %d, %+v", d.Info().Name, vocab, p)
				ids2, logp2 := drawn(t, d, logits, vocab, params...)
				require.Equal(t, ids, ids2, name)
				equal(t, name+": logp", logp, logp2)
			}
		}
	}
}
