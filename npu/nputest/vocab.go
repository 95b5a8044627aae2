package nputest

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/nputest/reference"
)

// vocabCase holds the operands of log-probabilities and their gradient: n rows of k
// values, a weight [vocab, k].
type vocabCase struct {
	n, vocab, k    int
	hidden, w, dlp []float32
	targets        []int32
	invTemp        float32
}

func newVocabCase(n, vocab, k int, scale float64, invTemp float32) *vocabCase {
	r := rand.New(rand.NewPCG(uint64(n*7+vocab), uint64(k)))
	c := &vocabCase{n: n, vocab: vocab, k: k, invTemp: invTemp, hidden: normal(r, n*k, scale), w: normal(r, vocab*k, 1)}
	normal(r, vocab*k, 1) // unused, but the golden bits depend on the values drawn after it
	c.dlp = normal(r, n, 1)
	for range n {
		c.targets = append(c.targets, int32(r.IntN(vocab)))
	}
	c.dlp[n/2] = 0
	return c
}

func (c *vocabCase) String() string {
	return fmt.Sprintf("%d rows of %d, vocabulary of %d at inverse temperature %g", c.n, c.k, c.vocab, c.invTemp)
}

// on returns the case with its operands as a device of these numerics sees them.
func (c *vocabCase) on(n npu.Numerics) *vocabCase {
	seen := *c
	seen.hidden, seen.w = round(n, c.hidden), round(n, c.w)
	return &seen
}

// rows returns the case of rows [lo, hi) alone.
func (c *vocabCase) rows(lo, hi int) *vocabCase {
	return &vocabCase{
		n: hi - lo, vocab: c.vocab, k: c.k, w: c.w, invTemp: c.invTemp,
		hidden: c.hidden[lo*c.k : hi*c.k], dlp: c.dlp[lo:hi], targets: c.targets[lo:hi],
	}
}

func vocabCases(scale float64) []*vocabCase {
	var all []*vocabCase
	for _, n := range []int{1, 2, 7, 13, 33} {
		for _, s := range [][2]int{{1, 3}, {5, 1}, {17, 31}, {33, 65}, {128, 32}, {515, 9}} {
			for _, invTemp := range []float32{1, 1 / float32(0.7)} {
				all = append(all, newVocabCase(n, s[0], s[1], scale, invTemp))
			}
		}
	}
	return all
}

// vocabPart is a range of the vocabulary on a device, w.Rows columns from first on.
type vocabPart struct {
	first  int
	w      npu.Matrix
	logits npu.Buffer // [n, w.Rows]
}

func (c *vocabCase) run(t *testing.T, d npu.Device) outputs { return c.runCut(t, d, c.vocab) }

// runCut computes the case with the vocabulary cut into parts of width columns; the last part may be
// narrower. The output dLogits is transposed, [vocab, n].
func (c *vocabCase) runCut(t *testing.T, d npu.Device, width int) outputs {
	t.Helper()
	m := newMemory(t, d)
	defer m.free()
	hidden, dHidden, dlp, targets := m.values(c.hidden), m.nan(c.n*c.k), m.put(c.dlp), m.ints(c.targets...)
	top := filled(c.n, float32(math.Inf(-1)))
	var parts []vocabPart
	for first := 0; first < c.vocab; first += width {
		rows := min(width, c.vocab-first)
		p := vocabPart{first: first, w: m.weights(c.w[first*c.k:(first+rows)*c.k], rows, c.k),
			logits: m.nan(c.n * rows)}
		d.Linear(p.logits, hidden, p.w, npu.Buffer{}, c.n, npu.Fresh)
		of := m.nan(c.n)
		d.SoftmaxMax(of, p.logits, c.n, c.invTemp)
		for i, v := range m.get(of) {
			top[i] = max(top[i], v)
		}
		parts = append(parts, p)
	}
	maxima, sums := m.put(top), m.alloc(npu.Int64, c.n*npu.SoftmaxSums)
	logp, entropy, stats := m.nan(c.n), m.nan(c.n), m.nan(2*c.n)
	for i, p := range slices.Backward(parts) { // any order gives the same sums
		d.SoftmaxSum(sums, maxima, p.logits, targets, p.first, c.invTemp, i < len(parts)-1)
	}
	d.SoftmaxFinish(logp, entropy, stats, sums, maxima, c.n)
	r := map[string][]float32{"logp": m.get(logp), "entropy": m.get(entropy), "stats": m.get(stats)}
	dLogits := make([]float32, c.n*c.vocab)
	for _, p := range parts {
		dPart := m.gradientOf(p.logits)
		d.SoftmaxBackward(dPart, p.logits, dlp, stats, targets, p.first, c.invTemp)
		d.LinearBackwardInput(dHidden, []npu.Product{{DY: dPart, W: p.w, Block: p.w.Rows}}, c.n, p.first > 0)
		for i, g := range m.get(dPart) {
			dLogits[(p.first+i%p.w.Rows)*c.n+i/p.w.Rows] = g
		}
	}
	r["dLogits"], r["dHidden"] = dLogits, m.get(dHidden)
	return outputs{values: r}
}

// gradientOf returns memory for the gradient of logits: that of logits if the types are the same.
func (m *memory) gradientOf(logits npu.Buffer) npu.Buffer {
	m.t.Helper()
	if numerics(m.d) == npu.FP32 {
		return logits
	}
	return m.nanValues(logits.Len())
}

