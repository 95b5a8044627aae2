package evaluate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// subsets calls f with the number of right responses in each way to draw k of n, if the
// first c are right.
func subsets(n, c, k int, f func(right int)) {
	for mask := range 1 << n {
		size, right := 0, 0
		for i := range n {
			if mask>>i&1 == 1 {
				size++
				if i < c {
					right++
				}
			}
		}
		if size == k {
			f(right)
		}
	}
}

func TestEstimatorsCountAllDraws(t *testing.T) {
	for n := 1; n <= 9; n++ {
		for c := 0; c <= n; c++ {
			for k := 1; k <= n; k++ {
				for _, tau := range []float64{0, 0.25, 0.5, 0.75, 1} {
					all, pass, share := 0.0, 0.0, 0.0
					subsets(n, c, k, func(right int) {
						all++
						if right > 0 {
							pass++
						}
						if right >= max(1, int(math.Ceil(tau*float64(k)))) {
							share++
						}
					})
					require.InDelta(t, pass/all, passAtK(n, c, k), 1e-12, "n %d c %d k %d", n, c, k)
					require.InDelta(t, share/all, gPassAtK(n, c, k, tau), 1e-9, "n %d c %d k %d tau %v", n, c, k, tau)
				}
			}
		}
	}
}

func TestLargeCounts(t *testing.T) {
	require.InDelta(t, 1-math.Pow(0.9, 100), passAtK(1_000_000, 100_000, 100), 1e-4)
	require.InDelta(t, 1.0, gPassAtK(100_000, 90_000, 1000, 0.5), 1e-6)
	require.Equal(t, 1.0, passAtK(3, 3, 8))
	require.Equal(t, 0.0, passAtK(3, 0, 8))
}

func TestMeanAtK(t *testing.T) {
	require.Equal(t, 0.0, meanAtK([]float64{0, 0, 1}, 1))
	require.Equal(t, 0.5, meanAtK([]float64{1, 0, 1}, 2))
	require.InDelta(t, 2.0/3, meanAtK([]float64{1, 0, 1}, 8), 1e-12)
	require.Equal(t, 0.0, meanAtK(nil, 2))
}

func TestMajAtK(t *testing.T) {
	for _, row := range []struct {
		name    string
		answers []string
		scores  []float64
		k       int
		want    float64
	}{
		{"no majority: the first", []string{"Paris", "London", "Berlin"}, []float64{1, 0, 0}, 3, 1},
		{"majority wrong", []string{"4", "5", "5"}, []float64{1, 0, 0}, 3, 0},
		{"majority right", []string{"5", "4", "4"}, []float64{0, 1, 1}, 3, 1},
		{"only the first k vote", []string{"5", "4", "4"}, []float64{0, 1, 1}, 1, 0},
		{"missing answers do not vote", []string{"", "", "4"}, []float64{0, 0, 1}, 3, 1},
		{"none", []string{"", ""}, []float64{0, 0}, 2, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			require.Equal(t, row.want, majAtK(row.answers, row.scores, row.k))
		})
	}
}

// draws calls f with every order of every choice of k of n responses, for small n.
func draws(n, k int, f func(drawn []int)) {
	var extend func(drawn []int)
	extend = func(drawn []int) {
		if len(drawn) == k {
			f(drawn)
			return
		}
		for i := range n {
			if !slices.Contains(drawn, i) {
				extend(append(slices.Clone(drawn), i))
			}
		}
	}
	extend(nil)
}

// majMean equals the mean of majAtK over all ordered draws, enumerated here.
func TestMajMeanCountsAllDraws(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for n := 1; n <= 6; n++ {
		for range 40 {
			answers, scores := make([]string, n), make([]float64, n)
			for i := range n {
				answers[i] = []string{"", "a", "b", "c"}[random.IntN(4)]
				scores[i] = float64(random.IntN(3)) / 2 // equal answers may have different scores
			}
			for k := 1; k <= n; k++ {
				sum, all := 0.0, 0.0
				draws(n, k, func(drawn []int) {
					votes := map[string]int{}
					for _, i := range drawn {
						if answers[i] != "" {
							votes[answers[i]]++
						}
					}
					best := 0
					for _, v := range votes {
						best = max(best, v)
					}
					all++
					for _, i := range drawn {
						if answers[i] != "" && votes[answers[i]] == best {
							sum += scores[i]
							return
						}
					}
				})
				require.InDelta(t, sum/all, majMean(answers, scores, k), 1e-12, "%q %v k %d", answers, scores, k)
			}
		}
	}
}

