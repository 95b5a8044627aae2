package model

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/attention/cache"
	"github.com/easyrl/easyrl/internal/reference"
	"github.com/easyrl/easyrl/internal/soak"
	"github.com/easyrl/easyrl/model/arch"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
)

func newReference(w *Weights) *reference.Decoder {
	c := w.Config
	r := &reference.Decoder{HiddenSize: c.HiddenSize, Layers: c.Layers, Heads: c.Heads, KVHeads: c.KVHeads,
		HeadDim: c.HeadDim,
		NormEps: float64(c.NormEps), RopeTheta: c.RopeTheta, QKNorm: c.QKNorm, Tied: c.Tied}
	for i, vals := range values(w) {
		r.Set(w.Params[i].Name, vals)
	}
	return r
}

func openCPU(t testing.TB, threads int) npu.Device {
	t.Helper()
	return openIn(t, npu.FP32, threads)
}

// inBoth runs a test in each numerics.
func inBoth(t *testing.T, test func(t *testing.T, n npu.Numerics)) {
	t.Helper()
	for _, n := range []npu.Numerics{npu.FP32, npu.BF16} {
		t.Run(n.String(), func(t *testing.T) { test(t, n) })
	}
}

func openIn(t testing.TB, n npu.Numerics, threads int) npu.Device {
	t.Helper()
	dev, err := cpu.Open(n, threads)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	return dev
}

// shapes returns the three families, with sizes that are multiples of no block size.
func shapes() map[string]*Config {
	return map[string]*Config{
		"llama": {Type: "llama", HiddenSize: 20, FFNSize: 37, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 6,
			VocabSize:    41,
			MaxPositions: 128, NormEps: 1e-5, RopeTheta: 10000, InitStd: 0.2, BOS: -1},
		"qwen2": {Type: "qwen2", HiddenSize: 23, FFNSize: 34, Layers: 2, Heads: 3, KVHeads: 1, HeadDim: 10,
			VocabSize:    33,
			MaxPositions: 128, NormEps: 1e-6, RopeTheta: 1e6, InitStd: 0.2, QKVBias: true, Tied: true, BOS: -1},
		"qwen3": {Type: "qwen3", HiddenSize: 19, FFNSize: 33, Layers: 3, Heads: 6, KVHeads: 3, HeadDim: 4,
			VocabSize:    65,
			MaxPositions: 128, NormEps: 1e-6, RopeTheta: 1e4, InitStd: 0.2, QKNorm: true, Tied: true, BOS: -1},
	}
}

func testWeights(t testing.TB, dev npu.Device, c *Config) *Weights {
	t.Helper()
	w, err := NewWeights(dev, c, npu.Weights)
	require.NoError(t, err)
	require.NoError(t, w.Init(7))
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range w.Params { // norms and biases that affect the result
		if p := &w.Params[i]; p.Cols == 0 {
			vals := make([]float32, p.Rows)
			for j := range vals {
				vals[j] = 1 + 0.3*float32(rng.NormFloat64())
			}
			require.NoError(t, w.dev.Write(p, vals))
		}
	}
	return w
}

func randomTokens(rng *rand.Rand, n, vocab int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(rng.IntN(vocab))
	}
	return ids
}

// testForest returns two groups, a lone sequence and a segment below a leaf.
func testForest(c *Config) *attention.Layout {
	rng := rand.New(rand.NewPCG(3, 4))
	var l attention.Layout
	l.AddGroup(randomTokens(rng, 5, c.VocabSize),
		[][]int32{randomTokens(rng, 3, c.VocabSize), randomTokens(rng, 7, c.VocabSize),
			randomTokens(rng, 1, c.VocabSize)})
	root := l.Add(-1, randomTokens(rng, 2, c.VocabSize), false)
	turn := l.Add(root, randomTokens(rng, 4, c.VocabSize), true)
	l.Add(turn, randomTokens(rng, 3, c.VocabSize), true)
	l.Add(-1, randomTokens(rng, 6, c.VocabSize), true)
	return &l
}

func TestForwardMatchesFloat64(t *testing.T) { inBoth(t, testForward) }

