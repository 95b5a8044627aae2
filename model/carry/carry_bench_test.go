package carry

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/parallel/local"
	"github.com/easyrl/easyrl/parallel/pipeline"
)

// BenchmarkHandOn compares the share of time that ranks wait while they hand on a product with that
// of a replay at the measured times of the chunks, and with the formula for equal chunks.
func BenchmarkHandOn(b *testing.B) {
	const ranks, t, width, inner = 2, 1024, 512, 2048
	var all sync.WaitGroup
	var mu sync.Mutex
	ends := local.New(ranks)
	durations, spent := make([][]float64, ranks), make([]time.Duration, ranks)
	ready, run := make(chan struct{}, ranks), make([]chan bool, ranks)
	for rank, end := range ends {
		run[rank] = make(chan bool)
		all.Add(1)
		go func() {
			defer all.Done()
			dev, err := cpu.Open(1)
			require.NoError(b, err)
			group, err := parallel.NewGroup(end, "tp", []int{0, 1}, 0)
			require.NoError(b, err)
			buffer := func(n int) npu.Buffer {
				buf, err := dev.Alloc(npu.Float32, n, npu.Activations)
				require.NoError(b, err)
				dev.Zero(buf)
				return buf
			}
			c := New(b.Context(), dev, group)
			y, x := buffer(t*width), buffer(t*inner)
			w := npu.Matrix{Buffer: buffer(dev.MatrixLen(width, inner)), Rows: width, Cols: inner}
			for <-run[rank] {
				var chunks []float64
				began := time.Now()
				c.Rows(y, npu.Buffer{}, t, width, func(lo, hi int, add bool) {
					began := time.Now()
					dev.Linear(y.Slice(lo*width, hi*width), x.Slice(lo*inner, hi*inner), w, npu.Buffer{}, hi-lo, add)
					chunks = append(chunks, time.Since(began).Seconds())
				})
				mu.Lock()
				durations[rank], spent[rank] = chunks, time.Since(began)
				mu.Unlock()
				ready <- struct{}{}
			}
			require.NoError(b, c.Err())
		}()
	}
	step := func() (waited, replayed float64) {
		for _, r := range run {
			r <- true
		}
		for range ranks {
			<-ready
		}
		busy := 0.0
		for _, chunks := range durations {
			for _, d := range chunks {
				busy += d
			}
		}
		whole := max(spent[0], spent[1]).Seconds()
		return 1 - busy/ranks/whole, 1 - busy/ranks/pipeline.HandOn(durations, 0)
	}
	step()
	var waited, replayed, n float64
	for b.Loop() {
		w, r := step()
		waited, replayed, n = waited+w, replayed+r, n+1
	}
	for _, r := range run {
		r <- false
	}
	all.Wait()
	b.ReportMetric(waited/n, "idle")
	b.ReportMetric(replayed/n, "replayed")
	chunks := (t + Chunk(t, ranks) - 1) / Chunk(t, ranks)
	b.ReportMetric(pipeline.HandOnBubble(ranks, chunks), "formula")
}
