package nputest

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/nputest/reference"
)

// testExactDraw compares draws with an implementation in integers of any size, for rows with ties, zeros of
// both signs and tokens of little or no weight, and for the smallest and the largest draw.
func testExactDraw(t *testing.T, d npu.Device) {
	r := rand.New(rand.NewPCG(5, 6))
	last := math.Nextafter32(1, 0)
	require.EqualValues(t, 1-0x1p-24, last)
	for _, vocab := range []int{1, 3, 16, 18, 37, 1500, 5000} {
		for _, kind := range []string{"normal", "ties", "zeros", "light", "tails"} {
			row := normal(r, vocab, 2)
			for i := range row {
				switch kind {
				case "ties":
					row[i] = float32(r.IntN(4))
				case "zeros": // both signs tie
					row[i] = float32(math.Copysign(0, float64(row[i])))
				case "light": // a weight of 1 is lost unless three quarters of it are rounded up
					row[i] = 0
					if i > 0 && i >= vocab-2 {
						row[i] = float32(-44*math.Ln2 + math.Log(0.75))
					}
				case "tails":
					row[i] *= 30 // most weights are 0
					if i == 0 && vocab > 1 {
						row[i] = float32(math.Inf(-1))
					}
				}
			}
			for _, p := range append(sampleSettings(), npu.SampleParams{Temperature: 0.8, TopP: 0.5, TopK: 2},
				npu.SampleParams{Temperature: 1, TopP: 0}, npu.SampleParams{Temperature: 1, TopP: 0.5},
				npu.SampleParams{Temperature: 0.7, TopP: 1, TopK: 1}) {
				var params []npu.SampleParams
				var logits []float32
				for _, u := range []float32{0, 0x1p-24, 0.5, r.Float32(), r.Float32(), last} {
					p.Uniform = u
					params, logits = append(params, p), append(logits, row...)
				}
				ids, _ := drawn(t, d, logits, vocab, params...)
				weights, _ := termsOf(t, d, row, 1/p.Temperature)
				for i, p := range params {
					require.Equal(t, exactDraw(row, weights, p), int(ids[i]),
						fmt.Sprintf("%s, vocabulary of %d, %+v", kind, vocab, p))
				}
			}
		}
	}
}

// termsOf returns the terms of a row's two sums, which are the sums of a vocabulary of one token.
func termsOf(t *testing.T, d npu.Device, row []float32, invTemp float32) (z, u []int64) {
	t.Helper()
	m := newMemory(t, d)
	defer m.free()
	n, top := len(row), m.nan(1)
	d.SoftmaxMax(top, m.put(row), 1, invTemp)
	sums := m.alloc(npu.Int64, n*npu.SoftmaxSums)
	d.SoftmaxSum(sums, m.put(filled(n, m.get(top)[0])), m.put(row), m.ints(make([]int32, n)...), 0, invTemp, false)
	for sums := range slices.Chunk(m.getLongs(sums), npu.SoftmaxSums) {
		z, u = append(z, sums[0]), append(u, sums[1])
	}
	return z, u
}

// testTerms requires each term of the sums to be the nearest integer, up to the error of the exponential.
func testTerms(t *testing.T, d npu.Device) {
	var row []float32
	for diff := 0.0; diff > -110; diff -= 0.0137 {
		row = append(row, float32(diff))
	}
	z, u := termsOf(t, d, row, 1)
	for i, diff := range row {
		e := math.Exp(float64(diff)) * 0x1p44
		weighted := e * float64(diff)
		require.InDelta(t, e, float64(z[i]), 0.5+2e-7*e, "difference %v", diff)
		require.InDelta(t, weighted, float64(u[i]), 0.5+2e-7*math.Abs(weighted), "difference %v", diff)
	}
	require.EqualValues(t, 1<<44, z[0])
}

// exactDraw is npu.Device.Sample for one row, given the weights of its tokens.
func exactDraw(row []float32, weights []int64, p npu.SampleParams) int {
	order := make([]int, len(row))
	for i := range order {
		order[i] = i
	}
	score := func(i int) float32 { return row[i] * (1 / p.Temperature) }
	sort.SliceStable(order, func(a, b int) bool { return score(order[a]) > score(order[b]) })
	if p.TopK > 0 {
		order = order[:min(len(order), int(p.TopK))]
	}
	// prefix returns the length of the shortest prefix of ids whose weights add up to at least goal, and the sum.
	prefix := func(ids []int, goal *big.Int) (n int, sum *big.Int) {
		sum = new(big.Int)
		for n < len(ids) && (n == 0 || sum.Cmp(goal) < 0) {
			sum.Add(sum, big.NewInt(weights[ids[n]]))
			n++
		}
		return n, sum
	}
	all := new(big.Int).Lsh(big.NewInt(1), 63)
	if p.TopP < 1 {
		_, total := prefix(order, all)
		goal, _ := big.NewFloat(float64(total.Int64()) * float64(p.TopP)).Int(nil)
		n, _ := prefix(order, goal)
		order = order[:n]
	}
	ids := []int{order[0]}
	for _, id := range order[1:] {
		if float32(float64(weights[id])*0x1p-44) >= p.MinP || weights[id] == weights[order[0]] {
			ids = append(ids, id)
		}
	}
	sort.Ints(ids)
	_, total := prefix(ids, all)
	goal := new(big.Int).Mul(total, big.NewInt(int64(p.Uniform*0x1p24)))
	n, _ := prefix(ids, goal.Add(goal.Rsh(goal, 24), big.NewInt(1)))
	return ids[n-1]
}

// testChiSquare draws many tokens and tests their counts against the distribution (Pearson 1900).
func testChiSquare(t *testing.T, d npu.Device) {
	const vocab, draws = 12, 5_000
	for n, p := range sampleSettings() {
		r := rand.New(rand.NewPCG(uint64(n), 8))
		row := normal(r, vocab, 1)
		params, logits := make([]npu.SampleParams, draws), make([]float32, 0, draws*vocab)
		for i := range params {
			params[i] = p
			params[i].Uniform = r.Float32()
			logits = append(logits, row...)
		}
		counts := make([]float64, vocab)
		ids, _ := drawn(t, d, logits, vocab, params...)
		for _, id := range ids {
			counts[id]++
		}
		statistic := 0.0
		for i, want := range reference.Distribution(row, p) {
			if want == 0 {
				require.Zero(t, counts[i], "%+v: token %d", p, i)
				continue
			}
			off := counts[i] - want*draws
			statistic += off * off / (want * draws)
		}
		require.Less(t, statistic, 33.0, "%+v", p) // with 11 degrees of freedom, 33 is exceeded once in 1,900 tests
	}
}