func testForward(t *testing.T, numerics npu.Numerics) {
	tolerance := map[npu.Numerics]float64{npu.FP32: 2e-4, npu.BF16: 5e-2}[numerics]
	for name, c := range shapes() {
		t.Run(name, func(t *testing.T) {
			dev := openIn(t, numerics, 2)
			w := testWeights(t, dev, c)
			l := testForest(c)
			tape := NewTape(dev, c)
			defer tape.Close()
			n := len(l.Targets)
			logp, entropy := make([]float32, n), make([]float32, n)
			require.NoError(t, tape.Forward(w, l, 0.7, false, logp, entropy))
			require.NoError(t, tape.Wait())
			wantLogp, wantEntropy := newReference(w).Logprobs(l, float64(float32(0.7)))
			for i := range n {
				require.InDelta(t, wantLogp[i], logp[i], tolerance, "target %d", i)
				require.InDelta(t, wantEntropy[i], entropy[i], tolerance, "target %d", i)
			}
		})
	}
}

func TestBackwardMatchesDifferences(t *testing.T) {
	for name, c := range shapes() {
		for _, recompute := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/recompute=%v", name, recompute), func(t *testing.T) {
				dev := openCPU(t, 2)
				w := testWeights(t, dev, c)
				l := testForest(c)
				seed := make([]float32, len(l.Targets))
				rng := rand.New(rand.NewPCG(5, 6))
				for i := range seed {
					seed[i] = float32(rng.NormFloat64())
				}
				g := gradientValues(w, gradients(t, dev, w, l, seed, recompute))
				ref := newReference(w)
				loss := func() float64 {
					logp, _ := ref.Logprobs(l, 0.7)
					sum := 0.0
					for i, lp := range logp {
						sum += float64(seed[i]) * lp
					}
					return sum
				}
				for i := range w.Params {
					p := &w.Params[i]
					vals := ref.Tensor[p.Name]
					draws := 5
					if recompute && !soak.Long() { // as exact as without
						draws = 1
					}
					for range draws {
						j := rng.IntN(len(vals))
						const h = 1e-5
						old := vals[j]
						vals[j] = old + h
						up := loss()
						vals[j] = old - h
						down := loss()
						vals[j] = old
						want := (up - down) / (2 * h)
						require.InDelta(t, want, g[i][j], 2e-3*math.Max(1, math.Abs(want)), "%s[%d]", p.Name, j)
					}
				}
			})
		}
	}
}

// fixed is the format of gradients in tests.
var fixed = npu.FixedPoint{Scale: 1 << 40, Limit: 1 << 55}

// gradients returns the gradients of Σ seed·logp over l.
func gradients(t testing.TB, dev npu.Device, w *Weights, l *attention.Layout, seed []float32,
	recompute bool) *Gradients {
	t.Helper()
	g, err := NewGradients(dev, w.Config)
	require.NoError(t, err)
	tape := NewTape(dev, w.Config)
	defer tape.Close()
	tape.Recompute = recompute
	addGradients(t, tape, w, g, l, seed)
	return g
}

func addGradients(t testing.TB, tape *Tape, w *Weights, g *Gradients, l *attention.Layout, seed []float32) []float32 {
	t.Helper()
	logp := make([]float32, len(l.Targets))
	require.NoError(t, tape.Forward(w, l, 0.7, true, logp, make([]float32, len(logp))))
	require.NoError(t, tape.Wait())
	tape.Backward(w, g, seed, fixed)
	return logp
}

// sums returns the sums of each tensor and its mark.
func sums(g *Gradients) [][]int64 {
	var out [][]int64
	for _, p := range g.Params {
		out = append(out, slices.Concat(p.Int64s(), p.Mark.Int64s()))
	}
	return out
}

// gradientValues returns the gradients of w's tensors, row-major.
func gradientValues(w *Weights, g *Gradients) [][]float32 {
	var out [][]float32
	for i, p := range w.Params {
		vals := make([]float32, g.Params[i].Len())
		for j, sum := range g.Params[i].Int64s() {
			vals[j] = float32(float64(sum) / float64(fixed.Scale))
		}
		if p.Cols > 0 {
			packed := vals
			vals = make([]float32, p.Rows*p.Cols)
			for j := range vals {
				row, col := j/p.Cols, j%p.Cols
				vals[j] = packed[(row/npu.MatrixBlock*p.Cols+col)*npu.MatrixBlock+row%npu.MatrixBlock]
			}
		}
		out = append(out, vals)
	}
	return out
}

