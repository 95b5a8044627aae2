package algebra

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/reward/grade/expr"
)

func parse(t *testing.T, text string) *expr.Node {
	t.Helper()
	n, ok := expr.Parse(text, expr.Mode{})
	require.True(t, ok, text)
	return n
}

// polynomial formats coefficients, constant first.
func polynomial(c []int64) string {
	var terms []string
	for power, v := range c {
		terms = append(terms, fmt.Sprintf("(%d)x^%d", v, power))
	}
	return strings.Join(terms, "+")
}

// A product of random polynomials equals its expansion, computed here by convolution,
// and differs once a coefficient changes.
func TestPolynomials(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		a, b := make([]int64, 1+random.IntN(6)), make([]int64, 1+random.IntN(6))
		out := make([]int64, len(a)+len(b)-1)
		for i := range a {
			a[i] = random.Int64N(1<<20) - 1<<19
		}
		for i := range b {
			b[i] = random.Int64N(1<<20) - 1<<19
		}
		for i, x := range a {
			for j, y := range b {
				out[i+j] += x * y
			}
		}
		factored := parse(t, "("+polynomial(a)+")("+polynomial(b)+")")
		require.True(t, NewComparer(nil).Same(factored, parse(t, polynomial(out))))
		out[random.IntN(len(out))]++
		require.False(t, NewComparer(nil).Same(factored, parse(t, polynomial(out))))
	}
}

func TestRational(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1/3+1/6": "1/2", "2^{-3}": "1/8", "(9/4)^{1/2}": "3/2", "(-8)^{1/3}": "-2", "5!": "120", `\binom{5}{2}`: "10",
		"0^2": "0", "(-1)^{99999999999}": "-1",
		`\begin{vmatrix}2&1\\1&2\end{vmatrix}`: "3", `\lfloor 7/2\rfloor`: "3", `\lceil 7/2\rceil`: "4", "|-3|": "3",
		"50%": "1/2", `\max(1,3,2)`: "3", "1^{9^{9^9}}": "",
		"2^{1/2}": "", "0^0": "", "1/0": "", "0^{-1}": "", "9^{9^9}": "", "x": "", "(-4)^{1/2}": "", "2000!": "",
	} {
		r, ok := NewComparer(nil).Rational(parse(t, text))
		require.Equal(t, want != "", ok, text)
		if ok {
			require.Equal(t, want, r.RatString(), text)
		}
	}
}

// intRoot inverts squares, cubes and higher powers of known numbers.
func TestIntRoot(t *testing.T) {
	t.Parallel()
	for v := range int64(50) {
		for degree := int64(2); degree <= 16; degree++ {
			x := new(big.Int).Exp(big.NewInt(v), big.NewInt(degree), nil)
			require.Equal(t, v, intRoot(x, degree).Int64())
			if v > 1 {
				require.Nil(t, intRoot(x.Add(x, big.NewInt(1)), degree))
			}
		}
	}
	require.Nil(t, intRoot(big.NewInt(-4), 2))
	require.Equal(t, int64(-2), intRoot(big.NewInt(-8), 3).Int64())
}

func TestHashesNeverChange(t *testing.T) {
	t.Parallel()
	f := field{prime: 1<<61 - 1}
	require.Equal(t, uint64(0xc782ac22891188f), f.hash("x"))
	require.Equal(t, uint64(0x1b598a05a7bd8eae), f.hash("sin", 12345))
	require.Equal(t, uint64(0x17b99ae968c0518f), f.hash("f", 1, 2))
}

func TestProportional(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		a, b string
		sign int
		ok   bool
	}{
		{"x+y", "2x+2y", 1, true},
		{"x+y", "-3x-3y", -1, true},
		{"x+y", "x-y", 0, false},
		{"x+y", "x(x+y)", 0, false},
		{"x", "0", 0, false},
	} {
		sign, ok := NewComparer(nil).Proportional(parse(t, row.a), parse(t, row.b))
		require.Equal(t, row.ok, ok, row)
		require.Equal(t, row.sign, sign, row)
	}
}
