package nputest

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
)

// softmax runs the softmax kernels on rows of logits, all as long as the first, at a temperature of 1. Each
// row has its own target and a gradient of logp of 1. dLogits is [rows, V].
func softmax(t *testing.T, d npu.Device, rows [][]float32, targets ...int32) outputs {
	t.Helper()
	m := newMemory(t, d)
	defer m.free()
	n := len(rows)
	x, maxima, sums := m.put(slices.Concat(rows...)), m.nan(n), m.alloc(npu.Int64, n*npu.SoftmaxSums)
	logp, entropy, stats, ids := m.nan(n), m.nan(n), m.nan(2*n), m.ints(targets...)
	d.SoftmaxMax(maxima, x, n, 1)
	d.SoftmaxSum(sums, maxima, x, ids, 0, 1, false)
	d.SoftmaxFinish(logp, entropy, stats, sums, maxima, n)
	dx := m.gradientOf(x)
	d.SoftmaxBackward(dx, x, m.put(filled(n, 1)), stats, ids, 0, 1)
	return outputs{values: map[string][]float32{
		"logp": m.get(logp), "entropy": m.get(entropy), "stats": m.get(stats), "dLogits": m.get(dx)}}
}

// testLargeVocab compares the softmax kernels with float64 over vocabularies of a real model's size and of the
// largest size.
func testLargeVocab(t *testing.T, d npu.Device) {
	for _, vocab := range []int{151_936, npu.MaxVocab} {
		r := rand.New(rand.NewPCG(uint64(vocab), 7))
		dominant, steep := filled(vocab, -2), filled(vocab, -1)
		dominant[vocab-3], steep[0] = 40, 0
		rows := [][]float32{normal(r, vocab, 3), normal(r, vocab, 40), filled(vocab, 0.3), dominant, steep}
		targets := []int32{int32(vocab) / 2, 5, int32(vocab) - 1, int32(vocab) - 3, 1}
		got := softmax(t, d, rows, targets...)
		for i, row := range rows {
			checkSoftmax(t, d, row, targets[i], []float32{got.values["logp"][i], got.values["entropy"][i],
				got.values["stats"][2*i+1]}, got.values["dLogits"][i*vocab:(i+1)*vocab])
		}
	}
}

// checkSoftmax compares logp, entropy and the sum of exponentials, and the gradient, of one row with float64.
func checkSoftmax(t *testing.T, d npu.Device, row []float32, target int32, got, dLogits []float32) {
	t.Helper()
	top, sum, weighted := float64(slices.Max(row)), 0.0, 0.0
	for _, v := range row {
		diff := float64(v) - top
		sum += math.Exp(diff)
		weighted += math.Exp(diff) * diff
	}
	logp := float64(row[target]) - top - math.Log(sum)
	if d.Info().Exact { // then the sums are exact too, apart from each term's rounding
		require.InEpsilon(t, sum, float64(got[2]), 3e-7)
		require.InDelta(t, logp, float64(got[0]), 2e-7*(1+math.Abs(logp)))
		require.InDelta(t, math.Log(sum)-weighted/sum, float64(got[1]), 1.5e-6)
	} else {
		require.InDelta(t, logp, float64(got[0]), 1e-4*(1+math.Abs(logp)))
		require.InDelta(t, math.Log(sum)-weighted/sum, float64(got[1]), 1e-4)
	}
	worst := 0.0
	for j, v := range row {
		want := -math.Exp(float64(v)-top) / sum
		// A difference of two logits is rounded, which changes its exponential by a part of its size.
		allowed := 1e-37 - want*1e-7*(4+math.Abs(float64(v)-top))
		if j == int(target) {
			want++
			allowed += 1e-7
		}
		if numerics(d) == npu.BF16 {
			allowed += math.Abs(want)*0x1p-8 + 0x1p-62
		}
		worst = max(worst, math.Abs(float64(dLogits[j])-want)/allowed)
	}
	require.Less(t, worst, 1.0)
}

// testNotFinite requires NaN for rows without a distribution, and that other rows keep theirs, wherever in a
// row the value lies.
func testNotFinite(t *testing.T, d npu.Device) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	const vocab = 8200 + 13 // a number that leaves a part of a vector
	good := ramp(vocab)
	want := softmax(t, d, [][]float32{good}, 1)
	changed := func(at int, by float32) []float32 {
		row := slices.Clone(good)
		row[at] = by
		return row
	}
	rows := [][]float32{good, changed(5, -inf), filled(vocab, -inf)}
	const finite = 2 // -Inf beside finite logits is a probability of 0
	for _, at := range []int{0, 17, 8176, vocab - 1} {
		rows = append(rows, changed(at, nan), changed(at, math.Float32frombits(0xffc0017f)), changed(at, inf))
	}
	got := softmax(t, d, rows, make([]int32, len(rows))...)
	isNaN := func(x float32) bool { return x != x }
	for i := range rows {
		outcome := append(slices.Clone(got.values["dLogits"][i*vocab:(i+1)*vocab]),
			got.values["logp"][i], got.values["entropy"][i], got.values["stats"][2*i+1])
		if i < finite {
			require.False(t, slices.ContainsFunc(outcome, isNaN), "row %d", i)
		} else {
			require.False(t, slices.ContainsFunc(outcome, func(x float32) bool { return !isNaN(x) }), "row %d", i)
		}
	}
	require.Equal(t, want.values["stats"], got.values["stats"][:2])
	require.Zero(t, got.values["dLogits"][vocab+5])
}
