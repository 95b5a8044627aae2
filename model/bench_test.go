package model

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/attention/cache"
	"github.com/easyrl/easyrl/npu"
)

// benchShapes returns the quickstart model, one with 25 M parameters, and one in which
// the vocabulary takes most of the time.
func benchShapes() map[string]*Config {
	return map[string]*Config{
		"0.8M": {Type: "qwen3", HiddenSize: 128, FFNSize: 384, Layers: 4, Heads: 4, KVHeads: 2, HeadDim: 32,
			VocabSize:    53,
			MaxPositions: 1024, NormEps: 1e-6, RopeTheta: 1e4, InitStd: 0.02, QKNorm: true, Tied: true, BOS: -1},
		"25M": {Type: "qwen3", HiddenSize: 512, FFNSize: 1536, Layers: 8, Heads: 8, KVHeads: 4, HeadDim: 64,
			VocabSize:    4096,
			MaxPositions: 1024, NormEps: 1e-6, RopeTheta: 1e4, InitStd: 0.02, QKNorm: true, Tied: true, BOS: -1},
		"32k": {Type: "qwen3", HiddenSize: 256, FFNSize: 768, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 64,
			VocabSize:    32768,
			MaxPositions: 1024, NormEps: 1e-6, RopeTheta: 1e4, InitStd: 0.02, QKNorm: true, Tied: true, BOS: -1},
	}
}

// BenchmarkTrain measures a forward and a backward pass over a group of 8 responses.
func BenchmarkTrain(b *testing.B) {
	for _, name := range []string{"0.8M", "25M", "32k"} {
		c := benchShapes()[name]
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/threads=%d", name, threads), func(b *testing.B) {
				dev := openCPU(b, threads)
				w := testWeights(b, dev, c)
				g, err := NewGradients(dev, c)
				require.NoError(b, err)
				rng := rand.New(rand.NewPCG(1, 2))
				var l attention.Layout
				for range 8 {
					root := l.Add(-1, randomTokens(rng, 10, c.VocabSize), false)
					for range 8 {
						l.AddResponse(root, randomTokens(rng, 24, c.VocabSize))
					}
					l.EndLeaf()
				}
				tape := NewTape(dev, c)
				defer tape.Close()
				n := len(l.Targets)
				logp, entropy, seed := make([]float32, n), make([]float32, n), make([]float32, n)
				seed[0] = 1
				for b.Loop() {
					require.NoError(b, tape.Forward(w, &l, 1, true, logp, entropy))
					require.NoError(b, tape.Wait())
					tape.Backward(w, g, seed, fixed)
				}
				flops := c.TrainFLOPs(&l) * float64(b.N)
				b.ReportMetric(flops/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				b.ReportMetric(float64(l.Rows())*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
			})
		}
	}
}

// BenchmarkLeaves measures a forward and a backward pass over about 10,000 rows in leaves of
// several lengths. Responses have 24 tokens, so that attention costs the same.
func BenchmarkLeaves(b *testing.B) {
	const rows, prompt, response = 10000, 10, 24
	c := benchShapes()["0.8M"]
	dev := openCPU(b, 1)
	w := testWeights(b, dev, c)
	g, err := NewGradients(dev, c)
	require.NoError(b, err)
	tape := NewTape(dev, c)
	defer tape.Close()
	for _, leaf := range []int{100, 1000, 10000} {
		rng := rand.New(rand.NewPCG(1, 2))
		var l attention.Layout
		for l.Rows() < rows {
			start := l.Rows()
			root := l.Add(-1, randomTokens(rng, prompt, c.VocabSize), false)
			for l.Rows() < start+leaf {
				l.AddResponse(root, randomTokens(rng, response, c.VocabSize))
			}
			l.EndLeaf()
		}
		n := len(l.Targets)
		logp, entropy, seed := make([]float32, n), make([]float32, n), make([]float32, n)
		b.Run(fmt.Sprint(leaf), func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, tape.Forward(w, &l, 1, true, logp, entropy))
				require.NoError(b, tape.Wait())
				tape.Backward(w, g, seed, fixed)
			}
			b.ReportMetric(float64(l.Rows())*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

// BenchmarkDecode measures one decode step of a batch of sequences.
func BenchmarkDecode(b *testing.B) {
	c := benchShapes()["0.8M"]
	for _, batch := range []int{1, 8, 16, 32, 64, 128} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			dev := openCPU(b, 1)
			w := testWeights(b, dev, c)
			r, err := NewRunner(dev, c, batch)
			require.NoError(b, err)
			defer r.Close()
			held, err := cache.New(dev, c.Cache(4*batch, batch, 4*npu.PageSize))
			require.NoError(b, err)
			defer held.Close()
			ids, rows := make([]int32, batch), make([]Row, batch)
			for i := range int32(batch) {
				held.SetPages(i, 0, []int32{4 * i, 4*i + 1, 4*i + 2, 4*i + 3})
				rows[i] = Row{Sequence: i, Position: 40, Slot: (4*i+2)*npu.PageSize + 8}
			}
			params := make([]npu.SampleParams, batch)
			for i := range params {
				params[i] = npu.SampleParams{Temperature: 1, TopP: 1, Uniform: 0.3}
			}
			logp := make([]float32, batch)
			for b.Loop() {
				_, err := r.Step(w, held, rows, params, ids, logp)
				require.NoError(b, err)
			}
			b.ReportMetric(c.FLOPs(batch, batch, int64(41*batch))*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			b.ReportMetric(float64(batch)*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}
