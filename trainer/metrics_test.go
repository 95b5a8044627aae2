package trainer

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report"
)

// Merged parts give the values of the whole, sums follow the order of the calls, and a
// metric without samples has no value.
func TestMetrics(t *testing.T) {
	t.Parallel()
	measure := func(m *metrics, samples ...float64) {
		m.Mean("none", 0, 0)
		for _, v := range samples {
			m.Mean("mean", v, 1)
			m.Std("std", v)
			m.Max("max", v)
			m.Sum("sum", v)
			m.Share("share", v > 0)
		}
	}
	value := func(m *metrics) report.Values {
		v := report.Values{"kept": 7}
		m.into(v)
		return v
	}
	var whole, first, second, all metrics
	require.Equal(t, report.Values{"kept": 7}, value(&whole))
	measure(&whole)
	require.Equal(t, report.Values{"kept": 7}, value(&whole))
	measure(&whole, -3, -1, -2, -6)
	measure(&first, -3, -1)
	measure(&second, -2, -6)
	all.merge(&first)
	all.merge(&metrics{})
	all.merge(&second)
	want := report.Values{"kept": 7, "mean": -3, "std": math.Sqrt(14.0 / 3), "max": -1, "sum": -12, "share": 0}
	require.Equal(t, want, value(&whole))
	require.Equal(t, want, value(&all))
	sum, n := all.totals("mean")
	require.Equal(t, []float64{-12, 4}, []float64{sum, n})

	var one metrics
	measure(&one, 5)
	require.Equal(t, report.Values{"kept": 7, "mean": 5, "std": 0, "max": 5, "sum": 5, "share": 1}, value(&one))

	var far metrics
	measure(&far, 1e6, 1e6, 1e6-1e-4)
	require.InEpsilon(t, 1e-4/math.Sqrt(3), value(&far)["std"], 1e-6, "a small spread far from 0")

	tiny := math.Nextafter(1, 2) - 1
	for _, terms := range [][]float64{{1, tiny / 2, tiny / 2}, {tiny / 2, tiny / 2, 1}} {
		var m metrics
		for _, v := range terms {
			m.Mean("mean", v, 1)
		}
		require.Equal(t, (1+tiny)/3, value(&m)["mean"], "%v in any order", terms)
	}
}