func (c *vocabCase) checkReference(t *testing.T, d npu.Device) {
	t.Helper()
	got := c.run(t, d)
	c = c.on(numerics(d))
	u := unitOf(numerics(d))
	hidden, w := widen(c.hidden), widen(c.w)
	logp, entropy, dl, dh := reference.LogProb(hidden, w, widen(c.dlp), c.targets, c.invTemp)
	nlogp, nentropy, ndl, ndh := reference.LogProb(c.hidden, c.w, c.dlp, c.targets, c.invTemp)
	near(t, unitFloat32, c.String()+" logp", got.values["logp"], logp, nlogp)
	near(t, unitFloat32, c.String()+" entropy", got.values["entropy"], entropy, nentropy)
	near(t, u, c.String()+" dLogits", got.values["dLogits"], dl, ndl)
	near(t, u, c.String()+" dHidden", got.values["dHidden"], dh, ndh)
	loss := func() float64 {
		sum := 0.0
		lp, _, _, _ := reference.LogProb(hidden, w, widen(c.dlp), c.targets, c.invTemp)
		for i, v := range lp {
			sum += v * float64(c.dlp[i])
		}
		return sum
	}
	i := rand.New(rand.NewPCG(uint64(c.vocab), 5)).IntN(len(hidden))
	require.InDelta(t, reference.Slope(hidden, i, loss), dh[i], 1e-5*(1+math.Abs(dh[i])),
		"%v reference dHidden[%d]", c, i)
}

// testVocab checks log-probabilities and their gradient.
func testVocab(t *testing.T, open func(threads int) (npu.Device, error)) {
	one := device(t, open, 1)
	t.Run("reference", func(t *testing.T) {
		for _, c := range vocabCases(0.5) {
			c.checkReference(t, one)
		}
	})
	t.Run("threads", func(t *testing.T) {
		sameOutputs(t, one, teams(t, open, 3), vocabCases, 0.5)
	})
	t.Run("cut vocabulary", func(t *testing.T) {
		exactOnly(t, one)
		for _, c := range vocabCases(2) {
			whole := c.run(t, one)
			for _, width := range []int{32, 96, 512} {
				if width >= c.vocab && width > 32 {
					continue // one part
				}
				equalOutputs(t, fmt.Sprintf("%v, %d at a time", c, width), whole, c.runCut(t, one, width))
			}
		}
	})
	t.Run("rows apart", func(t *testing.T) {
		exactOnly(t, one)
		for _, c := range vocabCases(0.5) {
			all, parts := c.run(t, one), outputs{}
			for lo := 0; lo < c.n; lo += 5 {
				parts.add(c.rows(lo, min(c.n, lo+5)).run(t, one))
			}
			// dLogits is transposed, so parts cannot be appended. dHidden, which is compared, depends on it.
			parts.values["dLogits"] = all.values["dLogits"]
			equalOutputs(t, c.String(), all, parts)
		}
	})
	t.Run("extremes", func(t *testing.T) {
		for _, scale := range []float64{0, 1e-30, 1e4} {
			for _, c := range vocabCases(scale) {
				finiteOutputs(t, c.String(), c.run(t, one))
			}
		}
	})
	t.Run("large", func(t *testing.T) { testLargeVocab(t, one) })
	t.Run("not finite", func(t *testing.T) { testNotFinite(t, one) })
	t.Run("as sampled", func(t *testing.T) {
		exactOnly(t, one)
		for _, c := range vocabCases(2) {
			c.checkSampled(t, one)
		}
	})
}

// checkSampled requires the log-probability that Sample reports to equal the one that
// the softmax kernels compute for the token drawn.
func (c *vocabCase) checkSampled(t *testing.T, d npu.Device) {
	t.Helper()
	m := newMemory(t, d)
	defer m.free()
	hidden, w, logits := m.values(c.hidden), m.weights(c.w, c.vocab, c.k), m.nan(c.n*c.vocab)
	params := make([]npu.SampleParams, c.n)
	for i := range params {
		params[i] = npu.SampleParams{Temperature: 0.7, TopP: 0.9, Uniform: float32(i) / float32(c.n)}
		if c.invTemp == 1 {
			params[i] = npu.SampleParams{TopP: 1}
		}
	}
	ids, sampled := m.alloc(npu.Int32, c.n), m.nan(c.n)
	d.Linear(logits, hidden, w, npu.Buffer{}, c.n, npu.Fresh)
	d.Sample(ids, sampled, logits, c.vocab, m.params(params))
	drawn := *c
	drawn.targets = m.getInts(ids)
	equal(t, c.String()+" logp of samples", drawn.run(t, d).values["logp"], m.get(sampled))
}

// testVocabBits requires the bits of log-probabilities, entropies and gradients that
// recorded runs depend on.
func testVocabBits(t *testing.T, d npu.Device) {
	for scale, want := range map[float64]uint64{0.5: 0x4e7102be4ac53f14, 30: 0x41eadd939de41c94,
		1e4:   0x33a988b9c9bc5137,
		1e-20: 0x12451be69a918077} {
		h := fnv.New64a()
		for _, c := range vocabCases(scale) {
			r := c.run(t, d)
			for _, x := range [][]float32{r.values["logp"], r.values["entropy"], r.values["dHidden"]} {
				for _, v := range x {
					b := math.Float32bits(v)
					_, _ = h.Write([]byte{byte(b), byte(b >> 8), byte(b >> 16), byte(b >> 24)})
				}
			}
		}
		require.Equal(t, want, h.Sum64(), "scale %g", scale)
	}
}

func sameVocab(t *testing.T, want npu.Device, got []npu.Device) {
	sameOutputs(t, want, got, vocabCases, 0.5, 30, 1e4, 1e-20)
	if numerics(want) == npu.FP32 {
		testVocabBits(t, want)
	}
}