func values(w *Weights) [][]float32 {
	out := make([][]float32, len(w.Params))
	for i := range w.Params {
		out[i] = make([]float32, w.Params[i].Rows*max(w.Params[i].Cols, 1))
		w.Read(i, out[i])
	}
	return out
}

func TestRecomputeGivesTheSameBits(t *testing.T) { inBoth(t, testRecompute) }

func testRecompute(t *testing.T, n npu.Numerics) {
	c := shapes()["qwen3"]
	dev := openIn(t, n, 2)
	w, l := testWeights(t, dev, c), testForest(c)
	seed := make([]float32, len(l.Targets))
	for i := range seed {
		seed[i] = float32(i%5) - 2
	}
	require.Equal(t, sums(gradients(t, dev, w, l, seed, false)), sums(gradients(t, dev, w, l, seed, true)))
}

// A prompt shared by its group gives the same log-probabilities, bit for bit, as a
// prompt repeated for each response. The gradients agree to rounding.
func TestSharedPromptEqualsSeparateSequences(t *testing.T) { inBoth(t, testSharedPrompt) }

func testSharedPrompt(t *testing.T, numerics npu.Numerics) {
	for name, c := range shapes() {
		t.Run(name, func(t *testing.T) {
			dev := openIn(t, numerics, 2)
			w := testWeights(t, dev, c)
			rng := rand.New(rand.NewPCG(8, 9))
			prompt := randomTokens(rng, 21, c.VocabSize)
			var shared attention.Layout
			root := shared.Add(-1, prompt, false)
			var separate attention.Layout
			for _, n := range []int{1, 9, 30, 17} {
				ids := randomTokens(rng, n, c.VocabSize)
				shared.AddResponse(root, ids)
				separate.AddResponse(separate.Add(-1, prompt, false), ids)
			}
			seed := make([]float32, len(shared.Targets))
			for i := range seed {
				seed[i] = float32(rng.NormFloat64())
			}
			tape := NewTape(dev, c)
			defer tape.Close()
			a, err := NewGradients(dev, c)
			require.NoError(t, err)
			b, err := NewGradients(dev, c)
			require.NoError(t, err)
			require.Equal(t, addGradients(t, tape, w, a, &shared, seed), addGradients(t, tape, w, b, &separate, seed))
			requireClose(t, w, a, b, map[npu.Numerics]float64{npu.FP32: 1e-5, npu.BF16: 2e-2}[numerics])
		})
	}
}

// requireClose compares the gradients of each tensor relative to its norm.
func requireClose(t *testing.T, w *Weights, a, b *Gradients, tolerance float64) {
	t.Helper()
	va, vb := gradientValues(w, a), gradientValues(w, b)
	for i := range w.Params {
		var diff, norm float64
		for j := range va[i] {
			diff += math.Pow(float64(va[i][j]-vb[i][j]), 2)
			norm += math.Pow(float64(vb[i][j]), 2)
		}
		require.LessOrEqual(t, math.Sqrt(diff), tolerance*math.Sqrt(norm), w.Params[i].Name)
	}
}

// Sampling and training compute the same bits: prefill and decode through the cache
// give the log-probabilities of one pass over the layout.
func TestDecodeEqualsForward(t *testing.T) { inBoth(t, testDecode) }

func testDecode(t *testing.T, n npu.Numerics) {
	for name, c := range shapes() {
		t.Run(name, func(t *testing.T) {
			dev, other := openIn(t, n, 1), openIn(t, n, 2)
			w := testWeights(t, dev, c)
			rng := rand.New(rand.NewPCG(12, 13))
			prompt, answer := randomTokens(rng, 21, c.VocabSize), randomTokens(rng, 40, c.VocabSize)
			var l attention.Layout
			l.AddResponse(l.Add(-1, prompt, false), answer)
			want := make([]float32, len(l.Targets))
			tape := NewTape(dev, c)
			defer tape.Close()
			require.NoError(t, tape.Forward(w, &l, 0.9, false, want, make([]float32, len(want))))
			require.NoError(t, tape.Wait())

			w = testWeights(t, other, c)
			for _, chunk := range []int{1, 7, 64} {
				require.Equal(t, want, decodeLogprobs(t, other, w, prompt, answer, 0.9, chunk), "chunks of %d", chunk)
			}
		})
	}
}

