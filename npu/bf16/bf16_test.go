package bf16

import (
	"bufio"
	"encoding/json"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
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
