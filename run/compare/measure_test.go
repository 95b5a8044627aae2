package compare

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report"
)

// drifting is a machine whose speed drifts from run to run and which slows down a
// quarter of the steps.
type drifting struct {
	rand        *rand.Rand
	pace, clock float64
}

// runs returns three repeats of 11 steps for each of the given nominal step times, in
// seconds.
func (d *drifting) runs(seconds ...float64) []Result {
	all := make([]Result, len(seconds))
	for range 3 {
		for i, should := range seconds {
			d.pace = 0.9*d.pace + 0.08*d.rand.NormFloat64()
			steps := map[int]report.Values{}
			for step := range 11 {
				took := should * (1 + 0.1*float64(step)) * math.Exp(d.pace+0.05*d.rand.NormFloat64())
				if d.rand.Float64() < 0.25 {
					took *= 1 + d.rand.Float64()
				}
				d.clock += took
				steps[step] = report.Values{"time": d.clock, "timing_s/step": took, "tokens/response": 1000}
			}
			all[i].repeats = append(all[i].repeats, steps)
		}
	}
	return all
}

// The estimated gain is close to the one on a calm machine, and reproducible: for most
// drifts within a tenth, and far more often than a quotient of fastest times.
func TestSpeedupUnderDrift(t *testing.T) {
	t.Parallel()
	const trials, calm = 300, 1.25
	var near, nearFastest, verified, verifiedFastest int
	within := func(x, of, part float64) int {
		if math.Abs(x/of-1) < part {
			return 1
		}
		return 0
	}
	total := func(r *Result) (sum float64) {
		for _, v := range fastest(r.repeats) {
			sum += v["timing_s/step"]
		}
		return sum
	}
	for seed := range uint64(trials) {
		machine := &drifting{rand: rand.New(rand.NewPCG(seed, 1))}
		runs := machine.runs(1, 0.9, 1/calm)
		again := machine.runs(1, 1/calm)
		against(&runs[0], runs)
		against(&again[0], again)
		require.InDelta(t, 1, runs[0].Speedup, 1e-12)
		require.LessOrEqual(t, runs[2].Low, runs[2].Speedup)
		require.GreaterOrEqual(t, runs[2].High, runs[2].Speedup)
		near += within(runs[2].Speedup, calm, 0.1)
		verified += within(runs[2].Speedup, again[1].Speedup, 0.15)
		nearFastest += within(total(&runs[0])/total(&runs[2]), calm, 0.1)
		verifiedFastest += within(total(&runs[0])/total(&runs[2]), total(&again[0])/total(&again[1]), 0.15)
	}
	t.Logf("of %d trials: gain %d, verified %d; from the fastest steps %d, verified %d", trials, near, verified,
		nearFastest, verifiedFastest)
	require.Greater(t, near, trials*88/100)
	require.Greater(t, verified, trials*94/100)
	require.Greater(t, trials-nearFastest, 3*(trials-near)/2)
	require.Greater(t, trials-verifiedFastest, 3*(trials-verified)/2)
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	even := []ratio{{3, 1}, {1, 1}, {2, 1}}
	require.InDelta(t, 2, quantile(even, 0.5), 1e-9)
	require.InDelta(t, 1.25, quantile(even, 0.25), 1e-9)
	require.InDelta(t, 3, quantile(even, 1), 1e-9)
	require.InDelta(t, 1, quantile(even, 0), 1e-9)
	require.InDelta(t, 1.5, quantile([]ratio{{1, 1}, {2, 1}}, 0.5), 1e-9)
	require.InDelta(t, 1.2, quantile([]ratio{{1, 8}, {2, 2}}, 0.5), 1e-9, "nearer to the ratio of larger weight")
}

// A lead within the spread of the steps does not count.
func TestEquallyFast(t *testing.T) {
	t.Parallel()
	sync := Result{Name: "sync", Speedup: 1, Low: 1, High: 1}
	for _, row := range []struct {
		faster, low, high float64
		want              string
	}{
		{1.02, 1.01, 1.03, "async and sync are equally fast within measurement noise (1.02×)."},
		{1.1, 1.05, 1.15, "async is the fastest: 1.10× as fast as sync."},
		{1.1, 0.8, 1.4, "async and sync are equally fast within measurement noise (1.10×)."},
		{0.98, 0.97, 0.99, "sync and async are equally fast within measurement noise (1.02×)."},
		{1, 1, 1, "sync and async are equally fast within measurement noise (1.00×)."},
	} {
		async := Result{Name: "async", Speedup: row.faster, Low: row.low, High: row.high}
		require.Equal(t, row.want, winner([]Result{sync, async}))
	}
}
