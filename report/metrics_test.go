package report

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(data)
}

func TestLineOrder(t *testing.T) {
	t.Parallel()
	v := Values{"zebra": 1, "memory/peak_bytes": 1 << 40, "actor/lr": 1.5e-7, "actor/kl": 0.001, "time": 1.75e9 + 0.25,
		"eval/b/mean@1": 0.5, "eval/a/pass@4": 1, "reward/mean": 0.3125, "version": 4, "step": 3,
		"actor/loss": math.NaN()}
	require.Equal(t,
		`{"step":3,"version":4,"time":1750000000.25,"reward/mean":0.3125,"eval/a/pass@4":1,"eval/b/mean@1":0.5,`+
			`"actor/kl":0.001,"actor/loss":null,"actor/lr":1.5e-07,"memory/peak_bytes":1099511627776,"zebra":1}`+"\n",
		string(v.Line()))
}

// A line may have one text, the checksum. Any other text or value that is no number is an error.
func TestChecksumOfLine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), MetricsFile)
	m, err := OpenMetrics(path, 0)
	require.NoError(t, err)
	lines := []Line{{Values: Values{"step": 1}, Checksum: "00ff"}, {Values: Values{"step": 2, "actor/lr": 0.5}}}
	for _, l := range lines {
		require.NoError(t, m.Write(l))
	}
	require.NoError(t, m.Close())
	require.Equal(t, `{"step":1,"actor/checksum":"00ff"}`+"\n"+`{"step":2,"actor/lr":0.5}`+"\n", readFile(t, path))
	var got []Line
	require.NoError(t, EachLine(path, func(l Line) error {
		got = append(got, l)
		return nil
	}))
	require.Equal(t, lines, got)
	for text, want := range map[string]string{
		`{"step":1,"actor/lr":"1"}`:      `"actor/lr" is a JSON string, expected a number`,
		`{"step":1,"actor/lr":[1]}`:      `"actor/lr" is no number`,
		`{"step":1,"actor/checksum":{}}`: `"actor/checksum" is no number`,
	} {
		_, err := ParseLine([]byte(text))
		require.EqualError(t, err, want)
	}
}

func TestNumbersSurviveJSON(t *testing.T) {
	t.Parallel()
	for _, x := range []float64{0, -1, 0.1, 1.0 / 3, 1e-300, -2.5e300, math.MaxFloat64, 1 << 53, 1<<53 + 2, 123456.789,
		1e15, 1e-4} {
		var back float64
		require.NoError(t, json.Unmarshal(appendNumber(nil, x), &back))
		require.Equal(t, x, back)
	}
}

func TestMetricsResume(t *testing.T) {
	t.Parallel()
	line := func(step int) string { return string(Values{"step": float64(step), "reward/mean": 0.5}.Line()) }
	tests := []struct {
		name string
		old  string
		from int
		want string
	}{
		{"new file", "", 0, ""},
		{"continues", line(0) + line(1) + line(2), 3, line(0) + line(1) + line(2)},
		{"drops repeated steps", line(0) + line(1) + line(2) + line(3), 2, line(0) + line(1)},
		{"drops a torn line", line(1) + line(2) + `{"step":2,"rew`, 3, line(1) + line(2)},
		{"drops a last line without its end", line(1) + strings.TrimSuffix(line(2), "\n"), 3, line(1)},
		{"drops lines without a step", "{}\n" + line(1), 3, line(1)},
		{"starts over", line(1) + line(2), 0, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), MetricsFile)
			if test.old != "" {
				require.NoError(t, os.WriteFile(path, []byte(test.old), 0o644))
			}
			m, err := OpenMetrics(path, test.from)
			require.NoError(t, err)
			require.Equal(t, test.want, readFile(t, path))
			require.NoError(t, m.Write(Line{Values: Values{"step": 9}}))
			require.NoError(t, m.Close())
			require.Equal(t, test.want+"{\"step\":9}\n", readFile(t, path))
		})
	}
}

func TestMetricsRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m, err := OpenMetrics(filepath.Join(dir, MetricsFile), 0)
	require.NoError(t, err)
	require.ErrorContains(t, m.Write(Line{Values: Values{"reward/mean": 1}}), `values have no "step"`)
	require.NoError(t, m.Close())
	require.ErrorContains(t, m.Write(Line{Values: Values{"step": 1}}), "write metrics")
	_, err = OpenMetrics(filepath.Join(dir, "none", MetricsFile), 0)
	require.ErrorContains(t, err, "open metrics")
	_, err = OpenMetrics(dir, 0)
	require.ErrorContains(t, err, "open metrics")
}

func TestMetricsConcurrent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), MetricsFile)
	m, err := OpenMetrics(path, 0)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 50 {
				_ = m.Write(Line{Values: Values{"step": float64(50*g + i), "reward/mean": 0.25}})
			}
		})
	}
	wg.Wait()
	require.NoError(t, m.Close())
	rows, err := ReadMetrics(path)
	require.NoError(t, err)
	seen := map[float64]bool{}
	for _, row := range rows {
		seen[row["step"]] = true
	}
	require.Len(t, seen, 200)
}

func TestReadMetrics(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), MetricsFile)
	require.NoError(t, os.WriteFile(path, []byte("{\"step\":1,\"a\":null}\n\n{\"step\":2,\"a\":3}\n{\"step\":3,"),
		0o644))
	rows, err := ReadMetrics(path)
	require.NoError(t, err)
	require.Equal(t, []Values{{"step": 1}, {"step": 2, "a": 3}}, rows)

	require.NoError(t, os.WriteFile(path, []byte("{\"step\":1}\nnonsense\n{\"step\":2}\n"), 0o644))
	_, err = ReadMetrics(path)
	require.ErrorContains(t, err, path+":2:")

	_, err = ReadMetrics(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
