package trace

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

type writtenFile struct {
	TraceEvents []Event `json:"traceEvents"`
	OtherData   struct {
		Dropped int `json:"dropped"`
	} `json:"otherData"`
}

func writeTrace(t *testing.T, s *Spans) writtenFile {
	t.Helper()
	path := filepath.Join(t.TempDir(), File)
	require.NoError(t, s.WriteFile(path))
	var file writtenFile
	require.NoError(t, json.Unmarshal([]byte(readFile(t, path)), &file))
	return file
}

// at is a span on a row, in milliseconds.
type at struct {
	row, name  string
	begin, end float64
}

func (f writtenFile) layout() (rows []string, spans []at) {
	names := map[int]string{}
	for _, e := range f.TraceEvents {
		switch e.Name {
		case "thread_name":
			names[e.TID] = e.Args.Name
			rows = append(rows, names[e.TID])
		case "process_name", "process_sort_index", "thread_sort_index":
		default:
			spans = append(spans, at{names[e.TID], e.Name, e.Time / 1e3, (e.Time + e.Dur) / 1e3})
		}
	}
	return rows, spans
}

func TestSpansLayout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(100)
		wait := func(ms int) { <-time.After(time.Duration(ms) * time.Millisecond) }
		trainer, engine := s.Track("trainer"), s.Lanes("instance 0")
		step := trainer.Begin(1, "step")
		a := engine.Begin(1, "prompt a")
		wait(1)
		forward := trainer.Begin(1, "forward")
		b := engine.Begin(1, "prompt b")
		wait(1)
		a.End()
		forward.End()
		c := engine.Begin(1, "prompt c")
		wait(2)
		b.End()
		c.End()
		step.End()
		rows, spans := writeTrace(t, s).layout()
		require.Equal(t, []string{"trainer", "instance 0", "instance 0 (2)"}, rows)
		require.Equal(t, []at{
			{"trainer", "step", 0, 4}, {"trainer", "forward", 1, 2},
			{"instance 0", "prompt a", 0, 2}, {"instance 0", "prompt c", 2, 4}, {"instance 0 (2)", "prompt b", 1, 4},
		}, spans)
		require.Equal(t, trainer, s.Track("trainer"))
	})
}

func TestSpansKeepTheNewest(t *testing.T) {
	t.Parallel()
	s := New(3)
	track := s.Track("x")
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		track.Begin(1, name).End()
	}
	file := writeTrace(t, s)
	require.Equal(t, 2, file.OtherData.Dropped)
	_, spans := file.layout()
	var names []string
	for _, sp := range spans {
		names = append(names, sp.name)
	}
	require.ElementsMatch(t, []string{"c", "d", "e"}, names)
}

func TestSpansWithoutStep(t *testing.T) {
	t.Parallel()
	s := New(2)
	s.Track("x").Begin(0, "eval").End()
	s.Track("x").Add(NoStep, "decode", time.Now(), time.Millisecond, Note{})
	steps := map[string]*int32{}
	for _, e := range writeTrace(t, s).TraceEvents {
		if e.Phase == "X" {
			steps[e.Name] = e.Args.Step
		}
	}
	require.Equal(t, map[string]*int32{"eval": new(int32), "decode": nil}, steps)
}

func TestNilSpans(t *testing.T) {
	t.Parallel()
	var s *Spans
	s.Track("x").Begin(1, "a").End()
	s.Lanes("x").Begin(1, "a").End()
	require.NoError(t, s.WriteFile("/nonexistent/trace.json"))
	require.ErrorContains(t, New(1).WriteFile("/nonexistent/trace.json"), "write trace")
}

func TestSpansConcurrent(t *testing.T) {
	t.Parallel()
	s := New(1000)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				s.Lanes("shared").Begin(1, "work").End()
			}
		})
	}
	_ = writeTrace(t, s)
	wg.Wait()
	_, spans := writeTrace(t, s).layout()
	require.Len(t, spans, 800)
}

func BenchmarkSpan(b *testing.B) {
	s := New(DefaultSpans)
	track := s.Track("x")
	b.ReportAllocs()
	for b.Loop() {
		track.Begin(1, "work").End()
	}
}

// The number of rows is bounded; later names share one.
func TestRowsAreBounded(t *testing.T) {
	t.Parallel()
	s := New(10)
	for i := range maxTracks + 50 {
		s.Lanes(fmt.Sprint("http://spot:", i)).Add(NoStep, "sample", time.Now(), time.Second, Note{})
	}
	require.Len(t, s.tracks, maxTracks+1)
	require.Equal(t, "others", s.tracks[maxTracks].name)
	require.Equal(t, s.Lanes("http://spot:7"), s.Lanes("http://spot:7"))
	require.EqualValues(t, 7, s.Lanes("http://spot:7").id, "existing rows stay")
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(data)
}
