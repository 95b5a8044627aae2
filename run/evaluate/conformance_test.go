package evaluate

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
)

// gPassAtK returns the probability that at least the share tau of k responses is right,
// drawn without replacement from n with c right (Liu et al. 2024, "Are Your LLMs Capable of
// Stable Reasoning?", eq. 2). With tau 0 it equals passAtK.
func gPassAtK(n, c, k int, tau float64) float64 {
	k = min(k, n)
	least := max(1, int(math.Ceil(tau*float64(k))))
	draws, ways := new(big.Int), new(big.Int)
	for right := least; right <= min(c, k); right++ {
		if k-right <= n-c {
			ways.Binomial(int64(c), int64(right))
			draws.Add(draws, ways.Mul(ways, new(big.Int).Binomial(int64(n-c), int64(k-right))))
		}
	}
	share, _ := new(big.Rat).SetFrac(draws, ways.Binomial(int64(n), int64(k))).Float64()
	return share
}

// majAtK returns the score of the most common of the first k answers, the earliest among
// equals (Wang et al. 2022, self-consistency; lighteval's maj@k). scores[i] belongs to
// answers[i]. An empty answer means that the response has none; it does not vote. Unlike
// majMean's, the result depends on the order of the responses.
func majAtK(answers []string, scores []float64, k int) float64 {
	k = min(k, len(answers))
	votes := map[string]int{}
	best, at := 0, -1
	for _, a := range answers[:k] {
		if a != "" {
			votes[a]++
			best = max(best, votes[a])
		}
	}
	for i, a := range answers[:k] {
		if a != "" && votes[a] == best {
			at = i
			break
		}
	}
	if at < 0 {
		return 0
	}
	return scores[at]
}

// lightevalRow is a case of lighteval's tests of its metrics.
type lightevalRow struct {
	Name, Metric string
	Params       struct {
		K, N       int
		Thresholds []float64
	}
	Choices   []string
	Gold      json.RawMessage `json:"gold_index"` // a number, or a list of one
	Responses []string
	Expected  map[string]float64
	Tolerance float64
}

// gold returns the right choice, or its letter if the metric compares letters. A is the
// first choice, whatever its text.
func (r *lightevalRow) gold(t *testing.T) string {
	t.Helper()
	var at []int
	if json.Unmarshal(r.Gold, &at) != nil {
		at = make([]int, 1)
		require.NoError(t, json.Unmarshal(r.Gold, &at[0]))
	}
	if strings.HasSuffix(r.Metric, "_letters") {
		return string(rune('A' + at[0]))
	}
	return r.Choices[at[0]]
}

// meanGPass returns mG-Pass@k (Liu et al. 2024, eq. 3): the mean of G-Pass@k over the
// thresholds above one half.
func meanGPass(n, c, k int) float64 {
	sum := 0.0
	for i := (k+1)/2 + 1; i <= k; i++ {
		sum += gPassAtK(n, c, k, float64(i)/float64(k))
	}
	return 2 * sum / float64(k)
}

// got returns our values of a metric, under lighteval's names.
func (r *lightevalRow) got(t *testing.T) map[string]float64 {
	t.Helper()
	answer, err := json.Marshal(r.gold(t))
	require.NoError(t, err)
	var scores []float64
	right := 0
	for _, response := range r.Responses {
		score := 0.0
		if strings.Contains(r.Metric, "math") || strings.Contains(r.Metric, "expr") {
			s, err := reward.NewMath().Score(t.Context(),
				reward.Input{Prompt: &rollout.Prompt{Answer: answer}, Text: response, Finish: rollout.Stop})
			require.NoError(t, err)
			score = s.Value
		} else if response == r.gold(t) {
			score = 1
		}
		scores = append(scores, score)
		right += int(score)
	}
	k, n := r.Params.K, len(r.Responses)
	switch kind, _, _ := strings.Cut(r.Metric, "_at_k"); kind {
	case "pass":
		require.Equal(t, r.Params.N, n)
		return map[string]float64{fmt.Sprintf("pass@k:k=%d&n=%d", k, n): passAtK(n, right, k)}
	case "maj":
		return map[string]float64{fmt.Sprintf("maj@k:k=%d", k): majAtK(r.Responses, scores, k)}
	case "avg":
		return map[string]float64{fmt.Sprintf("avg@k:k=%d", k): meanAtK(scores, k)}
	case "g_pass":
		out := map[string]float64{fmt.Sprintf("mmath_g-pass@%d", k): meanGPass(n, right, k)}
		for _, tau := range r.Params.Thresholds {
			name := fmt.Sprint(tau)
			if tau == math.Trunc(tau) {
				name += ".0"
			}
			out[fmt.Sprintf("math_g-pass@%d_%s", k, name)] = gPassAtK(n, right, k, tau)
		}
		return out
	case "exact_match":
		return map[string]float64{"em": scores[0]}
	case "expr_gold_metric":
		return map[string]float64{"extractive_match": scores[0]}
	}
	t.Fatalf("metric %q", r.Metric)
	return nil
}

func TestLightevalTable(t *testing.T) {
	t.Parallel()
	folder := os.Getenv("EASYRL_TESTDATA")
	if folder == "" {
		t.Skip("EASYRL_TESTDATA is not set: no table")
	}
	file, err := os.Open(filepath.Join(folder, "conformance", "eval_metrics_lighteval.jsonl"))
	require.NoError(t, err)
	defer file.Close() //nolint:errcheck // only read
	rows := 0
	for lines := bufio.NewScanner(file); lines.Scan(); rows++ {
		var row lightevalRow
		require.NoError(t, json.Unmarshal(lines.Bytes(), &row))
		got := row.got(t)
		for name, want := range row.Expected {
			require.Contains(t, got, name, row.Name)
			require.InDelta(t, want, got[name], row.Tolerance, "%s: %s", row.Name, name)
		}
	}
	require.Equal(t, 17, rows)
}
