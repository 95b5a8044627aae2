package cpu_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/bf16"
	"github.com/easyrl/easyrl/npu/cpu"
)

// memory allocates on a device for one test.
type memory struct {
	t *testing.T
	npu.Device
}

// goDevice opens the Go device.
func goDevice(t *testing.T, numerics npu.Numerics) memory {
	t.Helper()
	return memory{t, open(t, in(numerics, cpu.OpenPureGo), 2)}
}

// values returns a buffer of weights or activations.
func (m memory) values(x []float32) npu.Buffer { return m.typed(m.Info().Numerics.Type(), x) }

// floats returns a buffer of float32.
func (m memory) floats(x []float32) npu.Buffer { return m.typed(npu.Float32, x) }

func (m memory) typed(dtype npu.DType, x []float32) npu.Buffer {
	m.t.Helper()
	b, err := m.Alloc(dtype, len(x), npu.Activations)
	require.NoError(m.t, err)
	m.Convert(b, npu.HostBuffer(x))
	return b
}

// matrix returns a matrix of weights.
func (m memory) matrix(x []float32, rows, cols int) npu.Matrix {
	w := npu.Matrix{Buffer: m.floats(make([]float32, m.MatrixLen(rows, cols))), Rows: rows, Cols: cols}
	m.PackMatrix(w, x)
	packed := m.values(make([]float32, w.Len()))
	m.Convert(packed, w.Buffer)
	return npu.Matrix{Buffer: packed, Rows: rows, Cols: cols}
}

// get returns the values of a buffer of floating-point numbers.
func (m memory) get(b npu.Buffer) []float32 {
	x := make([]float32, b.Len())
	m.Convert(npu.HostBuffer(x), b)
	return x
}

// ints returns a list.
func (m memory) ints(x ...int32) npu.Ints {
	b := m.batch(len(x))
	defer b.Upload()
	return b.Ints(x)
}

// batch returns a batch for n values.
func (m memory) batch(n int) *npu.Batch {
	m.t.Helper()
	b := npu.NewBatch(m)
	require.NoError(m.t, b.Begin(n))
	return b
}

// leaves returns leaves that end at the given rows, the last of which is the number of rows.
func (m memory) leaves(format npu.FixedPoint, ends ...int32) *npu.Leaves {
	rows := int(ends[len(ends)-1])
	b := m.batch(len(ends) + npu.MaxUnits(len(ends), rows))
	l := b.Leaves(format, ends, rows)
	b.Upload()
	return &l
}

// sums returns n sums of 0.
func (m memory) sums(n int) npu.Sums {
	m.t.Helper()
	b, err := m.Alloc(npu.Int64, n+1, npu.Gradients)
	require.NoError(m.t, err)
	m.Zero(b)
	return npu.NewSums(b)
}

// numbers returns random bfloat16 values.
func numbers(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = bf16.Round(float32(r.NormFloat64())).Float()
	}
	return x
}

// rounded returns x rounded to bfloat16.
func rounded(x ...float32) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = bf16.Round(v).Float()
	}
	return y
}

// continueChain continues a chain of bfloat16 products with those of a and b, in steps from the first.
func continueChain(acc float32, a, b []float32) float32 {
	for len(a) > 0 {
		n := min(bf16.Step, len(a))
		var x, y [bf16.Step]bf16.Number
		for i := range n {
			x[i], y[i] = bf16.Round(a[i]), bf16.Round(b[i])
		}
		acc = bf16.Dot(acc, &x, &y)
		a, b = a[n:], b[n:]
	}
	return acc
}

// column returns count values of x, stride apart.
func column(x []float32, first, stride, count int) []float32 {
	y := make([]float32, count)
	for i := range y {
		y[i] = x[first+i*stride]
	}
	return y
}

// sameBits requires equal bits.
func sameBits(t *testing.T, name string, want, got []float32) {
	t.Helper()
	require.Len(t, got, len(want), name)
	for i := range want {
		require.Equal(t, math.Float32bits(want[i]), math.Float32bits(got[i]), "%s: value %d is %v, expected %v",
			name, i, got[i], want[i])
	}
}

