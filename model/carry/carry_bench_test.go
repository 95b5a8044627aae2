package carry

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/parallel/pipeline"
)

// span is the time of a chunk's product.
type span struct{ begin, end time.Time }

// sendTime returns the mean time in seconds from the end of a chunk's product on rank 0 to its start on
// rank 1, over the chunks that rank 1 waited for.
func sendTime(spans [][]span) float64 {
	sum, n := 0.0, 0.0
	for i, s := range spans[1] {
		handed := spans[0][i].end
		if i == 0 || spans[1][i-1].end.Before(handed) {
			sum, n = sum+s.begin.Sub(handed).Seconds(), n+1
		}
	}
	return sum / n
}

// BenchmarkHandOn compares the share of time that ranks wait while they hand on a product with that
// of a replay at the measured times of chunks and messages, and with the formula for equal chunks.
func BenchmarkHandOn(b *testing.B) {
	const ranks, t, width, inner = 2, 1024, 512, 2048
	var all sync.WaitGroup
	var mu sync.Mutex
	ends := parallel.NewLocal(ranks)
	spans, ended := make([][]span, ranks), make([]time.Time, ranks)
	ready, run := make(chan struct{}, ranks), make([]chan bool, ranks)
	for rank, end := range ends {
		run[rank] = make(chan bool)
		all.Add(1)
		go func() {
			defer all.Done()
			dev, err := cpu.Open(npu.FP32, 1)
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
				var chunks []span
				c.Rows(y, npu.Buffer{}, t, width, func(lo, hi int, add bool) {
					began := time.Now()
					start := npu.Fresh
					if add {
						start = npu.Continue
					}
					dev.Linear(y.Slice(lo*width, hi*width), x.Slice(lo*inner, hi*inner), w, npu.Buffer{}, hi-lo, start)
					chunks = append(chunks, span{began, time.Now()})
				})
				mu.Lock()
				spans[rank], ended[rank] = chunks, time.Now()
				mu.Unlock()
				ready <- struct{}{}
			}
			require.NoError(b, c.Err())
		}()
	}
	step := func() (waited, replayed, send float64) {
		for _, r := range run {
			r <- true
		}
		for range ranks {
			<-ready
		}
		busy, durations, last := 0.0, make([][]float64, ranks), ended[0]
		for rank, chunks := range spans {
			for _, s := range chunks {
				d := s.end.Sub(s.begin).Seconds()
				durations[rank], busy = append(durations[rank], d), busy+d
			}
			if ended[rank].After(last) {
				last = ended[rank]
			}
		}
		send = sendTime(spans)
		return 1 - busy/ranks/last.Sub(spans[0][0].begin).Seconds(), 1 -
			busy/ranks/pipeline.HandOn(durations, send), send
	}
	step()
	var waited, replayed, sent, n float64
	for b.Loop() {
		w, r, s := step()
		waited, replayed, sent, n = waited+w, replayed+r, sent+s, n+1
	}
	for _, r := range run {
		r <- false
	}
	all.Wait()
	b.ReportMetric(waited/n, "idle")
	b.ReportMetric(replayed/n, "replayed")
	b.ReportMetric(1e6*sent/n, "us/send")
	chunks := (t + Chunk(t, ranks) - 1) / Chunk(t, ranks)
	b.ReportMetric(pipeline.HandOnBubble(ranks, chunks), "formula")
}
