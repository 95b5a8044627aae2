package cpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/bf16"
	"github.com/easyrl/easyrl/npu/cpu"
)

// everyBF16 runs a test with the devices of all instruction sets, on one thread and on three.
func everyBF16(t *testing.T, test func(t *testing.T, d npu.Device)) {
	for _, isa := range cpu.ISAs() {
		for _, threads := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/%d", isa, threads), func(t *testing.T) {
				t.Parallel()
				test(t, open(t, func(n int) (npu.Device, error) { return cpu.OpenISA(isa, npu.BF16, n) }, threads))
			})
		}
	}
}

// draw returns n bfloat16 values of normal size, of which a few are odd: zero, about the least, huge, or, if
// finite is false, not finite.
func draw(r *rand.Rand, n int, finite bool) []float32 {
	odd := []float32{
		0, 0x1p-62, -0x1.02p-62, 0x1p-40, 0x1.fep63, 0x1p64, -0x1p70, float32(math.Inf(1)), float32(math.NaN()),
	}
	if finite {
		odd = odd[:4]
	}
	x := make([]float32, n)
	for i := range x {
		x[i] = bf16.Round(float32(r.NormFloat64())).Float()
		if r.IntN(50*len(odd)) < len(odd) {
			x[i] = odd[r.IntN(len(odd))]
		}
	}
	return x
}

// output is memory of either type for the values of a product.
type output struct {
	npu.Buffer
	t *testing.T
}

// newOutput returns n values: start in float32, or NaN in bfloat16 if start is nil.
func newOutput(t *testing.T, d npu.Device, start []float32, n int) output {
	dtype := npu.Float32
	if start == nil {
		dtype, start = npu.BFloat16, slices.Repeat([]float32{float32(math.NaN())}, n)
	}
	return output{values(t, d, dtype, start), t}
}

// require compares with want, rounded to the output's type.
func (o output) require(want []float32, what string) {
	o.t.Helper()
	for i, w := range want {
		var got float32
		if o.DType() == npu.BFloat16 {
			got, w = o.BFloat16s()[i].Float(), bf16.Round(w).Float()
		} else {
			got = o.Float32s()[i]
		}
		if !sameClass(got, w) {
			o.t.Fatalf("%s: value %d is %x, expected %x", what, i, got, w)
		}
	}
}

func TestLinearBF16(t *testing.T) {
	t.Parallel()
	everyBF16(t, func(t *testing.T, d npu.Device) {
		r := rand.New(rand.NewPCG(1, 1))
		for i := range 60 {
			m, n, k, finite := 1+r.IntN(8), 1+r.IntN(70), 1+r.IntN(70), i%3 > 0
			switch i % 10 {
			case 4:
				m = 90 + r.IntN(100) // several blocks of rows
			case 5:
				k = 500 + r.IntN(40) // several runs of terms
			case 6:
				n = 300 + r.IntN(70) // several chunks of panels
			}
			x, w, bias, y := draw(r, m*k, finite), draw(r, n*k, finite), draw(r, n, finite), draw(r, m*n, finite)
			matrix := weights(t, d, w, n, k)
			dots, biased := make([]float32, m*n), make([]float32, m*n)
			added, continued := make([]float32, m*n), make([]float32, m*n)
			for j := range dots {
				a, b := x[j/n*k:][:k], w[j%n*k:][:k]
				dots[j] = chain(0, a, b)
				biased[j] = dots[j] + bias[j%n]
				added[j] = y[j] + dots[j]
				continued[j] = chain(y[j], a, b)
			}
			for _, c := range []struct {
				name  string
				bias  npu.Buffer
				start npu.Start
				want  []float32
			}{
				{"fresh", npu.Buffer{}, npu.Fresh, dots},
				{"bias", values(t, d, npu.BFloat16, bias), npu.Fresh, biased},
				{"add", npu.Buffer{}, npu.Add, added},
				{"continue", npu.Buffer{}, npu.Continue, continued},
			} {
				for _, start := range [][]float32{y, nil} {
					if start == nil && c.start != npu.Fresh {
						continue
					}
					out := newOutput(t, d, start, m*n)
					d.Linear(out.Buffer, values(t, d, npu.BFloat16, x), matrix, c.bias, m, c.start)
					require.NoError(t, d.Sync())
					out.require(c.want, fmt.Sprintf("%s %s [%d, %d, %d]", c.name, out.DType(), m, n, k))
				}
			}
		}
	})
}

