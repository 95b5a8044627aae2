package nputest

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
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
	normal(r, vocab*k, 1) // golden bits depend on the draws
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

// vocabPart is a range of the vocabulary on a device.
type vocabPart struct {
	first  int
	w      npu.Matrix
	logits npu.Buffer // [n, w.Rows]
}

// vocabResult is what a device computes: dLogits by columns, [vocab, n].
type vocabResult struct{ logp, entropy, stats, dLogits, dHidden []float32 }

// run computes with the vocabulary cut into parts of width columns, the last one
// shorter.
func (c *vocabCase) run(t *testing.T, d npu.Device, width int) vocabResult {
	t.Helper()
	m := newMemory(t, d)
	defer m.free()
	hidden, dHidden, dlp, targets := m.put(c.hidden), m.nan(c.n*c.k), m.put(c.dlp), m.ints(c.targets...)
	top := filled(c.n, float32(math.Inf(-1)))
	var parts []vocabPart
	for first := 0; first < c.vocab; first += width {
		rows := min(width, c.vocab-first)
		p := vocabPart{first: first, w: m.putMatrix(c.w[first*c.k:(first+rows)*c.k], rows, c.k), logits: m.nan(c.n * rows)}
		d.Linear(p.logits, hidden, p.w, npu.Buffer{}, c.n, false)
		of := m.nan(c.n)
		d.SoftmaxMax(of, p.logits, c.n, c.invTemp)
		for i, v := range m.get(of) {
			top[i] = max(top[i], v)
		}
		parts = append(parts, p)
	}
	maxima, folds, scores := m.put(top), m.nan(c.n*32), m.nan(c.n)
	logp, entropy, stats := m.nan(c.n), m.nan(c.n), m.nan(2*c.n)
	for _, p := range parts {
		d.SoftmaxFold(folds, scores, maxima, p.logits, targets, p.first, c.invTemp)
	}
	d.SoftmaxFinish(logp, entropy, stats, folds, scores, maxima, c.n)
	r := vocabResult{logp: m.get(logp), entropy: m.get(entropy), stats: m.get(stats), dLogits: make([]float32, c.n*c.vocab)}
	for _, p := range parts {
		d.SoftmaxBackward(p.logits, dlp, stats, targets, p.first, c.invTemp)
		d.LinearBackwardInput(dHidden, []npu.Product{{DY: p.logits, W: p.w, Block: p.w.Rows}}, c.n, p.first > 0)
		for i, g := range m.get(p.logits) {
			r.dLogits[(p.first+i%p.w.Rows)*c.n+i/p.w.Rows] = g
		}
	}
	r.dHidden = m.get(dHidden)
	return r
}

func (c *vocabCase) checkReference(t *testing.T, got vocabResult) {
	t.Helper()
	hidden, w := widen(c.hidden), widen(c.w)
	logp, entropy, dl, dh := reference.LogProb(hidden, w, widen(c.dlp), c.targets, c.invTemp)
	nlogp, nentropy, ndl, ndh := reference.LogProb(c.hidden, c.w, c.dlp, c.targets, c.invTemp)
	near(t, c.String()+" logp", got.logp, logp, nlogp)
	near(t, c.String()+" entropy", got.entropy, entropy, nentropy)
	near(t, c.String()+" dLogits", got.dLogits, dl, ndl)
	near(t, c.String()+" dHidden", got.dHidden, dh, ndh)
	loss := func() float64 {
		sum := 0.0
		lp, _, _, _ := reference.LogProb(hidden, w, widen(c.dlp), c.targets, c.invTemp)
		for i, v := range lp {
			sum += v * float64(c.dlp[i])
		}
		return sum
	}
	i := rand.New(rand.NewPCG(uint64(c.vocab), 5)).IntN(len(hidden))
	require.InDelta(t, reference.Slope(hidden, i, loss), dh[i], 1e-5*(1+math.Abs(dh[i])), "%v reference dHidden[%d]", c, i)
}

func equalVocab(t *testing.T, name string, want, got vocabResult) {
	t.Helper()
	equal(t, name+" logp", want.logp, got.logp)
	equal(t, name+" entropy", want.entropy, got.entropy)
	equal(t, name+" stats", want.stats, got.stats)
	equal(t, name+" dLogits", want.dLogits, got.dLogits)
	equal(t, name+" dHidden", want.dHidden, got.dHidden)
}

