package optim

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
)

var long = flag.Bool("long", false, "TestFixedPointError: also 67 million tokens")

// Gradients summed in fixed point are closer to those in float64 than the chain in float32 over
// all tokens is, relative to the larger of the gradient and 100 times AdamW's epsilon.
func TestFixedPointError(t *testing.T) {
	t.Parallel()
	const length = 256 // tokens of the longest response
	sizes := []int{1, 8, 1 << 8, 1 << 12}
	if *long {
		sizes = append(sizes, 1<<18)
	}
	for _, a := range []loss.Aggregation{loss.TokenMean, loss.SequenceMean, loss.Constant} {
		for _, responses := range sizes {
			t.Run(fmt.Sprintf("%s, %d tokens", a, responses*length), func(t *testing.T) {
				fixed, chain := gradientErrors(t, a, responses, length)
				t.Logf("fixed point %.2g, float32 chain %.2g", fixed, chain)
				require.LessOrEqual(t, fixed, 1.001*chain) // they are equal for a single leaf
			})
		}
	}
}

// gradientErrors returns the largest relative errors of a normalised gradient of 4 × 4 weights:
// of the sums of leaves, and of a float32 chain over all tokens. A leaf has 16 responses, whose
// lengths are between 1 and length.
func gradientErrors(t *testing.T, a loss.Aggregation, responses, length int) (fixed, chain float64) {
	const n, k = 4, 4
	dev, err := cpu.Open(npu.FP32, 1)
	require.NoError(t, err)
	defer dev.Close()
	memory := func(dtype npu.DType, values int) npu.Buffer {
		b, err := dev.Alloc(dtype, values, npu.Gradients)
		require.NoError(t, err)
		dev.Zero(b)
		return b
	}
	batch := npu.NewBatch(dev)
	size := dev.MatrixLen(n, k)
	dw := npu.MatrixSums{Sums: npu.NewSums(memory(npu.Int64, size+1)), Rows: n, Cols: k}
	dy, x := memory(npu.Float32, 16*length*n), memory(npu.Float32, 16*length*k)
	point := FixedPoint(a.Denominator(responses, responses*length, length), responses)
	rng := rand.New(rand.NewPCG(uint64(responses), 5))
	var exact [n * k]float64
	var old [n * k]float32
	tokens := 0
	for first := 0; first < responses; first += 16 {
		rows := 0
		ys, xs := dy.Float32s(), x.Float32s()
		for range min(16, responses-first) {
			tokensOf := 1 + rng.IntN(length)
			weight := a.Weight(tokensOf) * float32(rng.NormFloat64()) // its advantage
			for range tokensOf {
				for i := range n {
					ys[rows*n+i] = weight * float32(rng.NormFloat64())
				}
				for i := range k {
					xs[rows*k+i] = float32(rng.NormFloat64())
				}
				for i := range n * k {
					y, v := float64(ys[rows*n+i/k]), float64(xs[rows*k+i%k])
					exact[i] += y * v
					old[i] = float32(math.FMA(y, v, float64(old[i])))
				}
				rows++
			}
		}
		tokens += rows
		require.NoError(t, batch.Begin(1+npu.MaxUnits(1, rows)))
		leaf := batch.Leaves(point, []int32{int32(rows)}, rows)
		batch.Upload()
		dev.LinearBackwardWeight(dw, npu.Sums{}, dy.Slice(0, rows*n), x.Slice(0, rows*k), &leaf)
	}
	require.NoError(t, dev.Sync())
	sums, divisor := dw.Int64s(), a.Denominator(responses, tokens, length)
	require.Zero(t, dw.Mark.Int64s()[0], "values out of range")
	for i := range n * k {
		want := exact[i] / divisor
		scale := max(math.Abs(want), 100*Eps)
		lane := i%k*npu.MatrixBlock + i/k
		got := float64(float32(float64(sums[lane]))) / float64(point.Scale) / divisor
		fixed = max(fixed, math.Abs(got-want)/scale)
		chain = max(chain, math.Abs(float64(old[i])/divisor-want)/scale)
	}
	return fixed, chain
}
