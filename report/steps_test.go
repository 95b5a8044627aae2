package report

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSteps(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), MetricsFile)
	require.NoError(t, os.WriteFile(path,
		[]byte(
			"{\"step\":1,\"a\":null,\"b\":5}\n{\"step\":2,\"a\":3,"+
				"\"reward/mean\":1}\n{\"step\":3,\"b\":7}\n{\"step\":4,"), 0o644))
	s, err := ReadSteps(path)
	require.NoError(t, err)
	require.Equal(t, 3, s.Len())
	require.Equal(t, []string{"step", "reward/mean", "a", "b"}, s.Names())
	require.Equal(t, Values{"step": 2, "a": 3, "reward/mean": 1}, s.Values(1))
	require.Equal(t, Values{"step": 3, "b": 7}, s.Values(2))
	for name, want := range map[string][2][]float64{"b": {{1, 3}, {5, 7}}, "a": {{2}, {3}},
		"step": {{1, 2, 3}, {1, 2, 3}}, "none": {{}, {}}} {
		xs, ys := s.Series("step", name)
		require.Equal(t, want, [2][]float64{append([]float64{}, xs...), append([]float64{}, ys...)}, name)
	}

	// A copy does not change when the original is cut and rewritten.
	old := s.Copy()
	s.Add(Values{"step": 4, "c": math.Inf(1), "b": math.NaN(), "d": 1})
	s.Cut(2)
	s.Add(Values{"step": 2, "b": 9})
	require.Equal(t, Values{"step": 2, "b": 9}, s.Values(1))
	require.Equal(t, []string{"step", "b"}, s.Names(), "omits metrics without steps and values that are not finite")
	require.Equal(t, 3, old.Len())
	require.Equal(t, Values{"step": 2, "a": 3, "reward/mean": 1}, old.Values(1))
	require.Equal(t, Values{"step": 3, "b": 7}, old.Values(2))
	s.Cut(0)
	require.Zero(t, s.Len())

	_, err = ReadSteps(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
