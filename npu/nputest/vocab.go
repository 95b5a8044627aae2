package nputest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/nputest/reference"
)

// vocabCase holds the operands of the fused log-probability: n rows of k values, a
// weight [vocab, k].
type vocabCase struct {
	n, vocab, k         int
	hidden, w, dw0, dlp []float32
	targets             []int32
	invTemp             float32
}

func newVocabCase(n, vocab, k int, scale float64, invTemp float32) *vocabCase {
	r := rand.New(rand.NewPCG(uint64(n*7+vocab), uint64(k)))
	c := &vocabCase{
		n: n, vocab: vocab, k: k, invTemp: invTemp,
		hidden: normal(r, n*k, scale), w: normal(r, vocab*k, 1), dw0: normal(r, vocab*k, 1), dlp: normal(r, n, 1),
	}
	for range n {
		c.targets = append(c.targets, int32(r.IntN(vocab)))
	}
	c.dlp[n/2] = 0
	return c
}

func (c *vocabCase) String() string {
	return fmt.Sprintf("%d rows of %d, vocabulary of %d at inverse temperature %g", c.n, c.k, c.vocab, c.invTemp)
}

func (c *vocabCase) rows(lo, hi int, dw []float32) *vocabCase {
	return &vocabCase{
		n: hi - lo, vocab: c.vocab, k: c.k, w: c.w, dw0: dw, invTemp: c.invTemp,
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

type vocabResult struct{ logp, entropy, dHidden, dw []float32 }

func (c *vocabCase) run(t *testing.T, d npu.Device) vocabResult {
	t.Helper()
	m := newMemory(t, d)
	defer m.free()
	hidden, w, dw := m.put(c.hidden), m.putMatrix(c.w, c.vocab, c.k), m.putMatrix(c.dw0, c.vocab, c.k)
	logp, entropy, dHidden := m.nan(c.n), m.nan(c.n), m.nan(c.n*c.k)
	d.LogProb(logp, entropy, hidden, w, c.targets, c.invTemp)
	d.LogProbBackward(dHidden, dw, m.put(c.dlp), hidden, w, c.targets, c.invTemp)
	require.NoError(t, d.Sync())
	return vocabResult{m.get(logp), m.get(entropy), m.get(dHidden), m.getMatrix(dw)}
}

func (c *vocabCase) checkReference(t *testing.T, got vocabResult) {
	t.Helper()
	hidden, w := widen(c.hidden), widen(c.w)
	logp, entropy, dh, dw := reference.LogProb(hidden, w, widen(c.dlp), widen(c.dw0), c.targets, c.invTemp)
	nlogp, nentropy, ndh, ndw := reference.LogProb(c.hidden, c.w, c.dlp, c.dw0, c.targets, c.invTemp)
	near(t, c.String()+" logp", got.logp, logp, nlogp)
	near(t, c.String()+" entropy", got.entropy, entropy, nentropy)
	near(t, c.String()+" dHidden", got.dHidden, dh, ndh)
	near(t, c.String()+" dW", got.dw, dw, ndw)
	loss := func() float64 {
		sum := 0.0
		lp, _, _, _ := reference.LogProb(hidden, w, widen(c.dlp), widen(c.dw0), c.targets, c.invTemp)
		for i, v := range lp {
			sum += v * float64(c.dlp[i])
		}
		return sum
	}
	r := rand.New(rand.NewPCG(uint64(c.vocab), 5))
	i, j := r.IntN(len(hidden)), r.IntN(len(w))
	require.InDelta(t, reference.Slope(hidden, i, loss), dh[i], 1e-5*(1+math.Abs(dh[i])), "%v reference dHidden[%d]", c, i)
	require.InDelta(t, reference.Slope(w, j, loss), dw[j]-float64(c.dw0[j]), 1e-5*(1+math.Abs(dw[j])), "%v reference dW[%d]", c, j)
}

func equalVocab(t *testing.T, name string, want, got vocabResult) {
	t.Helper()
	equal(t, name+" logp", want.logp, got.logp)
	equal(t, name+" entropy", want.entropy, got.entropy)
	equal(t, name+" dHidden", want.dHidden, got.dHidden)
	equal(t, name+" dW", want.dw, got.dw)
}

// testVocab checks the fused log-probability.
func testVocab(t *testing.T, open func(threads int) (npu.Device, error)) {
	one, three := device(t, open, 1), device(t, open, 3)
	t.Run("reference", func(t *testing.T) {
		for _, c := range vocabCases(0.5) {
			c.checkReference(t, c.run(t, one))
		}
	})
	t.Run("threads", func(t *testing.T) {
		for _, c := range vocabCases(0.5) {
			equalVocab(t, c.String(), c.run(t, one), c.run(t, three))
		}
	})
	t.Run("rows apart", func(t *testing.T) {
		for _, c := range vocabCases(0.5) {
			parts := vocabResult{dw: c.dw0}
			for lo := 0; lo < c.n; lo += 5 {
				r := c.rows(lo, min(c.n, lo+5), parts.dw).run(t, one)
				parts.logp, parts.entropy = append(parts.logp, r.logp...), append(parts.entropy, r.entropy...)
				parts.dHidden, parts.dw = append(parts.dHidden, r.dHidden...), r.dw
			}
			equalVocab(t, c.String(), c.run(t, one), parts)
		}
	})
	t.Run("extremes", func(t *testing.T) {
		for _, scale := range []float64{0, 1e-30, 1e4} {
			for _, c := range vocabCases(scale) {
				r := c.run(t, one)
				finite(t, c.String()+" logp", r.logp)
				finite(t, c.String()+" entropy", r.entropy)
				finite(t, c.String()+" dHidden", r.dHidden)
				finite(t, c.String()+" dW", r.dw)
			}
		}
	})
	t.Run("as sampled", func(t *testing.T) {
		for _, c := range vocabCases(2) {
			c.checkSampled(t, one)
		}
	})
}

// checkSampled requires the log-probability that Sample reports to equal the one that
// LogProb computes for the token drawn.
func (c *vocabCase) checkSampled(t *testing.T, d npu.Device) {
	t.Helper()
	m := newMemory(t, d)
	defer m.free()
	hidden, w := m.put(c.hidden), m.putMatrix(c.w, c.vocab, c.k)
	logits, logp, entropy := m.nan(c.n*c.vocab), m.nan(c.n), m.nan(c.n)
	params := make([]npu.SampleParams, c.n)
	for i := range params {
		params[i] = npu.SampleParams{Temperature: 0.7, TopP: 0.9, Uniform: float32(i) / float32(c.n)}
		if c.invTemp == 1 {
			params[i] = npu.SampleParams{TopP: 1}
		}
	}
	ids, sampled := make([]int32, c.n), make([]float32, c.n)
	d.Linear(logits, hidden, w, npu.Buffer{}, c.n, false)
	d.Sample(ids, sampled, logits, c.vocab, params)
	d.LogProb(logp, entropy, hidden, w, ids, c.invTemp)
	require.NoError(t, d.Sync())
	equal(t, c.String()+" logp of samples", m.get(logp), sampled)
}

func sameVocab(t *testing.T, want, got npu.Device) {
	for _, scale := range []float64{0.5, 30, 1e4, 1e-20} {
		for _, c := range vocabCases(scale) {
			equalVocab(t, fmt.Sprintf("%v at %g", c, scale), c.run(t, want), c.run(t, got))
		}
	}
}
