package simulate

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The moments of 200,000 draws match the distribution's definition within five
// standard errors.
func TestMomentsOfLengths(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lengths")
	require.NoError(t, os.WriteFile(path, []byte("10\n\n 40 \n10\n100\n"), 0o600))
	for _, c := range []struct {
		spec          string
		mean, std     float64
		low, high     int
		logMean, logS float64 // zero if unknown
	}{
		{spec: "fixed:77", mean: 77, low: 77, high: 77},
		{spec: "uniform:3,9", mean: 6, std: 2, low: 3, high: 9},
		{spec: "uniform:5,5", mean: 5, low: 5, high: 5},
		{spec: "lognormal:500,0.8", mean: 500, std: 500 * math.Sqrt(math.Exp(0.64)-1), low: 1, high: maxLength,
			logMean: math.Log(500) - 0.32, logS: 0.8},
		{spec: "lognormal:300,0", mean: 300, low: 300, high: 300},
		{spec: "file:" + path, mean: 40, std: math.Sqrt((900 + 900 + 3600) / 4.), low: 10, high: 100},
	} {
		l, err := parseLengths(c.spec)
		require.NoError(t, err)
		require.Equal(t, c.spec, l.String())
		const n = 200_000
		var sum, squares, logs, logSquares float64
		for i := range uint64(n) {
			v := l.At(uniform(mix(i)))
			require.True(t, c.low <= v && v <= c.high, "%s gave %d", c.spec, v)
			x := float64(v)
			sum, squares = sum+x, squares+x*x
			logs, logSquares = logs+math.Log(x), logSquares+math.Log(x)*math.Log(x)
		}
		mean := sum / n
		require.InDelta(t, c.mean, mean, 5*c.std/math.Sqrt(n)+1e-9, c.spec)
		if c.spec[0] == 'u' || c.spec[0] == 'f' {
			require.InDelta(t, c.std, math.Sqrt(max(0, squares/n-mean*mean)), 0.01*c.std+1e-6, c.spec)
		}
		if c.logS > 0 {
			require.InDelta(t, c.logMean, logs/n, 0.01, c.spec)
			require.InDelta(t, c.logS, math.Sqrt(logSquares/n-logs/n*logs/n), 0.01, c.spec)
		}
	}
}

func TestLengthsAtTheEnds(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{"lognormal:500,0.8", "lognormal:1,5", "lognormal:7,0",
		"uniform:1,1048576", "fixed:1"} {
		l, err := parseLengths(spec)
		require.NoError(t, err)
		last := 0
		for _, u := range []float64{0, 1e-300, 1e-9, 0.25, 0.5, 0.75, 1 - 1e-9, math.Nextafter(1, 0)} {
			v := l.At(u)
			require.True(t, v >= 1 && v <= maxLength && v >= last, "%s at %v is %d", spec, u, v)
			last = v
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	c, err := Parse("")
	require.NoError(t, err)
	require.Equal(t, Default(), c)

	c, err = Parse(
		"lengths=lognormal:700,0.5, tokens_per_second=80,prefill_tokens_per_second=0," +
			"slots=3,publish_seconds=1.5,failures=0.25,vocab=100,context=99")
	require.NoError(t, err)
	require.Equal(t, Config{
		ID: "simulated", Lengths: Lengths{kind: lognormal, a: 700, b: 0.5}, TokensPerSecond: 80, Slots: 3,
		Publish: 1500 * time.Millisecond, Failures: 0.25, Vocab: 100, Context: 99,
	}, c)
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return "lengths=file:" + path
	}
	fifo := filepath.Join(dir, "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	for spec, want := range map[string]string{
		"slots":                         `"slots", expected key=value`,
		"slots=3, slots=4":              "slots is set twice",
		"slot=3":                        `key "slot", expected lengths, tokens_per_second`,
		"slots=0":                       "slots 0, expected 1 to",
		"slots=x":                       `slots "x", expected a number`,
		"tokens_per_second=0":           "tokens_per_second 0, expected",
		"tokens_per_second=NaN":         "tokens_per_second NaN, expected",
		"tokens_per_second=Inf":         "tokens_per_second +Inf, expected",
		"prefill_tokens_per_second=-1":  "prefill_tokens_per_second -1, expected",
		"publish_seconds=-1":            "publish_seconds -1, expected",
		"publish_seconds=NaN":           "publish_seconds NaN, expected",
		"publish_seconds=1e300":         "publish_seconds 1e+300, expected",
		"failures=1.5":                  "failures 1.5, expected 0 to 1",
		"failures=NaN":                  "failures NaN, expected 0 to 1",
		"vocab=0":                       "vocab 0, expected",
		"context=1":                     "context 1, expected 2",
		"lengths=":                      "expected lognormal:MEAN,SIGMA",
		"lengths=normal:1,2":            "expected lognormal:MEAN,SIGMA",
		"lengths=lognormal:5":           "expected two comma-separated numbers",
		"lengths=lognormal:5,x":         "expected two comma-separated numbers",
		"lengths=lognormal:0,1":         "expected a mean of 1 to",
		"lengths=lognormal:NaN,1":       "expected a mean of 1 to",
		"lengths=lognormal:10,-1":       "a sigma of 0 to 5",
		"lengths=uniform:9,3":           "A not more than B",
		"lengths=uniform:1.5,3":         "expected whole numbers",
		"lengths=fixed:0":               "expected a whole number, 1 to",
		"lengths=fixed:1e99":            "expected a whole number, 1 to",
		"lengths=file:" + dir + "/none": "no such file",
		"lengths=file:" + dir:           "is a folder, expected a regular file",
		"lengths=file:" + fifo:          "is a pipe, expected a regular file",
		write("empty", "\n\n"):          "has no lengths",
		write("word", "5\nfive\n"):      `line 2: "five", expected a whole number`,
		write("zero", "0"):              `line 1: "0", expected a whole number`,
		write("long", "5\n"+strings.Repeat("1", 1<<17)): "line 2: ",
	} {
		_, err := Parse(spec)
		require.ErrorContains(t, err, want, spec)
		require.NotContains(t, err.Error(), "\n", spec)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "slots=3", "lengths=lognormal:5,0.5,slots=2", "lengths=uniform:1,9",
		"lengths=fixed:3", "failures=.5,,"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		if strings.Contains(spec, file+":") {
			t.Skip("spec names a file")
		}
		c, err := Parse(spec)
		if err != nil {
			return
		}
		require.NoError(t, c.Validate())
		again, err := parseLengths(c.Lengths.String())
		require.NoError(t, err)
		require.Equal(t, c.Lengths, again)
		require.Positive(t, c.Lengths.At(0.5))
	})
}
