package model

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/npu"
)

// leaf is a leaf of a micro-batch: groups of a prompt and responses, and the derivative
// of the loss by each target.
type leaf struct {
	prompts   [][]int32
	responses [][][]int32
	seed      []float32
}

func randomLeaves(rng *rand.Rand, n, vocab int) []leaf {
	leaves := make([]leaf, n)
	for i := range leaves {
		l := &leaves[i]
		for range 1 + i%2 {
			l.prompts = append(l.prompts, randomTokens(rng, 3+rng.IntN(9), vocab))
			var responses [][]int32
			n := 1 + rng.IntN(3)
			if i == 2 { // a leaf of two units, of rows and of targets
				n = 40
			}
			for range n {
				ids := randomTokens(rng, 1+rng.IntN(20), vocab)
				responses = append(responses, ids)
				for range ids {
					l.seed = append(l.seed, float32(rng.NormFloat64()))
				}
			}
			l.responses = append(l.responses, responses)
		}
	}
	return leaves
}

// add appends l to a layout.
func (l *leaf) add(to *attention.Layout) {
	for i, prompt := range l.prompts {
		root := to.Add(-1, prompt, false)
		for _, ids := range l.responses[i] {
			to.AddResponse(root, ids)
		}
	}
	to.EndLeaf()
}

// sumLeaves adds the gradients of leaves in the given order, in micro-batches of these
// numbers of leaves.
func sumLeaves(t *testing.T, dev npu.Device, c *Config, leaves []leaf, order, counts []int, recompute bool) *Gradients {
	t.Helper()
	w := testWeights(t, dev, c)
	tape := NewTape(dev, c)
	defer tape.Close()
	tape.Recompute = recompute
	g, err := NewGradients(dev, c)
	require.NoError(t, err)
	for _, n := range counts {
		var l attention.Layout
		var seed []float32
		for _, i := range order[:n] {
			leaves[i].add(&l)
			seed = append(seed, leaves[i].seed...)
		}
		require.NoError(t, l.Validate())
		require.Len(t, l.Targets, len(seed))
		addGradients(t, tape, w, g, &l, seed)
		order = order[n:]
	}
	return g
}

// Neither the order of leaves nor their division into micro-batches changes a bit of the
// gradients.
func TestMicroBatchesGiveTheSameBits(t *testing.T) {
	for name, c := range shapes() {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(10, 11))
			leaves := randomLeaves(rng, 7, c.VocabSize)
			one, two := openCPU(t, 1), openCPU(t, 2)
			want := sums(sumLeaves(t, one, c, leaves, rng.Perm(len(leaves)), []int{len(leaves)}, false))
			for i := range 8 {
				var counts []int
				for left := len(leaves); left > 0; left -= counts[len(counts)-1] {
					counts = append(counts, 1+rng.IntN(left))
				}
				got := sumLeaves(t, two, c, leaves, rng.Perm(len(leaves)), counts, i%2 == 1)
				require.Equal(t, want, sums(got), "%v leaves at a time", counts)
			}
		})
	}
}

// ranges is a device that records the limit of each norm's sums, by the number of heads.
type ranges struct {
	npu.Device
	limits map[int][]float32
}

func (d *ranges) RMSNormBackward(dx npu.Buffer, dw npu.Sums, dy, x, w npu.Buffer, heads int, eps float32, add bool,
	l *npu.Leaves) {
	d.limits[heads] = append(d.limits[heads], l.Limit)
	d.Device.RMSNormBackward(dx, dw, dy, x, w, heads, eps, add, l)
}

// The heads of a unit share its range.
func TestNormsOfHeadsShareTheRange(t *testing.T) {
	t.Parallel()
	c := shapes()["qwen3"]
	d := &ranges{openCPU(t, 1), map[int][]float32{}}
	l := testForest(c)
	gradients(t, d, testWeights(t, d, c), l, make([]float32, len(l.Targets)), false)
	whole, part := float32(1<<55), float32(1<<52) // six heads count as eight
	require.Equal(t, map[int][]float32{1: slices.Repeat([]float32{whole}, 7), 3: {part, part, part},
		6: {part, part, part}}, d.limits)
}

// A layout without leaves is one leaf, and its gradients differ from those of the same
// trees in several leaves only by rounding.
func TestLeavesDifferByRounding(t *testing.T) {
	t.Parallel()
	for name, c := range shapes() {
		t.Run(name, func(t *testing.T) {
			leaves := randomLeaves(rand.New(rand.NewPCG(12, 13)), 5, c.VocabSize)
			dev := openCPU(t, 1)
			w := testWeights(t, dev, c)
			var cut attention.Layout
			var seed []float32
			for i := range leaves {
				leaves[i].add(&cut)
				seed = append(seed, leaves[i].seed...)
			}
			whole, last := cut, cut
			whole.Leaves, last.Leaves = nil, []int32{int32(cut.Rows())}
			a, b := gradients(t, dev, w, &whole, seed, false), gradients(t, dev, w, &cut, seed, false)
			require.Equal(t, sums(a), sums(gradients(t, dev, w, &last, seed, false)))
			require.NotEqual(t, sums(a), sums(b))
			requireClose(t, w, a, b, 1e-5)
		})
	}
}

// A gradient out of range marks its tensor in every order.
func TestGradientsOutOfRange(t *testing.T) {
	t.Parallel()
	c := shapes()["qwen2"]
	dev := openCPU(t, 1)
	leaves := randomLeaves(rand.New(rand.NewPCG(14, 15)), 3, c.VocabSize)
	for _, bad := range []float32{1e30, float32(math.Inf(-1)), float32(math.NaN())} {
		leaves[1].seed[0] = bad
		for _, order := range [][]int{{0, 1, 2}, {1, 2, 0}} {
			g := sumLeaves(t, dev, c, leaves, order, []int{2, 1}, false)
			for i, p := range g.Params {
				if i > 0 { // the embeddings' rows may not include one that is affected
					require.NotZero(t, p.Mark.Int64s()[0], "%v in order %v: tensor %d", bad, order, i)
				}
			}
		}
	}
}
