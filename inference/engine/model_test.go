package engine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
)

func modelShapes() map[string]*model.Config {
	return map[string]*model.Config{
		"llama": {
			Type: "llama", HiddenSize: 20, FFNSize: 37, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 6, VocabSize: 41,
			MaxPositions: 128, NormEps: 1e-5, RopeTheta: 10000, InitStd: 0.3, BOS: -1,
		},
		"qwen3": {
			Type: "qwen3", HiddenSize: 19, FFNSize: 33, Layers: 3, Heads: 6, KVHeads: 3, HeadDim: 4, VocabSize: 65,
			MaxPositions: 128, NormEps: 1e-6, RopeTheta: 1e4, InitStd: 0.3, QKNorm: true, Tied: true, BOS: -1,
		},
	}
}

func openCPU(t testing.TB, threads int) npu.Device {
	t.Helper()
	dev, err := cpu.Open(npu.FP32, threads)
	require.NoError(t, err)
	return dev
}

func newWeights(t testing.TB, dev npu.Device, c *model.Config, seed uint64) *model.Weights {
	t.Helper()
	w, err := model.NewWeights(dev, c, npu.Weights)
	require.NoError(t, err)
	require.NoError(t, w.Init(seed))
	return w
}

// openEngine returns an engine on its own device, with w published as version 1.
func openEngine(t testing.TB, c *model.Config, w *model.Weights, cfg Config, threads int) *Engine {
	t.Helper()
	cfg.ID = "cpu"
	e, err := New(cfg, c, letters{}, openCPU(t, threads))
	require.NoError(t, err)
	sum, err := e.Publish(t.Context(), model.NewSnapshot(w, 1))
	require.NoError(t, err)
	require.Equal(t, w.Checksum(), sum)
	return e
}

func modelRequests(vocab int) []inference.Request {
	rng := rand.New(rand.NewPCG(5, 6))
	var reqs []inference.Request
	for i, n := range []int{1, 16, 17, 33, 40, 5} {
		r := request(n, 2+i%3, 5+7*i)
		for j := range r.PromptIDs {
			r.PromptIDs[j] = int32(rng.IntN(vocab))
		}
		r.Sampling.Temperature = []float32{1, 0.7, 0}[i%3]
		r.Sampling.StopIDs = []int32{2}
		reqs = append(reqs, r)
	}
	return reqs
}

// Tokens and log-probability bits are the same alone and batched, with a large
// and a small cache, on one thread and on two.
func TestModelResponsesAreReproducible(t *testing.T) {
	for name, c := range modelShapes() {
		t.Run(name, func(t *testing.T) {
			dev := openCPU(t, 1)
			defer func() { require.NoError(t, dev.Close()) }()
			w := newWeights(t, dev, c, 3)
			reqs := modelRequests(c.VocabSize)
			var want [][]inference.Completion
			alone := openEngine(t, c, w, Config{MaxRunning: 1}, 1)
			for _, r := range reqs {
				out, err := alone.Generate(t.Context(), r)
				require.NoError(t, err)
				want = append(want, out)
			}
			require.NoError(t, alone.Close())
			preempted := int64(0)
			for _, cfg := range []Config{
				{MaxRunning: 32},
				{MaxRunning: 5, CachePages: 12},
				{MaxRunning: 32, CachePages: 9, PrefillRows: 7},
			} {
				for _, threads := range []int{1, 2} {
					e := openEngine(t, c, w, cfg, threads)
					require.Equal(t, want, generateAll(t, e, reqs), "%+v, %d threads", cfg, threads)
					preempted += e.Stats().Preemptions
					require.NoError(t, e.Close())
				}
			}
			require.Positive(t, preempted)
		})
	}
}

// The recorded log-probability equals the one from the trainer's forward pass
// over the group's layout, bit for bit.
func TestRecordedLogprobsMatchTrainer(t *testing.T) {
	for name, c := range modelShapes() {
		t.Run(name, func(t *testing.T) {
			dev := openCPU(t, 1)
			defer func() { require.NoError(t, dev.Close()) }()
			w := newWeights(t, dev, c, 4)
			e := openEngine(t, c, w, Config{MaxRunning: 6, CachePages: 14}, 2)
			reqs := modelRequests(c.VocabSize)
			outs := generateAll(t, e, reqs)
			require.NoError(t, e.Close())
			tape := model.NewTape(dev, c)
			defer tape.Close()
			for i, out := range outs {
				var l attention.Layout
				var responses [][]int32
				var got []float32
				for _, r := range out {
					responses = append(responses, r.IDs)
					got = append(got, r.Logprobs...)
				}
				l.AddGroup(reqs[i].PromptIDs, responses)
				temperature := reqs[i].Sampling.Temperature
				if temperature == 0 {
					temperature = 1
				}
				logp, entropy := make([]float32, len(l.Targets)), make([]float32, len(l.Targets))
				require.NoError(t, tape.Forward(w, &l, temperature, false, logp, entropy))
				require.NoError(t, tape.Wait())
				require.Equal(t, got, logp, "request %d", i)
			}
		})
	}
}

func TestModelPublish(t *testing.T) {
	c := modelShapes()["llama"]
	dev := openCPU(t, 1)
	defer func() { require.NoError(t, dev.Close()) }()
	one, two := newWeights(t, dev, c, 1), newWeights(t, dev, c, 2)
	e := openEngine(t, c, one, Config{MaxRunning: 4}, 1)
	r := modelRequests(c.VocabSize)[4]
	first, err := e.Generate(t.Context(), r)
	require.NoError(t, err)
	sum, err := e.Publish(t.Context(), model.NewSnapshot(two, 2))
	require.NoError(t, err)
	require.Equal(t, two.Checksum(), sum)
	second, err := e.Generate(t.Context(), r)
	require.NoError(t, err)
	require.NotEqual(t, first[0].Logprobs, second[0].Logprobs)
	require.EqualValues(t, 2, second[0].Version)

	other := modelShapes()["qwen3"]
	_, err = e.Publish(t.Context(), model.NewSnapshot(newWeights(t, dev, other, 1), 3))
	require.ErrorContains(t, err, "publish version 3: weights have shape")
	_, err = e.Publish(t.Context(), fakeWeights(3))
	require.ErrorContains(t, err, "expected *model.Snapshot")
	again, err := e.Generate(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, second, again, "a failed publish keeps the current weights")
	require.NoError(t, e.Close())
}

func BenchmarkDecode(b *testing.B) {
	c := &model.Config{
		Type: "llama", HiddenSize: 128, FFNSize: 384, Layers: 4, Heads: 4, KVHeads: 4, HeadDim: 32, VocabSize: 1024,
		MaxPositions: 512, NormEps: 1e-5, RopeTheta: 1e4, InitStd: 0.02, BOS: -1,
	}
	for _, rows := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("%d rows", rows), func(b *testing.B) {
			dev := openCPU(b, 1)
			defer func() { require.NoError(b, dev.Close()) }()
			e := openEngine(b, c, newWeights(b, dev, c, 1), Config{MaxRunning: rows}, 2)
			r := request(32, rows, 128)
			b.ReportAllocs()
			for b.Loop() {
				_, err := e.Generate(b.Context(), r)
				require.NoError(b, err)
			}
			s := e.Stats()
			b.ReportMetric(float64(s.Tokens)/s.Busy.Seconds(), "tokens/s")
			b.ReportMetric(math.Round(s.Busy.Seconds()/float64(s.Steps)*1e6), "us/step")
			require.NoError(b, e.Close())
		})
	}
}