func TestBF16Memory(t *testing.T) {
	t.Parallel()
	m := goDevice(t, npu.BF16)
	require.Equal(t, npu.BF16, m.Info().Numerics)
	x := []float32{1, -1 - 0x1p-8, 1 + 0x3p-8, 0x1p-63, float32(math.Inf(-1)), math.MaxFloat32}
	want := []float32{1, -1, 1 + 0x2p-7, 0, float32(math.Inf(-1)), float32(math.Inf(1))}
	b := m.values(x)
	require.Equal(t, npu.BFloat16, b.DType())
	require.Equal(t, int64(2*len(x)), b.Bytes())
	sameBits(t, "convert", want, m.get(b))
	to := m.values(make([]float32, len(x)))
	m.Copy(to.Slice(1, 5), b.Slice(2, 6))
	sameBits(t, "copy", append(append([]float32{0}, want[2:]...), 0), m.get(to))
	m.Zero(to.Slice(2, 4))
	sameBits(t, "zero", []float32{0, want[2], 0, 0, want[5], 0}, m.get(to))
	m.Free(to)
	require.Equal(t, int64(2*len(x)), m.Allocated()[npu.Activations])
	fork := open(t, m.Fork, 1)
	require.Equal(t, npu.BF16, fork.Info().Numerics)
}

func TestBF16Linear(t *testing.T) {
	t.Parallel()
	m, r := goDevice(t, npu.BF16), rand.New(rand.NewPCG(1, 2))
	for _, s := range [][3]int{{1, 1, 1}, {3, 40, 16}, {5, 70, 50}, {2, 5, 33}} {
		rows, n, k := s[0], s[1], s[2]
		x, w, bias, y := numbers(r, rows*k), numbers(r, n*k), numbers(r, n), numbers(r, rows*n)
		for i := range y {
			y[i] *= 1 + 0x1p-20 // beyond bfloat16
		}
		var plain, biased, continued, added []float32
		for i := range y {
			a, b := x[i/n*k:][:k], w[i%n*k:][:k]
			dot := continueChain(0, a, b)
			plain = append(plain, dot)
			biased = append(biased, dot+bias[i%n])
			continued = append(continued, continueChain(y[i], a, b))
			added = append(added, y[i]+dot)
		}
		xs, weights := m.values(x), m.matrix(w, n, k)
		linear := func(y, bias npu.Buffer, start npu.Start) []float32 {
			m.Linear(y, xs, weights, bias, rows, start)
			return m.get(y)
		}
		none := npu.Buffer{}
		sameBits(t, "float32", plain, linear(m.floats(y), none, npu.Fresh))
		sameBits(t, "bfloat16", rounded(plain...), linear(m.values(y), none, npu.Fresh))
		sameBits(t, "bias", biased, linear(m.floats(y), m.values(bias), npu.Fresh))
		sameBits(t, "rounded bias", rounded(biased...), linear(m.values(y), m.values(bias), npu.Fresh))
		sameBits(t, "continue", continued, linear(m.floats(y), none, npu.Continue))
		sameBits(t, "add", added, linear(m.floats(y), none, npu.Add))
	}
}

func TestBF16LinearBackwardInput(t *testing.T) {
	t.Parallel()
	m, r := goDevice(t, npu.BF16), rand.New(rand.NewPCG(3, 4))
	const rows, cols = 3, 37
	dx := numbers(r, rows*cols)
	var products []npu.Product
	var dys, ws [][]float32
	shapes := [][2]int{{50, 20}, {75, 32}, {7, 3}} // rows of a weight and of a block: 3 blocks each
	for _, s := range shapes {
		dy, w := numbers(r, rows*s[0]), numbers(r, s[0]*cols)
		dys, ws = append(dys, dy), append(ws, w)
		products = append(products, npu.Product{DY: m.values(dy), W: m.matrix(w, s[0], cols), Block: s[1]})
	}
	for _, add := range []bool{false, true} {
		want := make([]float32, len(dx))
		for i := range want {
			if add {
				want[i] = dx[i]
			}
			for block := range 3 {
				for j, s := range shapes {
					lo, hi := block*s[1], min(s[0], (block+1)*s[1])
					want[i] = continueChain(want[i], dys[j][i/cols*s[0]+lo:i/cols*s[0]+hi],
						column(ws[j], lo*cols+i%cols, cols, hi-lo))
				}
			}
		}
		got := m.floats(dx)
		m.LinearBackwardInput(got, products, rows, add)
		sameBits(t, "float32", want, m.get(got))
		if !add {
			got = m.values(dx)
			m.LinearBackwardInput(got, products, rows, false)
			sameBits(t, "bfloat16", rounded(want...), m.get(got))
		}
	}
}