// testVocab checks log-probabilities and their gradient.
func testVocab(t *testing.T, open func(threads int) (npu.Device, error)) {
	one := device(t, open, 1)
	t.Run("reference", func(t *testing.T) {
		for _, c := range vocabCases(0.5) {
			c.checkReference(t, c.run(t, one, c.vocab))
		}
	})
	t.Run("threads", func(t *testing.T) {
		for _, three := range teams(t, open, 3) {
			for _, c := range vocabCases(0.5) {
				equalVocab(t, c.String(), c.run(t, one, c.vocab), c.run(t, three, c.vocab))
			}
		}
	})
	t.Run("cut vocabulary", func(t *testing.T) {
		exactOnly(t, one)
		for _, c := range vocabCases(2) {
			whole := c.run(t, one, c.vocab)
			for _, width := range []int{32, 96, 512} {
				if width >= c.vocab && width > 32 {
					continue // one part
				}
				equalVocab(t, fmt.Sprintf("%v, %d at a time", c, width), whole, c.run(t, one, width))
			}
		}
	})
	t.Run("rows apart", func(t *testing.T) {
		exactOnly(t, one)
		for _, c := range vocabCases(0.5) {
			all, parts := c.run(t, one, c.vocab), vocabResult{}
			for lo := 0; lo < c.n; lo += 5 {
				r := c.rows(lo, min(c.n, lo+5)).run(t, one, c.vocab)
				parts.logp, parts.entropy = append(parts.logp, r.logp...), append(parts.entropy, r.entropy...)
				parts.stats, parts.dHidden = append(parts.stats, r.stats...), append(parts.dHidden, r.dHidden...)
			}
			parts.dLogits = all.dLogits // by columns; dHidden depends on them
			equalVocab(t, c.String(), all, parts)
		}
	})
	t.Run("extremes", func(t *testing.T) {
		for _, scale := range []float64{0, 1e-30, 1e4} {
			for _, c := range vocabCases(scale) {
				r := c.run(t, one, c.vocab)
				finite(t, c.String()+" logp", r.logp)
				finite(t, c.String()+" entropy", r.entropy)
				finite(t, c.String()+" dHidden", r.dHidden)
			}
		}
	})
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
	hidden, w, logits := m.put(c.hidden), m.putMatrix(c.w, c.vocab, c.k), m.nan(c.n*c.vocab)
	params := make([]npu.SampleParams, c.n)
	for i := range params {
		params[i] = npu.SampleParams{Temperature: 0.7, TopP: 0.9, Uniform: float32(i) / float32(c.n)}
		if c.invTemp == 1 {
			params[i] = npu.SampleParams{TopP: 1}
		}
	}
	ids, sampled := m.alloc(npu.Int32, c.n), m.nan(c.n)
	d.Linear(logits, hidden, w, npu.Buffer{}, c.n, false)
	d.Sample(ids, sampled, logits, c.vocab, m.params(params))
	drawn := *c
	drawn.targets = m.getInts(ids)
	equal(t, c.String()+" logp of samples", drawn.run(t, d, c.vocab).logp, m.get(sampled))
}

// testVocabBits requires the bits of log-probabilities, entropies and gradients that
// recorded runs depend on.
func testVocabBits(t *testing.T, d npu.Device) {
	for scale, want := range map[float64]uint64{0.5: 0x8f1cfe14d25f9ba9, 30: 0xc859a639ff1465a8, 1e4: 0x901207ab1eed1f58,
		1e-20: 0x12451be69a918077} {
		h := fnv.New64a()
		for _, c := range vocabCases(scale) {
			r := c.run(t, d, c.vocab)
			for _, x := range [][]float32{r.logp, r.entropy, r.dHidden} {
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
	for _, scale := range []float64{0.5, 30, 1e4, 1e-20} {
		for _, c := range vocabCases(scale) {
			r := c.run(t, want, c.vocab)
			for _, d := range got {
				equalVocab(t, fmt.Sprintf("%s: %v at %g", d.Info().Name, c, scale), r, c.run(t, d, c.vocab))
			}
		}
	}
	testVocabBits(t, want)
}
