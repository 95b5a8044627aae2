package loss

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDefaultIsValid(t *testing.T) {
	t.Parallel()
	cfg := Default()
	require.NoError(t, cfg.Validate())
}

func TestValidateReportsAllFaults(t *testing.T) {
	t.Parallel()
	cfg := Config{
		Kind: "ppo", EpsilonLow: 1.5, EpsilonHigh: -0.1, Beta: math.NaN(), KL: "k4",
		Aggregation: "mean", Advantage: "z", OldPolicy: "older",
		DualClip: 0.5, Correction: "clip", CorrectionLow: 2, CorrectionHigh: 0.5, Keep: -1,
	}
	err := cfg.Validate()
	require.Error(t, err)
	faults := strings.Split(err.Error(), "\n")
	require.Equal(t, []string{
		`kind is "ppo", expected "` + strings.Join(kinds(), `", "`) + `"`,
		`epsilon_low is 1.5, expected 0 to 1`,
		`epsilon_high is -0.1, expected 0 or more`,
		`dual_clip is 0.5, expected 0, or 1 or more`,
		`beta is NaN, expected 0 or more`,
		`kl is "k4", expected "k2", "k3"`,
		`aggregation is "mean", expected "sequence-mean", "token-mean", "constant"`,
		`advantage is "z", expected "group", "group-mean", "leave-one-out", "reward", "batch", "batch-baseline"`,
		`old_policy is "older", expected "behaviour", "previous-step"`,
		`correction is "clip", expected "none", "truncate", "mask"`,
		`correction_low is 2, expected 0 to 1`,
		`correction_high is 0.5, expected 1 or more`,
		`keep is -1, expected 0 or more`,
	}, faults)
	_, err = New(cfg)
	require.ErrorContains(t, err, "new loss: kind is")
}

// The gradient of k1 is that of log π, so it cannot hold the policy at the reference.
func TestK1IsRefused(t *testing.T) {
	t.Parallel()
	cfg := Default()
	cfg.KL, cfg.Beta = "k1", 0.1
	require.EqualError(t, cfg.Validate(),
		`kl is "k1", expected "k3" or "k2": the gradient of k1 = log π - log π_ref does not depend on the `+
			`reference, so it cannot keep the policy near it`)
}

func TestAdvantages(t *testing.T) {
	t.Parallel()
	third := 1.0 / 3
	for _, row := range []struct {
		name    string
		kind    string
		rewards []float64
		want    []float64
	}{
		{"empty", GroupAdvantage, nil, []float64{}},
		{"one", GroupAdvantage, []float64{3}, []float64{0}},
		{"one, mean", GroupMeanAdvantage, []float64{3}, []float64{0}},
		{"equal", GroupAdvantage, []float64{0.1, 0.1, 0.1}, []float64{0, 0, 0}},
		{"equal, mean", GroupMeanAdvantage, []float64{0.7, 0.7, 0.7}, []float64{0, 0, 0}},
		{"two", GroupAdvantage, []float64{1, 0}, []float64{0.5 / (math.Sqrt2/2 + 1e-4), -0.5 / (math.Sqrt2/2 + 1e-4)}},
		{"two, mean", GroupMeanAdvantage, []float64{1, 0}, []float64{0.5, -0.5}},
		{"half", GroupAdvantage, []float64{1, 0, 0, 1}, []float64{
			0.5 / (math.Sqrt(third) + 1e-4), -0.5 / (math.Sqrt(third) + 1e-4),
			-0.5 / (math.Sqrt(third) + 1e-4), 0.5 / (math.Sqrt(third) + 1e-4),
		}},
		{"negative", GroupMeanAdvantage, []float64{-3, -1, -2}, []float64{-1, 1, 0}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got := Advantages(row.kind, row.rewards)
			require.Len(t, got, len(row.want))
			for i := range got {
				require.InDelta(t, row.want[i], got[i], 1e-12)
				if row.want[i] == 0 && strings.HasPrefix(row.name, "equal") {
					require.Equal(t, 0.0, got[i])
				}
			}
		})
	}
}

func TestAdvantagesOfRoundingNoiseAreSmall(t *testing.T) {
	t.Parallel()
	a, b := 0.1, 0.2
	for _, v := range Advantages(GroupAdvantage, []float64{a + b, 0.3, 0.3}) {
		require.InDelta(t, 0, v, 1e-9)
	}
}

func TestAdvantagesKeepNonFinite(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{GroupAdvantage, GroupMeanAdvantage} {
		for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			for _, v := range Advantages(kind, []float64{1, bad, 0}) {
				require.True(t, math.IsNaN(v))
			}
		}
		for _, v := range Advantages(kind, []float64{math.Inf(1), math.Inf(1)}) {
			require.True(t, math.IsNaN(v))
		}
	}
	require.Panics(t, func() { Advantages("rank", []float64{1}) })
}

// The three aggregations of a step with responses of 2 and 3 tokens and one of
// 5 that has no gradient, against the means written out.
func TestAggregation(t *testing.T) {
	t.Parallel()
	lengths := []int{2, 3, 5}
	tokens := [][]float64{{1, 3}, {2, 4, 6}, {0, 0, 0, 0, 0}}
	for _, row := range []struct {
		kind Aggregation
		want float64
	}{
		{SequenceMean, ((1.0+3)/2 + (2.0+4+6)/3 + 0) / 3},
		{TokenMean, (1.0 + 3 + 2 + 4 + 6) / 10},
		{Constant, ((1.0+3)/8 + (2.0+4+6)/8) / 3},
	} {
		t.Run(string(row.kind), func(t *testing.T) {
			t.Parallel()
			sum := 0.0
			for i, response := range tokens {
				for _, loss := range response {
					sum += float64(row.kind.Weight(lengths[i])) * loss
				}
			}
			require.InDelta(t, row.want, sum/row.kind.Denominator(3, 10, 8), 1e-7)
		})
	}
	require.Equal(t, float32(1), SequenceMean.Weight(0))
}
