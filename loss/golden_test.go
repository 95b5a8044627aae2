package loss

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// golden is what testdata/objectives.py computes from the papers' formulas.
type golden struct {
	Cases []struct {
		Name                                          string
		Config                                        json.RawMessage // differences from Default
		Lengths                                       []int
		Policy, Old, Reference, Behaviour, Recomputed []float32
		Advantage                                     []float32 // of a response
		Loss                                          float64
		Grad                                          []float64
	}
	Advantages []struct {
		Kind         string
		Groups, Want [][]float64
	}
}

func readGolden(t *testing.T) (g golden) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "objectives.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &g))
	return g
}

// perToken repeats each response's value at its tokens.
func perToken(lengths []int, value func(response int) float32) (tokens []float32) {
	for i, n := range lengths {
		for range n {
			tokens = append(tokens, value(i))
		}
	}
	return tokens
}

// cut is the responses from i up to j.
func (v Vars) cut(i, j int) Vars {
	lo, hi := 0, 0
	for k, n := range v.Lengths[:j] {
		if k < i {
			lo += n
		}
		hi += n
	}
	part := func(s []float32) []float32 {
		if s == nil {
			return nil
		}
		return s[lo:hi]
	}
	return Vars{
		Policy: part(v.Policy), Old: part(v.Old), Reference: part(v.Reference), Advantage: part(v.Advantage),
		Weight:  part(v.Weight),
		Lengths: v.Lengths[i:j], Behaviour: part(v.Behaviour), Recomputed: part(v.Recomputed),
	}
}

func TestGoldenObjectives(t *testing.T) {
	t.Parallel()
	for _, c := range readGolden(t).Cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			o := objectiveOf(t, func(cfg *Config) { require.NoError(t, json.Unmarshal(c.Config, cfg)) })
			aggregation := o.cfg.Aggregation
			v := Vars{
				Policy: c.Policy, Old: c.Old, Reference: c.Reference, Behaviour: c.Behaviour, Recomputed: c.Recomputed,
				Lengths:   c.Lengths,
				Advantage: perToken(c.Lengths, func(i int) float32 { return c.Advantage[i] }),
				Weight:    perToken(c.Lengths, func(i int) float32 { return aggregation.Weight(c.Lengths[i]) }),
			}
			got, err := o.Eval(v)
			require.NoError(t, err)
			const constant = 16 // of the file's maker
			denominator := aggregation.Denominator(len(c.Lengths), len(c.Policy), constant)
			require.InDelta(t, c.Loss, got.Loss.Float64()/denominator, 1e-7) // weights are single precision
			zeros := 0
			for i, want := range c.Grad {
				require.InDelta(t, want, float64(got.Grad[i])/denominator, 1e-7*(1+math.Abs(want)), "token %d", i)
				if want == 0 {
					zeros++
				}
			}
			if o.cfg.Beta == 0 && o.cfg.Correction == NoCorrection && o.cfg.Kind != CISPO {
				require.EqualValues(t, zeros, got.Clipped)
			}

			for _, m := range []int{1, 2, 3, 5} { // responses a micro-batch
				var grad []float32
				var sum Result
				for i := 0; i < len(c.Lengths); i += m {
					r, err := o.Eval(v.cut(i, min(i+m, len(c.Lengths))))
					require.NoError(t, err)
					grad = append(grad, r.Grad...)
					sum.Loss.Merge(&r.Loss)
					sum.PG.Merge(&r.PG)
					sum.Ratio.Merge(&r.Ratio)
					sum.Clipped, sum.Corrected = sum.Clipped+r.Clipped, sum.Corrected+r.Corrected
				}
				require.Equal(t, got.Grad, grad, "the same bits for micro-batches of %d", m)
				require.Equal(t, got.Loss.Float64(), sum.Loss.Float64())
				require.Equal(t, got.PG.Float64(), sum.PG.Float64())
				require.Equal(t, got.Ratio.Float64(), sum.Ratio.Float64())
				require.Equal(t, got.Clipped, sum.Clipped)
				require.Equal(t, got.Corrected, sum.Corrected)
			}
		})
	}
}

func TestGoldenAdvantages(t *testing.T) {
	t.Parallel()
	for _, row := range readGolden(t).Advantages {
		got := BatchAdvantages(row.Kind, row.Groups)
		require.Len(t, got, len(row.Want))
		for i := range got {
			require.InDeltaSlice(t, row.Want[i], got[i], 1e-9, "%s, group %d", row.Kind, i)
			if !WholeBatch(row.Kind) {
				require.Equal(t, got[i], Advantages(row.Kind, row.Groups[i]))
			}
		}
	}
}
