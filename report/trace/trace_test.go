package trace

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func readTrace(t *testing.T, path string) (f writtenFile) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(readFile(t, path)), &f))
	return f
}

// The trace of a resumed run includes earlier spans at their times.
func TestContinue(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	synctest.Test(t, func(t *testing.T) {
		wait := func(ms int) { <-time.After(time.Duration(ms) * time.Millisecond) }
		first := New(100)
		require.NoError(t, first.Continue(path), "there is none")
		step := first.Track("trainer").Begin(1, "step")
		a, b := first.Lanes("engine").Begin(1, "a"), first.Lanes("engine").Begin(NoStep, "b")
		wait(2)
		a.End()
		b.End()
		step.End()
		require.NoError(t, first.WriteFile(path))
		wait(100)
		want := []at{{"trainer", "step", 0, 2}, {"engine", "a", 0, 2}, {"engine (2)", "b", 0, 2}}
		for k := 1; k <= 2; k++ { // resumed twice
			s := New(100)
			require.NoError(t, s.Continue(path))
			wait(1)
			step := s.Track("trainer").Begin(1+k, "step")
			c := s.Lanes("engine").Begin(1+k, "c")
			wait(3)
			c.End()
			step.End()
			require.NoError(t, s.WriteFile(path))
			began := float64(103 + 102*(k-1))
			want = append(want, at{"trainer", "step", began, began + 3}, at{"engine", "c", began, began + 3})
			rows, spans := readTrace(t, path).layout()
			require.Equal(t, []string{"trainer", "engine", "engine (2)"}, rows)
			require.ElementsMatch(t, want, spans)
			wait(98)
		}
		small := New(2)
		require.NoError(t, small.Continue(path))
		require.NoError(t, small.WriteFile(path))
		file := readTrace(t, path)
		require.Equal(t, 5, file.OtherData.Dropped)
		_, spans := file.layout()
		require.ElementsMatch(t, want[len(want)-2:], spans, "the newest are kept")
		again := New(10)
		require.NoError(t, again.Continue(path))
		require.Equal(t, 5, again.dropped, "earlier drops count")
	})
}

func TestContinueRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, File)
	for text, want := range map[string]string{
		"":   "unexpected end of JSON input",
		"{}": "expected a time before now",
		`{"otherData":{"start":"2999-01-01T00:00:00Z"}}`: "start is 2999-01-01 00:00:00 +0000 UTC, expected a time " +
			"before now",
		`{"traceEvents":3}`: "cannot unmarshal number",
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		s := New(10)
		err := s.Continue(path)
		require.ErrorContains(t, err, "continue trace "+path+": ")
		require.ErrorContains(t, err, want)
		require.Empty(t, s.spans)
	}
	require.Error(t, New(1).Continue(dir))
	var off *Spans
	require.NoError(t, off.Continue(dir))
	require.NoError(t, off.Keep(dir))
}

// Keep writes the trace during the run but takes at most 1/500 of its time.
func TestKeep(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	synctest.Test(t, func(t *testing.T) {
		s := New(10)
		s.Track("x").Begin(1, "a").End()
		require.NoError(t, s.Keep(path))
		_, spans := readTrace(t, path).layout()
		require.Len(t, spans, 1)
		s.keeping = time.Second // pretend that Keep took this long
		s.Track("x").Begin(2, "b").End()
		<-time.After(499 * time.Second)
		require.NoError(t, s.Keep(path))
		_, spans = readTrace(t, path).layout()
		require.Len(t, spans, 1, "not yet")
		<-time.After(time.Second)
		require.NoError(t, s.Keep(path))
		_, spans = readTrace(t, path).layout()
		require.Len(t, spans, 2)
		require.ErrorContains(t, s.Keep(filepath.Join(path, "below")), "write trace")
	})
}
