package cpu_test

import (
	"bufio"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/soak"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/bf16"
	"github.com/easyrl/easyrl/npu/cpu"
)

// sameClass reports whether two results have equal bits or are both NaN.
func sameClass(x, y float32) bool {
	return math.Float32bits(x) == math.Float32bits(y) || x != x && y != y
}

// chain continues c by all terms of a and b, padded with zeros.
func chain(c float32, a, b []float32) float32 {
	for k := 0; k < len(a); k += bf16.Step {
		var x, y [bf16.Step]bf16.Number
		for i := k; i < min(k+bf16.Step, len(a)); i++ {
			x[i-k], y[i-k] = bf16.Round(a[i]), bf16.Round(b[i])
		}
		c = bf16.Dot(c, &x, &y)
	}
	return c
}

// check multiplies with bf16.Multiply and with every instruction set, and compares with chains of bf16.Dot. start
// is y before the product, or nil.
func check(t *testing.T, what string, x, w, start []float32, m, n, k int) {
	t.Helper()
	want := make([]float32, m*n)
	copy(want, start)
	for i := range want {
		want[i] = chain(want[i], x[i/n*k:][:k], w[i%n*k:][:k])
	}
	inGo := make([]float32, m*n)
	copy(inGo, start)
	bf16.Multiply(inGo, n, bf16.PackRows(x, m, k, k, 1), bf16.PackColumns(w, n, k, k, 1))
	for i := range inGo {
		require.True(t, sameClass(inGo[i], want[i]), "%s: Multiply: %x, expected %x", what, inGo[i], want[i])
	}
	for _, isa := range cpu.ISAs() {
		d := open(t, func(n int) (npu.Device, error) { return cpu.OpenISA(isa, npu.BF16, n) }, 1)
		out, how := values(t, d, npu.Float32, make([]float32, m*n)), npu.Fresh
		y := out.Float32s()
		if start != nil {
			how = npu.Continue
		}
		copy(y, start)
		d.Linear(out, values(t, d, npu.BFloat16, x), weights(t, d, w, n, k), npu.Buffer{}, m, how)
		require.NoError(t, d.Sync())
		for i := range y {
			if !sameClass(y[i], want[i]) {
				t.Fatalf("%s %s: [%d, %d, %d] row %d column %d is %x, expected %x", what, isa, m, n, k, i/n, i%n, y[i],
					want[i])
			}
		}
	}
}

// values returns x as a buffer of d, rounded to dtype.
func values(t testing.TB, d npu.Device, dtype npu.DType, x []float32) npu.Buffer {
	t.Helper()
	b, err := d.Alloc(dtype, len(x), npu.Activations)
	require.NoError(t, err)
	if dtype == npu.Float32 {
		copy(b.Float32s(), x)
		return b
	}
	for i, v := range x {
		b.BFloat16s()[i] = bf16.Round(v)
	}
	return b
}

// weights returns the matrix w [rows, cols] in the layout and the type of d.
func weights(t testing.TB, d npu.Device, w []float32, rows, cols int) npu.Matrix {
	t.Helper()
	buffer := func(dtype npu.DType) npu.Matrix {
		b, err := d.Alloc(dtype, d.MatrixLen(rows, cols), npu.Weights)
		require.NoError(t, err)
		return npu.Matrix{Buffer: b, Rows: rows, Cols: cols}
	}
	packed, m := buffer(npu.Float32), buffer(d.Info().Numerics.Type())
	d.PackMatrix(packed, w)
	d.Convert(m.Buffer, packed.Buffer)
	d.Free(packed.Buffer)
	return m
}

// Recorded results of tensor cores: a block multiplies the operands a of 32 vectors by the operands b of
// all 32, from an accumulator of each. The diagonal was recorded, the rest follows the rule.
func TestVectors(t *testing.T) {
	t.Parallel()
	data := os.Getenv("EASYRL_TESTDATA")
	if data == "" {
		t.Skip("EASYRL_TESTDATA is not set")
	}
	f, err := os.Open(filepath.Join(data, "tensorcore", "rule.jsonl"))
	require.NoError(t, err)
	defer f.Close()
	parse := func(s string) float32 {
		n, err := strconv.ParseUint(s, 16, 32)
		require.NoError(t, err)
		if len(s) == 4 {
			n <<= 16
		}
		return math.Float32frombits(uint32(n))
	}
	const block = 32
	var a, b, c, d []float32
	for s := bufio.NewScanner(f); s.Scan(); {
		var v struct {
			A, B []string
			C, D string
		}
		require.NoError(t, json.Unmarshal(s.Bytes(), &v))
		for i := range v.A {
			a, b = append(a, parse(v.A[i])), append(b, parse(v.B[i]))
		}
		c, d = append(c, parse(v.C)), append(d, parse(v.D))
		if len(c) < block && len(d)%block != 0 {
			continue
		}
		m := len(c)
		start := make([]float32, m*m)
		for i := range start {
			start[i] = c[(i/m+i%m*7)%m]
		}
		for i := range m {
			start[i*m+i] = c[i]
			require.True(t, sameClass(d[i], chain(c[i], a[i*bf16.Step:][:bf16.Step], b[i*bf16.Step:][:bf16.Step])))
		}
		check(t, "vectors", a, b, start, m, m, bf16.Step)
		a, b, c, d = a[:0], b[:0], c[:0], d[:0]
	}
}

// source draws operands and accumulators of one kind.
type source struct {
	name    string
	operand func(r *rand.Rand) float32
	start   func(r *rand.Rand) float32 // nil if chains start from 0
}

// spread draws values whose exponents are uniform between low and high.
func spread(low, high int) func(r *rand.Rand) float32 {
	return func(r *rand.Rand) float32 {
		return float32(math.Ldexp((1+r.Float64())*float64(1-2*r.IntN(2)), low+r.IntN(high-low+1)))
	}
}

