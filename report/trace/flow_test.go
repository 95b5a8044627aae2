package trace

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/tracetest"
)

// written writes the trace of s and reads it back; it fails unless Perfetto would
// accept all of it.
func written(t *testing.T, s *Spans) *tracetest.Trace {
	t.Helper()
	path := filepath.Join(t.TempDir(), File)
	require.NoError(t, s.WriteFile(path))
	tr, err := tracetest.Read([]byte(readFile(t, path)))
	require.NoError(t, err)
	return tr
}

// ways returns each flow as the names and rows of its spans.
func ways(tr *tracetest.Trace) []string {
	var out []string
	for _, flow := range tr.Flows {
		var way []string
		for _, s := range flow {
			way = append(way, s.Name+" on "+s.Row)
		}
		out = append(out, strings.Join(way, ", "))
	}
	slices.Sort(out)
	return out
}

// A group flows from its prompt through an instance and its score to the micro-batch.
// All its spans in the producer are on one row, even if other groups overlap.
func TestFlows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(100)
		trainer, engine, producer := s.Track("trainer"), s.Track("engine"), s.Lanes("producer")
		began := time.Now()
		at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
		add := func(on Track, name string, from, to int, n Note) { on.Add(1, name, at(from), at(to).Sub(at(from)), n) }
		of := func(flows ...uint64) Note { return Note{Flows: flows} }
		add(engine, "prefill", 2, 3, of(11, 12))
		add(engine, "decode", 3, 5, of(11))
		add(producer, "prompt", 1, 5, Note{Flows: []uint64{11}, Opens: true, Prompt: "p 11"})
		add(producer, "prompt", 1, 8, Note{Flows: []uint64{12}, Opens: true})
		add(producer, "score", 6, 6, of(11))    // zero duration
		add(engine, "decode", 5, 8, of(12, 99)) // nothing opens 99
		add(engine, "decode", 8, 9, of(99))
		add(producer, "score", 8, 9, of(12))
		add(producer, "prompt", 5, 7, Note{Flows: []uint64{13}, Opens: true}) // opened but used nowhere else
		add(producer, "queue", 6, 10, of(11))
		add(producer, "queue", 9, 10, of(12))
		add(trainer, "step", 0, 20, Note{})
		add(trainer, "forward", 10, 11, Note{})
		add(trainer, "micro-batch", 10, 12, Note{Flows: []uint64{11, 12}, Tokens: 7})
		tr := written(t, s)
		require.Equal(t, []string{
			"prompt on producer (2), prefill on engine, decode on engine, score on producer (2), queue on producer " +
				"(2), micro-batch on trainer",
			"prompt on producer, prefill on engine, decode on engine, score on producer, queue on producer, " +
				"micro-batch on trainer",
		}, ways(tr))
		require.Equal(t, []string{"trainer", "engine", "producer", "producer (2)", "producer (3)"}, tr.Rows)
		micro := tr.Named("micro-batch")[0]
		require.Equal(t, map[string]any{"step": 1., "tokens": 7.}, micro.Args)
		require.Equal(t, 1, micro.Depth)
		require.Equal(t, map[string]any{"step": 1., "prompt": "p 11"}, tr.Named("prompt")[0].Args)
	})
}

// A resumed run reuses flow IDs; the flows of both runs stay separate.
func TestFlowsContinue(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	synctest.Test(t, func(t *testing.T) {
		for resumed := range 3 {
			s := New(100)
			require.NoError(t, s.Continue(path))
			for _, name := range []string{"prompt", "score"} {
				span := s.Lanes("producer").Begin(4, name)
				<-time.After(time.Millisecond)
				span.EndWith(Note{Flows: []uint64{77}, Opens: name == "prompt", Prompt: "é\"", Tokens: 3})
			}
			<-time.After(time.Second)
			tr := written(t, s)
			require.Len(t, ways(tr), resumed+1)
			require.Equal(t, "prompt on producer, score on producer", ways(tr)[resumed])
			for _, slice := range tr.Slices {
				require.Equal(t, map[string]any{"step": 4., "tokens": 3., "prompt": "é\""}, slice.Args)
			}
			require.NoError(t, s.WriteFile(path))
		}
	})
}