// shared returns what k = n responses score: the most common answer wins, and equally
// common ones win equally often.
func shared(answers []string, scores []float64) float64 {
	votes, most := map[string]int{}, 0
	for _, a := range answers {
		if a != "" {
			votes[a]++
			most = max(most, votes[a])
		}
	}
	sum, n := 0.0, 0
	for i, a := range answers {
		if a != "" && votes[a] == most {
			sum += scores[i]
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return sum / float64(n) // they have equally many votes
}

// maj@k follows one rule for all k: with k = n the sums over draws give the same result,
// whatever the order and number of the responses.
func TestMajMeanOfAll(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 2, 3, 8, 20, maxMajResponses, maxMajResponses + 1, 1000} {
		for range 20 {
			answers, scores := make([]string, n), make([]float64, n)
			for i := range n {
				answers[i] = []string{"", "a", "b", "c"}[random.IntN(4)]
				scores[i] = float64(random.IntN(3)) / 2
			}
			want := shared(answers, scores)
			require.InDelta(t, want, majMean(answers, scores, n), 1e-12, "%q", answers)
			if n <= maxMajResponses {
				silent, candidates := tally(answers, scores)
				drawn := 0.0
				for votes := 1; votes <= n; votes++ {
					drawn += wonWith(votes, n, silent, candidates)
				}
				require.InDelta(t, want, drawn, 1e-9, "%q", answers)
			}
			random.Shuffle(n, func(i, j int) {
				answers[i], answers[j] = answers[j], answers[i]
				scores[i], scores[j] = scores[j], scores[i]
			})
			require.InDelta(t, want, majMean(answers, scores, n), 1e-12, "%q", answers)
		}
	}
	require.Equal(t, 0.5, majMean([]string{"a", "b"}, []float64{1, 0}, 2))
	require.Equal(t, 0.5, majMean([]string{"b", "a"}, []float64{0, 1}, 9), "k above n counts as n")
}

// Over many groups of n fresh responses, the mean of majMean of k equals that of majAtK of
// k fresh ones, computed here from the probability of each outcome.
func TestMajMeanIsUnbiased(t *testing.T) {
	chance := map[string]float64{"a": 0.5, "b": 0.3, "": 0.2}
	names, right := []string{"a", "b", ""}, map[string]float64{"a": 1}
	expected := func(n int, f func(answers []string, scores []float64) float64) float64 {
		total := 0.0
		var extend func(answers []string, scores []float64, p float64)
		extend = func(answers []string, scores []float64, p float64) {
			if len(answers) == n {
				total += p * f(answers, scores)
				return
			}
			for _, a := range names {
				extend(append(slices.Clone(answers), a), append(slices.Clone(scores), right[a]), p*chance[a])
			}
		}
		extend(nil, nil, 1)
		return total
	}
	for k := 1; k <= 5; k++ {
		fresh := expected(k, func(a []string, s []float64) float64 { return majAtK(a, s, k) })
		require.InDelta(t, fresh, expected(7, func(a []string, s []float64) float64 { return majMean(a, s, k) }),
			1e-12, "k %d", k)
	}
}

func TestMajMeanOfMany(t *testing.T) {
	answers, scores := make([]string, maxMajResponses), make([]float64, maxMajResponses)
	for i := range answers { // 60% right, the others all equal
		answers[i] = "right"
		scores[i] = 1
		if i%5 < 2 {
			answers[i], scores[i] = "wrong", 0
		}
	}
	require.InDelta(t, float64(76)/128, majMean(answers, scores, 1), 1e-12)
	require.InDelta(t, float64(76)/128, majMean(answers, scores, 2), 1e-12, "a draw of one each is shared")
	require.Greater(t, majMean(answers, scores, 100), 0.99)
	require.InDelta(t, 1, majMean(answers, scores, maxMajResponses), 1e-9)
	require.Equal(t, 0.0, majMean(make([]string, 9), make([]float64, 9), 4))
}

func TestStdErr(t *testing.T) {
	require.InDelta(t, math.Sqrt((1+1)/1.0/2), standardError([]float64{0, 2}), 1e-12)
	require.InDelta(t, math.Sqrt(0.5*0.5*100/99/100), standardError(slices.Repeat([]float64{0, 1}, 50)), 1e-12,
		"that of a share of 100")
	require.Equal(t, 0.0, standardError([]float64{0.3, 0.3, 0.3}))
	require.True(t, math.IsNaN(standardError([]float64{1})))
}

func BenchmarkMajMean(b *testing.B) {
	for _, k := range []int{16, 64, maxMajResponses} {
		b.Run(fmt.Sprint(k), func(b *testing.B) {
			random := rand.New(rand.NewPCG(1, 2))
			answers, scores := make([]string, k), make([]float64, k)
			for i := range answers {
				answers[i] = fmt.Sprint(random.IntN(k / 2))
			}
			for b.Loop() {
				for j := 2; j < k; j *= 2 {
					majMean(answers, scores, j)
				}
			}
		})
	}
}

func TestNoneRight(t *testing.T) {
	t.Parallel()
	sets := []Set{{Name: "a"}, {Name: "b"}}
	require.True(t, NoneRight(map[string]float64{"eval/a/pass@4": 0, "eval/b/pass@4": 0, "eval/b/mean@4": .5}, sets, 4))
	require.False(t, NoneRight(map[string]float64{"eval/a/pass@4": 0, "eval/b/pass@4": .1}, sets, 4))
}
