package bf16

import (
	"bufio"
	"encoding/json"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// number reads hexadecimal bits.
func number(t *testing.T, s string) uint32 {
	t.Helper()
	n, err := strconv.ParseUint(s, 16, 32)
	require.NoError(t, err)
	return uint32(n)
}

// The rule equals recorded results of tensor cores.
func TestVectors(t *testing.T) {
	t.Parallel()
	data := os.Getenv("EASYRL_TESTDATA")
	if data == "" {
		t.Skip("EASYRL_TESTDATA is not set")
	}
	for _, name := range []string{"rule.jsonl", "below_normal.jsonl"} {
		f, err := os.Open(filepath.Join(data, "tensorcore", name))
		require.NoError(t, err)
		defer f.Close() //nolint:errcheck // only read
		lines, differ := 0, 0
		for s := bufio.NewScanner(f); s.Scan(); lines++ {
			var v struct {
				A, B []string
				C, D string
			}
			require.NoError(t, json.Unmarshal(s.Bytes(), &v))
			var a, b [Step]Number
			for i := range a {
				a[i], b[i] = Number(number(t, v.A[i])), Number(number(t, v.B[i]))
			}
			got := math.Float32bits(Dot(math.Float32frombits(number(t, v.C)), &a, &b))
			if got != number(t, v.D) {
				differ++
				if differ < 5 {
					t.Logf("%s line %d: %08x, expected %s", name, lines+1, got, v.D)
				}
			}
		}
		require.Zero(t, differ, "%s: of %d", name, lines)
		t.Log(name, lines)
	}
}

// The rule, written with exact fractions, gives the same bits.
func TestDotMatchesFractions(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		var a, b [Step]Number
		spread := random.IntN(60)
		draw := func() float32 {
			if random.IntN(6) == 0 {
				return 0
			}
			return float32(math.Ldexp(1+random.Float64(), random.IntN(spread+1)-spread/2)) *
				float32(1-2*random.IntN(2))
		}
		for i := range a {
			a[i], b[i] = Round(draw()), Round(draw())
		}
		c := draw()
		require.Equal(t, byFractions(c, &a, &b), math.Float32bits(Dot(c, &a, &b)))
	}
}

// byFractions computes Dot for finite operands with exact fractions.
func byFractions(c float32, a, b *[Step]Number) uint32 {
	type exact struct {
		value    *big.Float
		exponent int
	}
	of := func(x float32) exact {
		f, e := math.Frexp(float64(x))
		_ = f
		return exact{new(big.Float).SetPrec(600).SetFloat64(float64(x)), max(e-1, -126)}
	}
	var all []exact
	for i := range a {
		x, y := of(a[i].Float()), of(b[i].Float())
		all = append(all, exact{new(big.Float).SetPrec(600).Mul(x.value, y.value), x.exponent + y.exponent})
	}
	all = append(all, of(c))
	top := -133
	for _, e := range all {
		if e.value.Sign() != 0 {
			top = max(top, e.exponent)
		}
	}
	sum := new(big.Int)
	for _, e := range all {
		scaled := new(big.Float).SetPrec(600).SetMantExp(e.value, 25-top)
		n, _ := scaled.Int(nil) // truncates toward 0
		sum.Add(sum, n)
	}
	if sum.Sign() == 0 {
		return 0
	}
	result := new(big.Float).SetPrec(24).SetMode(big.ToZero).SetInt(sum)
	result.SetMantExp(result, top-25)
	v, _ := result.Float32() // exact for normal results
	return math.Float32bits(v)
}

// Multiply computes chains of Dot for products of any shape and operands of any kind.
func TestMultiply(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	specials := []float32{0, float32(math.Copysign(0, -1)), float32(math.Inf(1)), float32(math.Inf(-1)),
		float32(math.NaN()), 0x1p-140, math.MaxFloat32}
	for range 400 {
		m, n, k := 1+random.IntN(5), 1+random.IntN(9), 1+random.IntN(40)
		low := -random.IntN(63)
		high := []int{low + random.IntN(8), random.IntN(8), random.IntN(128)}[random.IntN(3)]
		rare := 1 << (1 + random.IntN(12)) // special values are one in rare
		draw := func() float32 {
			if random.IntN(rare) == 0 {
				return specials[random.IntN(1+random.IntN(len(specials)))]
			}
			return float32(math.Ldexp(float64(1-2*random.IntN(2))*(1+random.Float64()), low+random.IntN(high-low+1)))
		}
		x, w, y := make([]float32, m*k), make([]float32, n*k), make([]float32, m*n)
		for _, values := range [][]float32{x, w} {
			for i := range values {
				values[i] = Round(draw()).Float()
			}
		}
		for i := range y {
			y[i] = draw() * float32(math.Ldexp(1, -random.IntN(60)))
		}
		want := make([]float32, len(y))
		for i, c := range y {
			for s := 0; s < k; s += Step {
				var a, b [Step]Number
				for j := range min(Step, k-s) {
					a[j], b[j] = Round(x[i/n*k+s+j]), Round(w[i%n*k+s+j])
				}
				c = Dot(c, &a, &b)
			}
			want[i] = c
		}
		transposed := make([]float32, n*k)
		for i, v := range w {
			transposed[i%k*n+i/k] = v
		}
		for _, columns := range []Columns{PackColumns(w, n, k, k, 1), PackColumns(transposed, n, k, 1, n)} {
			got := slices.Clone(y)
			Multiply(got, n, PackRows(x, m, k, k, 1), columns)
			for i := range got {
				if got[i] == got[i] || want[i] == want[i] {
					require.Equal(t, math.Float32bits(want[i]), math.Float32bits(got[i]), "[%d, %d, %d] %d", m, n, k, i)
				}
			}
		}
	}
}

func TestRound(t *testing.T) {
	t.Parallel()
	nan := math.Float32frombits(0x7fffffff)
	for x, want := range map[float32]Number{
		0: 0, 1: 0x3f80, -1: 0xbf80, 1 + 0x1p-8: 0x3f80, 1 + 0x3p-8: 0x3f82, 1 + 0x1.01p-8: 0x3f81,
		0x1p-62: 0x2080, -0x1.fffffep-63: 0, float32(math.Inf(1)): 0x7f80, math.MaxFloat32: 0x7f80,
	} {
		require.Equal(t, want, Round(x), x)
	}
	require.True(t, math.IsNaN(float64(Round(nan).Float())))
	require.True(t, math.IsNaN(float64(Round(math.Float32frombits(0x7f800001)).Float())))
}

func BenchmarkDot(b *testing.B) {
	var x, y [Step]Number
	for i := range x {
		x[i], y[i] = Round(float32(i)*0.37), Round(1/float32(i+1))
	}
	c := float32(0)
	for b.Loop() {
		c = Dot(c, &x, &y)
	}
	_ = c
}

func BenchmarkMultiply(b *testing.B) {
	const m, n, k = 16, 64, 256
	random := rand.New(rand.NewPCG(1, 2))
	draw := func(count int) []float32 {
		x := make([]float32, count)
		for i := range x {
			x[i] = Round(float32(random.NormFloat64())).Float()
		}
		return x
	}
	rows, columns := PackRows(draw(m*k), m, k, k, 1), PackColumns(draw(n*k), n, k, k, 1)
	y := make([]float32, m*n)
	for b.Loop() {
		Multiply(y, n, rows, columns)
	}
	b.ReportMetric(2*m*n*k*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
}