func TestBF16LinearBackwardWeight(t *testing.T) {
	t.Parallel()
	m, r := goDevice(t, npu.BF16), rand.New(rand.NewPCG(5, 6))
	const rows, n, k, scale = 300, 35, 9, 1 << 20
	ends := []int32{7, 7, 283, rows}
	x, dy := numbers(r, rows*k), numbers(r, rows*n)
	dw, dBias := npu.MatrixSums{Sums: m.sums(m.MatrixLen(n, k)), Rows: n, Cols: k}, m.sums(n)
	m.LinearBackwardWeight(dw, dBias, m.values(dy), m.values(x),
		m.leaves(npu.FixedPoint{Scale: scale, Limit: 1 << 40}, ends...))
	add := func(sum *int64, v float32) { *sum += int64(math.RoundToEven(float64(v * scale))) }
	want, wantBias := make([]int64, dw.Len()), make([]int64, n)
	start := 0
	for _, end := range ends {
		count := int(end) - start
		for i := range n {
			g := column(dy, start*n+i, n, count)
			for j := range k { // row i is lane i mod 32 of block i/32
				add(&want[i/npu.MatrixBlock*npu.MatrixBlock*k+j*npu.MatrixBlock+i%npu.MatrixBlock],
					continueChain(0, g, column(x, start*k+j, k, count)))
			}
			sum := float32(0)
			for _, v := range g {
				sum += v
			}
			add(&wantBias[i], sum)
		}
		start = int(end)
	}
	require.Equal(t, want, dw.Int64s())
	require.Equal(t, wantBias, dBias.Int64s())
}