// Blocks that are no multiple of 16 terms are filled up with zeros, product by product.
func TestLinearBackwardInputBF16(t *testing.T) {
	t.Parallel()
	everyBF16(t, func(t *testing.T, d npu.Device) {
		r := rand.New(rand.NewPCG(1, 2))
		for i := range 40 {
			m, k, blocks, finite := 1+r.IntN(8), 1+r.IntN(70), 1+r.IntN(4), i%3 > 0
			if i%10 == 4 {
				m = 90 + r.IntN(100)
			}
			var products []npu.Product
			var dys, ws [][]float32
			for range 1 + r.IntN(3) {
				block := 1 + r.IntN(40)
				if i%10 == 5 {
					block = 250 + r.IntN(20)
				}
				rows := block*(blocks-1) + 1 + r.IntN(block)
				dys, ws = append(dys, draw(r, m*rows, finite)), append(ws, draw(r, rows*k, finite))
				products = append(products, npu.Product{
					DY: values(t, d, npu.BFloat16, dys[len(dys)-1]),
					W:  weights(t, d, ws[len(ws)-1], rows, k), Block: block,
				})
			}
			start := draw(r, m*k, finite)
			sums := func(want []float32) []float32 {
				for at := range want {
					row, col := at/k, at%k
					for b := range blocks {
						for p, product := range products {
							first, last := b*product.Block, min((b+1)*product.Block, product.W.Rows)
							var w []float32
							for j := first; j < last; j++ {
								w = append(w, ws[p][j*k+col])
							}
							want[at] = chain(want[at], dys[p][row*product.W.Rows:][first:last], w)
						}
					}
				}
				return want
			}
			for _, c := range []struct {
				start []float32
				add   bool
				want  []float32
			}{
				{start, false, sums(make([]float32, m*k))},
				{nil, false, sums(make([]float32, m*k))},
				{start, true, sums(append([]float32(nil), start...))},
			} {
				out := newOutput(t, d, c.start, m*k)
				d.LinearBackwardInput(out.Buffer, products, m, c.add)
				require.NoError(t, d.Sync())
				out.require(c.want, fmt.Sprintf("%s add %v [%d, %d] %d blocks of %d products", out.DType(), c.add, m, k,
					blocks, len(products)))
			}
		}
	})
}

// fixedSums adds values as npu.Sums states.
type fixedSums struct {
	sums []int64
	mark uint32
}

func (f *fixedSums) add(i int, v float32, p npu.FixedPoint) {
	if scaled := float32(v * p.Scale); float32(math.Abs(float64(scaled))) <= p.Limit {
		f.sums[i] += int64(math.RoundToEven(float64(scaled)))
		return
	}
	bits := math.Float32bits(v) &^ (1 << 31)
	if v != v {
		bits = 0x7fc00000
	}
	f.mark = max(f.mark, bits)
}

// Leaves have tails of every length, and some are longer than a block of rows.
func TestLinearBackwardWeightBF16(t *testing.T) {
	t.Parallel()
	everyBF16(t, func(t *testing.T, d npu.Device) {
		r := rand.New(rand.NewPCG(1, 3))
		for i := range 24 {
			n, k, finite := 1+r.IntN(70), 1+r.IntN(40), i%3 > 0
			var ends []int32
			rows := 0
			for range 1 + r.IntN(8) {
				length := 1 + r.IntN(40)
				if r.IntN(6) == 0 {
					length = 250 + r.IntN(300)
				}
				rows += length
				ends = append(ends, int32(rows))
			}
			switch i % 8 {
			case 4:
				k = 190 + r.IntN(30)
			case 5:
				n = 510 + r.IntN(40)
			}
			b := npu.NewBatch(d)
			require.NoError(t, b.Begin(len(ends)+npu.MaxUnits(len(ends), rows)))
			format := npu.FixedPoint{Scale: 1 << 30, Limit: 1 << 60}
			leaves := b.Leaves(format, ends, rows)
			b.Upload()
			x, dy := draw(r, rows*k, finite), draw(r, rows*n, finite)
			dw, dBias := matrixSums(t, d, n, k), sums(t, d, n)
			d.LinearBackwardWeight(dw, dBias, values(t, d, npu.BFloat16, dy), values(t, d, npu.BFloat16, x), &leaves)
			require.NoError(t, d.Sync())

			weight, bias := fixedSums{sums: make([]int64, d.MatrixLen(n, k))}, fixedSums{sums: make([]int64, n)}
			from := 0
			for _, end := range ends {
				for j := range n {
					sum, a := float32(0), []float32(nil)
					for row := from; row < int(end); row++ {
						a = append(a, dy[row*n+j])
						sum += dy[row*n+j]
					}
					bias.add(j, sum, format)
					for c := range k {
						var b []float32
						for row := from; row < int(end); row++ {
							b = append(b, x[row*k+c])
						}
						weight.add((j/npu.MatrixBlock*k+c)*npu.MatrixBlock+j%npu.MatrixBlock, chain(0, a, b), format)
					}
				}
				from = int(end)
			}
			what := fmt.Sprintf("[%d, %d] leaves %v", n, k, ends)
			for at, got := range dw.Int64s() {
				require.Equal(t, weight.sums[at], got, "%s: panel %d, column %d, lane %d", what, at/npu.MatrixBlock/k,
					at/npu.MatrixBlock%k, at%npu.MatrixBlock)
			}
			require.Equal(t, bias.sums, dBias.Int64s(), what)
			require.EqualValues(t, weight.mark, dw.Mark.Int64s()[0], what)
			require.EqualValues(t, bias.mark, dBias.Mark.Int64s()[0], what)
			b.Free()
		}
	})
}