// Whatever the order of recording and the number of dropped spans, spans nest and
// each flow ends.
func TestRandomTracesAreSound(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := New(10 + r.IntN(100))
		tracks := []Track{s.Track("a"), s.Track("b \"\\\x00\xff"), s.Lanes("c"), s.Lanes("d")}
		scale := []time.Duration{100, 3 * time.Microsecond, time.Millisecond}[r.IntN(3)]
		for range r.IntN(200) {
			n := Note{Opens: r.IntN(4) == 0, Tokens: r.IntN(3)}
			for range r.IntN(3) {
				n.Flows = append(n.Flows, r.Uint64N(6))
			}
			from := s.start.Add(time.Duration(r.Int64N(int64(20*scale))) - scale)
			tracks[r.IntN(4)].Add(r.IntN(5)-1, string(rune('a'+r.IntN(5))), from,
				time.Duration(r.Int64N(int64(4*scale))), n)
		}
		tr := written(t, s)
		require.Len(t, tr.Slices, len(s.spans)-s.oldest)
		for _, flow := range tr.Flows {
			require.Greater(t, len(flow), 1)
		}
	}
}

// The file stays within its size limit and counts what it lacks.
func TestBytesAreBounded(t *testing.T) {
	t.Parallel()
	s := New(1 << 20)
	s.maxBytes = 100_000
	track := s.Lanes("x")
	const spans = 5000
	for i := range spans {
		flows := make([]uint64, i%20)
		for k := range flows {
			flows[k] = uint64(i + k)
		}
		track.Add(1<<30, "work", s.start.Add(time.Duration(i)*time.Hour), time.Hour-1,
			Note{Tokens: 1 << 30, Prompt: strings.Repeat("é\n", i%7), Flows: flows, Opens: i%2 == 0})
	}
	path := filepath.Join(t.TempDir(), File)
	require.NoError(t, s.WriteFile(path))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(s.maxBytes+2000))
	require.Greater(t, info.Size(), int64(s.maxBytes/3))
	tr := written(t, s)
	require.Equal(t, spans-len(tr.Slices), tr.Dropped)
	require.Less(t, cap(s.spans), spans/4, "dropped spans are not kept")
	longest := New(1)
	longest.maxBytes = 1
	longest.Track("x").Begin(1, strings.Repeat("x", 1000)).End()
	require.Len(t, written(t, longest).Slices, 1, "the newest is kept")
}

// A track without spans has a row as long as the recorder has dropped none.
func TestRowsWithoutSpans(t *testing.T) {
	t.Parallel()
	s := New(1)
	s.Track("first").Begin(1, "a").End()
	s.Track("idle")
	require.Equal(t, []string{"first", "idle"}, written(t, s).Rows)
	s.Track("second").Begin(1, "b").End()
	require.Equal(t, []string{"second"}, written(t, s).Rows)
}

func TestNilSpansAllocateNothing(t *testing.T) {
	var s *Spans
	track := s.Lanes("x")
	require.False(t, track.Records())
	require.True(t, New(1).Track("x").Records())
	now := time.Now()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		s.Track("y").Begin(1, "a").EndWith(Note{Flows: []uint64{1, 2}, Prompt: "p"})
		track.Add(1, "b", now, time.Second, Note{Flows: []uint64{3}})
		track.Begin(1, "c").End()
	}))
}

func BenchmarkWriteFile(b *testing.B) {
	s := New(DefaultSpans)
	for i := range DefaultSpans {
		track := s.Lanes("producer")
		if i%2 == 0 {
			track = s.Track(fmt.Sprint("engine ", i%8))
		}
		track.Add(i/1000, "work", s.start.Add(time.Duration(i)*time.Millisecond), 3*time.Millisecond,
			Note{Flows: []uint64{uint64(i / 5)}, Opens: i%5 == 0})
	}
	path := filepath.Join(b.TempDir(), File)
	for b.Loop() {
		require.NoError(b, s.WriteFile(path))
	}
}
