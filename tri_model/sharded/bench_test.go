package sharded

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/parallel/pipeline"
	"github.com/easyrl/easyrl/report/trace"
)

// medium is a decoder whose passes take milliseconds.
func medium() *model.Config {
	return &model.Config{Type: "llama", HiddenSize: 256, FFNSize: 768, Layers: 8, Heads: 8, KVHeads: 4, HeadDim: 32,
		VocabSize:    2048,
		MaxPositions: 1024, NormEps: 1e-6, RopeTheta: 1e4, InitStd: 0.02, BOS: -1}
}

// recorded is a step's work on a mesh with one thread a rank, and the spans of its ranks.
func recorded(b *testing.B, mesh parallel.Mesh, micros []*attention.Layout) map[string][]trace.Event {
	b.Helper()
	spans := trace.New(trace.DefaultSpans)
	cfg := Config{Mesh: mesh, Models: config(),
		Track: func(rank int) trace.Track { return spans.Track(fmt.Sprintf("rank %d", rank)) }}
	m := open(b, medium(), cfg)
	derive := func(lp backend.Outputs) (backend.Values, error) {
		return backend.Values{backend.Policy: make([]float32, len(lp.Values[backend.Policy]))}, nil
	}
	_, err := m.Publish(b.Context(), 1)
	require.NoError(b, err)
	step := func() map[string][]trace.Event {
		for _, l := range micros {
			require.NoError(b, m.Pass(b.Context(), l, 1, derive))
		}
		require.NoError(b, m.Flush(b.Context()))
		require.NoError(b, m.Current().barrier()) // all spans have ended
		return passesOf(b, spans)
	}
	first := step() // activations grow
	both := step()
	names := map[string]int{}
	for rank, list := range both {
		both[rank] = list[len(first[rank]):]
		for _, e := range both[rank] {
			names[e.Name]++
		}
	}
	n := len(micros) * mesh.TP * mesh.PP
	require.Equal(b, map[string]int{"forward": n, "backward": n}, names)
	return both
}

// passesOf returns the passes of each rank, in order.
func passesOf(b *testing.B, spans *trace.Spans) map[string][]trace.Event {
	b.Helper()
	path := filepath.Join(b.TempDir(), "trace.json")
	require.NoError(b, spans.WriteFile(path))
	text, err := os.ReadFile(path)
	require.NoError(b, err)
	var file struct {
		Events []trace.Event `json:"traceEvents"`
	}
	require.NoError(b, json.Unmarshal(text, &file))
	rows, passes := map[int]string{}, map[string][]trace.Event{}
	for _, e := range file.Events {
		if e.Phase == "M" && e.Name == "thread_name" {
			rows[e.TID] = e.Args.Name
		}
	}
	for _, e := range file.Events {
		if e.Phase == "X" && (e.Name == "forward" || e.Name == "backward") {
			passes[rows[e.TID]] = append(passes[rows[e.TID]], e)
		}
	}
	for _, list := range passes {
		slices.SortFunc(list, func(a, b trace.Event) int { return cmp.Compare(a.Time, b.Time) })
	}
	return passes
}

// idle returns the share of the time between the first start and the last end in which ranks wait.
func idle(passes map[string][]trace.Event) float64 {
	first, last, busy := 1e18, 0.0, 0.0
	for _, list := range passes {
		for _, e := range list {
			first, last, busy = min(first, e.Time), max(last, e.Time+e.Dur), busy+e.Dur
		}
	}
	return 1 - busy/(last-first)/float64(len(passes))
}

// BenchmarkPipeline compares the share of time that stages wait with a replay of the schedule at
// the measured times, and with the formula for equal micro-batches.
func BenchmarkPipeline(b *testing.B) {
	for _, n := range []int{4, 8, 16} {
		b.Run(fmt.Sprintf("pp=2/micros=%d", n), func(b *testing.B) {
			var measured, replayed, count float64
			for b.Loop() {
				passes := recorded(b, parallel.Mesh{DP: 1, TP: 1, PP: 2}, equalMicros(n, 200))
				measured, replayed, count = measured+idle(passes), replayed+pipeline.Idle(replay(passes, n), 2), count+1
			}
			b.ReportMetric(measured/count, "idle")
			b.ReportMetric(replayed/count, "replayed")
			b.ReportMetric(pipeline.Bubble(2, n), "formula")
		})
	}
}

// replay replays the schedule of two stages at the times of their passes.
func replay(passes map[string][]trace.Event, n int) []pipeline.Span {
	durations := make([][]pipeline.Durations, n)
	for m := range durations {
		durations[m] = make([]pipeline.Durations, 2)
	}
	for stage := range 2 {
		forwards, backwards := 0, 0
		var ended float64 // of the last stage's forward pass
		for _, e := range passes[fmt.Sprintf("rank %d", stage)] {
			if e.Name == "forward" {
				durations[forwards][stage].Forward = e.Dur
				forwards++
				ended = e.Time + e.Dur
				continue
			}
			if stage == 1 {
				durations[backwards][stage].Loss = e.Time - ended
			}
			durations[backwards][stage].Backward = e.Dur
			backwards++
		}
	}
	return pipeline.Replay(durations, make([]float64, n), messages(passes))
}

// messages returns the median time from the end of a pass to the start of the one that it makes possible
// on the other of two stages, of those for which that stage waited.
func messages(passes map[string][]trace.Event) float64 {
	var times []float64
	for _, way := range []struct{ name, from, to string }{{"forward", "rank 0", "rank 1"},
		{"backward", "rank 1", "rank 0"}} {
		var ends []float64
		for _, e := range passes[way.from] {
			if e.Name == way.name {
				ends = append(ends, e.Time+e.Dur)
			}
		}
		before := 0.0
		for _, e := range passes[way.to] {
			if e.Name == way.name {
				if ends[0] > before {
					times = append(times, max(0, e.Time-ends[0]))
				}
				ends = ends[1:]
			}
			before = e.Time + e.Dur
		}
	}
	slices.Sort(times)
	return times[len(times)/2]
}

// BenchmarkReplicas measures the share of time that two replicas wait while a step's 128 groups of
// long-tailed lengths are trained.
func BenchmarkReplicas(b *testing.B) {
	var measured, count float64
	for b.Loop() {
		rng := rand.New(rand.NewPCG(1, 3))
		var micros []*attention.Layout
		for range 128 {
			micros = append(micros, equalMicros(1, 16+int(40*rng.ExpFloat64()))...)
		}
		measured, count = measured+idle(recorded(b, parallel.Mesh{DP: 2, TP: 1, PP: 1}, micros)), count+1
	}
	b.ReportMetric(measured/count, "idle")
}

// equalMicros returns micro-batches of a group with about as many rows.
func equalMicros(n, rows int) (all []*attention.Layout) {
	rng := rand.New(rand.NewPCG(5, 6))
	ids := func(n int) []int32 {
		out := make([]int32, n)
		for i := range out {
			out[i] = int32(rng.IntN(medium().VocabSize))
		}
		return out
	}
	for range n {
		l := &attention.Layout{}
		l.AddGroup(ids(8), [][]int32{ids(rows / 2), ids(rows / 2)})
		l.EndLeaf()
		all = append(all, l)
	}
	return all
}