// decodeLogprobs forces answer through prefills, chunk tokens of the prompt at a time, and decode steps. It returns the
// log-probability that Sample reports for each token, with draws chosen to pick that
// token.
func decodeLogprobs(t *testing.T, dev npu.Device, w *Weights, prompt, answer []int32, temperature float32,
	chunk int,
) []float32 {
	t.Helper()
	c := w.Config
	r, err := NewRunner(dev, c, 64)
	require.NoError(t, err)
	defer r.Close()
	held, err := cache.New(dev, c.Cache(8, 3, 8*npu.PageSize))
	require.NoError(t, err)
	defer held.Close()
	table := []int32{5, 2, 7, 0, 3, 1}
	held.SetPages(2, 0, table)
	slot := func(p int) int32 { return table[p/npu.PageSize]*npu.PageSize + int32(p%npu.PageSize) }
	var logits npu.Buffer
	for first := 0; first < len(prompt); first += chunk {
		next := Chunk{Tokens: prompt[first:min(first+chunk, len(prompt))], First: first, Pages: table}
		logits, err = r.Prefill(w, held, []Chunk{next}, []int32{int32(len(next.Tokens) - 1)})
		require.NoError(t, err)
	}
	var out []float32
	for i, id := range answer {
		out = append(out, forced(t, r, logits, id, temperature))
		p := len(prompt) + i
		row := Row{Sequence: 2, ID: id, Position: int32(p), Slot: slot(p)}
		logits, err = r.Step(w, held, []Row{row}, make([]npu.SampleParams, 1), make([]int32, 1), make([]float32, 1))
		require.NoError(t, err)
	}
	return out
}

// forced returns the log-probability that Sample reports for token id. It searches
// for a draw that picks the token.
func forced(t *testing.T, r *Runner, logits npu.Buffer, id int32, temperature float32) float32 {
	t.Helper()
	ids, logp := make([]int32, 1), make([]float32, 1)
	lo, hi := float32(0), float32(1)
	for range 60 { // larger draws pick larger ids
		mid := (lo + hi) / 2
		require.NoError(t, r.Sample(ids, logp, logits,
			[]npu.SampleParams{{Temperature: temperature, TopP: 1, Uniform: mid}}))
		switch {
		case ids[0] == id:
			return logp[0]
		case ids[0] < id:
			lo = mid
		default:
			hi = mid
		}
	}
	require.Fail(t, "no draw picks the token", "token %d, probability too small", id)
	return 0
}

func testData(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("EASYRL_TESTDATA")
	if dir == "" {
		t.Skip("EASYRL_TESTDATA is not set: no real weights to test with")
	}
	return dir
}

func TestStories260K(t *testing.T) {
	dir := filepath.Join(testData(t), "weights", "stories260K")
	b, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	require.NoError(t, err)
	var golden struct {
		IDs     []int32   `json:"ids"`
		Logprob []float64 `json:"logprob_of_chosen"`
	}
	require.NoError(t, json.Unmarshal(b, &golden))
	dev := openCPU(t, 1)
	c, err := arch.ReadConfig(dir)
	require.NoError(t, err)
	w, err := NewWeights(dev, c, npu.Weights)
	require.NoError(t, err)
	require.NoError(t, w.Load(dir))
	var l attention.Layout
	l.Add(-1, golden.IDs, true)
	logp := make([]float32, len(l.Targets))
	tape := NewTape(dev, c)
	defer tape.Close()
	require.NoError(t, tape.Forward(w, &l, 1, false, logp, make([]float32, len(logp))))
	require.NoError(t, tape.Wait())
	for i, want := range golden.Logprob {
		require.InDelta(t, want, logp[i], 1e-4, "token %d", i)
	}
}