// Kernels of rows compute with float32 values, as in FP32, and round their results.
func TestBF16Rows(t *testing.T) {
	t.Parallel()
	half, full, r := goDevice(t, npu.BF16), goDevice(t, npu.FP32), rand.New(rand.NewPCG(7, 8))
	const rows, n = 5, 40
	a, b, c, w := numbers(r, rows*n), numbers(r, rows*n), numbers(r, rows*n), numbers(r, n)
	wide := make([]float32, rows*n) // values of the residual stream
	for i := range wide {
		wide[i] = float32(r.NormFloat64())
	}
	// same runs a kernel in both numerics. It returns activations.
	same := func(name string, kernel func(m memory) []npu.Buffer) {
		want, got := kernel(full), kernel(half)
		require.Len(t, got, len(want))
		for i := range want {
			if got[i].DType() == npu.Float32 {
				sameBits(t, name, full.get(want[i]), half.get(got[i]))
				continue
			}
			require.Equal(t, npu.BFloat16, got[i].DType())
			sameBits(t, name, rounded(full.get(want[i])...), half.get(got[i]))
		}
	}
	same("norm of float32", func(m memory) []npu.Buffer {
		y := m.values(a)
		m.RMSNorm(y, m.floats(wide), m.values(w), rows, 1e-6)
		return []npu.Buffer{y}
	})
	same("norm in place", func(m memory) []npu.Buffer {
		y := m.values(a)
		m.RMSNorm(y, y, m.values(w), rows, 1e-6)
		return []npu.Buffer{y}
	})
	for _, add := range []bool{false, true} {
		same("norm backward", func(m memory) []npu.Buffer {
			dx, dw := m.floats(wide), m.sums(n)
			m.RMSNormBackward(dx, dw, m.values(a), m.floats(wide), m.values(w), 1, 1e-6, add,
				m.leaves(npu.FixedPoint{Scale: 1 << 30, Limit: 1 << 50}, 2, rows))
			return []npu.Buffer{dx, sumsAsFloats(dw)}
		})
	}
	same("norm backward of heads, in place", func(m memory) []npu.Buffer {
		dx, dw := m.values(a), m.sums(n/4)
		m.RMSNormBackward(dx, dw, dx, m.values(b), m.values(w[:n/4]), 4, 1e-6, false,
			m.leaves(npu.FixedPoint{Scale: 1 << 30, Limit: 1 << 50}, 2, rows))
		return []npu.Buffer{dx, sumsAsFloats(dw)}
	})
	same("norm backward of heads, added", func(m memory) []npu.Buffer {
		dx := m.values(c)
		m.RMSNormBackward(dx, m.sums(n/4), m.values(a), m.values(b), m.values(w[:n/4]), 4, 1e-6, true,
			m.leaves(npu.FixedPoint{Scale: 1 << 30, Limit: 1 << 50}, rows))
		return []npu.Buffer{dx}
	})
	for _, inverse := range []bool{false, true} {
		same("rope", func(m memory) []npu.Buffer {
			x := m.values(a)
			m.Rope(x, m.floats(wide), m.ints(4, 0, 2, 2, 19), 4, n/4, inverse)
			return []npu.Buffer{x}
		})
	}
	same("swiglu", func(m memory) []npu.Buffer {
		y := m.values(c)
		m.SwiGLU(y, m.values(a), m.values(b))
		return []npu.Buffer{y}
	})
	same("swiglu backward in place", func(m memory) []npu.Buffer {
		gate, up := m.values(a), m.values(b)
		m.SwiGLUBackward(gate, up, m.values(c), gate, up)
		return []npu.Buffer{gate, up}
	})
	same("embed", func(m memory) []npu.Buffer {
		y := m.floats(wide)
		m.Embed(y, m.matrix(numbers(rand.New(rand.NewPCG(9, 9)), 50*n), 50, n), m.ints(49, 0, 33, 7, 33))
		return []npu.Buffer{y}
	})
	same("softmax backward", func(m memory) []npu.Buffer {
		logits, dLogits := m.floats(wide), m.values(a)
		stats := m.floats([]float32{3, 90, 3, 80, 4, 70, 3, 60, 3, 50})
		m.SoftmaxBackward(dLogits, logits, m.floats(wide[:rows]), stats, m.ints(32, 70, 0, 71, -1), 32, 1.3)
		return []npu.Buffer{dLogits}
	})
	same("adamw", func(m memory) []npu.Buffer {
		master, shadow, g := m.floats(wide), m.values(a), m.sums(rows*n)
		for i := range g.Int64s() {
			g.Int64s()[i] = int64(i*i) - 20000
		}
		m.AdamW([]npu.Update{{W: master, Copy: shadow, G: g, M: m.floats(a), V: m.floats(make([]float32, rows*n))}},
			npu.AdamWParams{LR: 0.01, Beta1: 0.9, Beta2: 0.99, Eps: 1e-6, GradScale: 1e-4, Step: 3})
		return []npu.Buffer{master, shadow}
	})
}

// sumsAsFloats returns the words of sums as buffers for comparison.
func sumsAsFloats(s npu.Sums) npu.Buffer { return s.As(npu.Float32) }

// A norm before projections hands them rounded values.
func TestBF16NormLinear(t *testing.T) {
	t.Parallel()
	m, r := goDevice(t, npu.BF16), rand.New(rand.NewPCG(11, 12))
	const rows, n, k = 4, 33, 24
	x, weight := numbers(r, rows*k), m.values(numbers(r, k))
	w, bias := m.matrix(numbers(r, n*k), n, k), m.values(numbers(r, n))
	norm, y, want := m.values(x), m.values(make([]float32, rows*n)), m.values(make([]float32, rows*n))
	m.RMSNorm(norm, m.floats(x), weight, rows, 1e-6)
	m.Linear(want, norm, w, bias, rows, npu.Fresh)
	scratch := m.values(x)
	m.NormLinear([]npu.Projection{{Y: y, W: w, Bias: bias}}, scratch, m.floats(x), weight, rows, 1e-6)
	sameBits(t, "norm linear", m.get(want), m.get(y))
}
