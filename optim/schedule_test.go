package optim

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSchedule(t *testing.T) {
	t.Parallel()
	const peak = 2e-3
	for _, row := range []struct {
		schedule Schedule
		total    int
		want     map[int]float64 // step to fraction of the peak
	}{
		{Schedule{Kind: Constant}, 10, map[int]float64{1: 1, 5: 1, 10: 1, 99: 1}},
		{Schedule{Kind: Constant, Warmup: 4}, 10, map[int]float64{1: 0.25, 2: 0.5, 3: 0.75, 4: 1, 5: 1, 10: 1}},
		{Schedule{Kind: Linear}, 4, map[int]float64{1: 1, 2: 0.75, 3: 0.5, 4: 0.25, 5: 0, 6: 0}},
		{Schedule{Kind: Linear, Warmup: 10}, 60,
			map[int]float64{1: 0.1, 10: 1, 11: 1, 12: 0.98, 36: 0.5, 60: 0.02, 61: 0}},
		{Schedule{Kind: Linear, Warmup: 20, MinRatio: 0.1}, 450, map[int]float64{
			20: 1, 21: 1, 236: 0.1 + 0.9*0.5, 450: 0.1 + 0.9/430, 451: 0.1, 9000: 0.1,
		}},
		{Schedule{Kind: Cosine}, 4, map[int]float64{
			1: 1, 2: (1 + math.Sqrt2/2) / 2, 3: 0.5, 4: (1 - math.Sqrt2/2) / 2, 5: 0, 50: 0,
		}},
		{Schedule{Kind: Cosine, Warmup: 2, MinRatio: 0.2}, 8, map[int]float64{
			1: 0.5, 2: 1, 3: 1, 5: 0.2 + 0.8*0.75, 6: 0.6, 7: 0.2 + 0.8*0.25, 9: 0.2,
		}},
		{Schedule{Kind: Linear, Warmup: 8}, 4, map[int]float64{1: 0.125, 4: 0.5}},
		{Schedule{Kind: Linear, Warmup: 4}, 4, map[int]float64{4: 1, 5: 0}},
	} {
		s := row.schedule
		s.Peak = peak
		t.Run(fmt.Sprintf("%s/%d/%d", s.Kind, s.Warmup, row.total), func(t *testing.T) {
			t.Parallel()
			for step, fraction := range row.want {
				require.InDelta(t, peak*fraction, s.LR(step, row.total), 1e-15, "step %d", step)
			}
			for step := 1; step <= row.total; step++ {
				require.Positive(t, s.LR(step, row.total))
			}
		})
	}
}

func TestNewSchedule(t *testing.T) {
	t.Parallel()
	cfg := Config{LR: 0.5, Schedule: Linear, Warmup: 3, MinLR: 0.1}
	require.Equal(t, Schedule{Kind: Linear, Peak: 0.5, Warmup: 3, MinRatio: 0.1}, NewSchedule(cfg))
}

func TestConfig(t *testing.T) {
	t.Parallel()
	cfg := Default()
	require.NoError(t, cfg.Validate())
	cfg = Config{
		LR: -1, Schedule: "step", Warmup: -2, MinLR: 1.5, Beta2: 0.99999999999,
		WeightDecay: math.Inf(1), ClipGrad: math.NaN(),
	}
	require.Equal(t, []string{
		"lr is -1, expected 0 or more",
		`schedule is "step", expected "constant", "linear" or "cosine"`,
		"warmup is -2, expected 0 or more steps",
		"min_lr is 1.5, expected a fraction of lr, 0 to 1",
		"beta2 is 0.99999999999, expected 0 or more and less than 1",
		"weight_decay is +Inf, expected 0 or more",
		"clip_grad is NaN, expected 0 or more",
	}, strings.Split(cfg.Validate().Error(), "\n"))
	_, err := NewAdamW(cfg)
	require.ErrorContains(t, err, "new optimizer: lr is -1")
}

func TestClipScale(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ norm, limit, want float64 }{
		{2, 1, 0.5}, {1, 1, 1}, {0.5, 1, 1}, {0, 1, 1}, {100, 0, 1}, {3, 1.5, 0.5},
	} {
		require.Equal(t, row.want, ClipScale(row.norm, row.limit), "%+v", row)
	}
}