// sometimes draws from rare once in n times.
func sometimes(n int, rare, other func(r *rand.Rand) float32) func(r *rand.Rand) float32 {
	return func(r *rand.Rand) float32 {
		if r.IntN(n) == 0 {
			return rare(r)
		}
		return other(r)
	}
}

func one(values ...float32) func(r *rand.Rand) float32 {
	return func(r *rand.Rand) float32 { return values[r.IntN(len(values))] }
}

func sources() []source {
	normal := func(r *rand.Rand) float32 { return float32(r.NormFloat64()) }
	anyBits := func(r *rand.Rand) float32 { return math.Float32frombits(r.Uint32()) }
	subnormal := func(r *rand.Rand) float32 { return math.Float32frombits(r.Uint32N(1 << 24)) }
	inf := float32(math.Inf(1))
	nan := float32(math.NaN())
	return []source{
		{"normal", normal, nil},
		{"normal onto any bits", normal, anyBits},
		{"normal onto subnormals", normal, subnormal},
		{"powers of two", one(1, -1, 2, -2, 0.5, 4), normal},
		{"cancellation", one(1.5, -1.5, 1.4921875, -1.4921875, 0x1p-7, -0x1p-7), spread(-30, 5)},
		{"largest sums", one(0x1.fep0), one(0, 0x1.fffffep1, 0x1.fep1, 0x1p30)},
		{"largest negative sums", sometimes(40, normal, one(-0x1.fep0)), spread(-3, 6)},
		{"spread 8", spread(-8, 8), spread(-8, 8)},
		{"spread 20", spread(-20, 20), spread(-30, 30)},
		{"spread 62", spread(-62, 62), spread(-126, 126)},
		{"tiny", spread(-62, -45), spread(-126, -90)},
		{"about the least exponent", spread(-53, -48), spread(-105, -97)},
		{"tiny and zeros", sometimes(2, one(0), spread(-62, -50)), one(0, float32(math.Copysign(0, -1)))},
		{"mostly zeros", sometimes(4, normal, one(0)), spread(-130, 3)},
		{"zeros onto any bits", one(0), anyBits},
		{"rarely not zero", sometimes(50, spread(-20, 20), one(0)), spread(-140, 20)},
		{"large", spread(40, 63), spread(80, 127)},
		{"overflow", spread(60, 63), spread(120, 127)},
		{"huge", spread(0, 127), spread(0, 127)},
		{"rarely huge", sometimes(300, spread(60, 127), normal), spread(-5, 5)},
		{"rarely infinite", sometimes(100, one(inf, -inf), normal), nil},
		{"rarely NaN", sometimes(300, one(nan, inf, 0), normal), sometimes(10, one(nan, inf, -inf), normal)},
		{"onto infinities", normal, sometimes(30, one(nan, inf, -inf), normal)},
	}
}

// Products of any shape equal chains of bf16.Dot.
func TestProducts(t *testing.T) {
	t.Parallel()
	for _, s := range sources() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(uint64(len(s.name)), 3))
			cases := 8
			if soak.Long() {
				cases = 200
			}
			for range cases {
				m, n, k := 1+r.IntN(14), 1+r.IntN(70), 1+r.IntN(60)
				if r.IntN(2) == 0 {
					n = 32 * (1 + r.IntN(2)) // no lanes that are always zero
				}
				if r.IntN(10) == 0 {
					k = 200 + r.IntN(120) // several blocks of terms
				}
				x, w, start := make([]float32, m*k), make([]float32, n*k), []float32(nil)
				for i := range x {
					x[i] = bf16.Round(s.operand(r)).Float()
				}
				for i := range w {
					w[i] = bf16.Round(s.operand(r)).Float()
				}
				if s.start != nil {
					start = make([]float32, m*n)
					for i := range start {
						start[i] = s.start(r)
					}
				}
				check(t, s.name, x, w, start, m, n, k)
			}
		})
	}
}

// A column of zeros and a column of tiny values in one tile leave the others as they are, and a sum of
// exactly 0 is +0.
func TestSingleLanes(t *testing.T) {
	t.Parallel()
	const m, n, k = 7, 32, 48
	r := rand.New(rand.NewPCG(5, 6))
	x, w := make([]float32, m*k), make([]float32, n*k)
	for i := range x {
		x[i] = bf16.Round(float32(r.NormFloat64())).Float()
	}
	for i := range w {
		switch j := i / k; {
		case j == 3:
			w[i] = 0
		case j == 17:
			w[i] = 0x1p-62
		case j == 20 && i%2 == 0:
			w[i] = 0x1p+63
		default:
			w[i] = bf16.Round(float32(r.NormFloat64())).Float()
		}
	}
	start := make([]float32, m*n)
	for i := range start {
		start[i] = []float32{0, float32(math.Copysign(0, -1)), 0x1p-140, 1}[i%4]
	}
	check(t, "lanes", x, w, start, m, n, k)
	check(t, "lanes", x, w, nil, m, n, k)
}

// A product with a factor of 0 has no exponent, however large the other factor is.
func TestZeroFactors(t *testing.T) {
	t.Parallel()
	const m, n, k = 7, 64, 32
	x, w := make([]float32, m*k), make([]float32, n*k)
	for i := range k {
		for j := range m {
			x[j*k+i] = []float32{0, 0x1p63, 0x1.02p-51, 0x1.06p-51}[i%4]
		}
		for j := range n {
			w[j*k+i] = []float32{0x1.fep63, 0, -0x1.0ap-50, 0x1.02p-50}[i%4]
		}
	}
	check(t, "zero factors", x, w, nil, m, n, k)
}
