package cpu

import (
	"hash/fnv"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// ulps returns the distance of got from want in units of want's last place.
func ulps(got float32, want float64) float64 {
	_, e := math.Frexp(want)
	return math.Abs(float64(got)-want) / math.Ldexp(1, max(e-24, -149))
}

func TestExp(t *testing.T) {
	t.Parallel()
	inf := float32(math.Inf(1))
	for x, want := range map[float32]float32{0: 1, -inf: 0, inf: inf, 88.73: inf, 1e30: inf, -104: 0, -1e30: 0,
		-0x1p-149: 1} {
		require.Equal(t, want, exp32(x), "exp(%v)", x)
	}
	require.True(t, math.IsNaN(float64(exp32(float32(math.NaN())))))
	for x := float32(-103.9); x < 88.72; x += 0.00127 {
		require.LessOrEqual(t, ulps(exp32(x), math.Exp(float64(x))), 1.04, "exp(%v)", x)
	}
}

func TestExp2BF16(t *testing.T) {
	t.Parallel()
	inf := float32(math.Inf(1))
	for x, want := range map[float32]float32{0: 0x1.fff692p-1, -60: 0x1.fff692p-61, -60.00001: 0, -inf: 0,
		127: 0x1.fff692p126, 128: inf, inf: inf} {
		require.Equal(t, want, exp2BF16(x), "2^%v", x)
	}
	require.True(t, math.IsNaN(float64(exp2BF16(float32(math.NaN())))))
	for x := float32(-60); x < 128; x += 0.00073 {
		want := math.Exp2(float64(x))
		require.InDelta(t, 0, float64(exp2BF16(x))/want-1, 7.5e-5, "2^%v", x)
	}
}

func TestLog(t *testing.T) {
	t.Parallel()
	inf := float32(math.Inf(1))
	for x, want := range map[float32]float32{1: 0, 0: -inf, inf: inf} {
		require.Equal(t, want, log32(x), "log(%v)", x)
	}
	require.True(t, math.IsNaN(float64(log32(-1))))
	require.True(t, math.IsNaN(float64(log32(float32(math.NaN())))))
	for bits := uint32(1); bits < 0x7f800000; bits += 10007 {
		x := math.Float32frombits(bits)
		require.LessOrEqual(t, ulps(log32(x), math.Log(float64(x))), 0.86, "log(%v)", x)
	}
}

// TestMathBits pins exp and log to the last bit on every architecture.
func TestMathBits(t *testing.T) {
	t.Parallel()
	sum := fnv.New64a()
	add := func(x float32) {
		b := math.Float32bits(x)
		_, err := sum.Write([]byte{byte(b), byte(b >> 8), byte(b >> 16), byte(b >> 24)})
		require.NoError(t, err)
	}
	for bits := uint32(1); bits < 0x7f800000; bits += 30011 {
		x := math.Float32frombits(bits)
		add(exp32(x))
		add(exp32(-x))
		add(log32(x))
	}
	require.Equal(t, uint64(0x39bb123eac6799e5), sum.Sum64())
}

// TestFMA compares with 600-bit arithmetic on operands that make ties, cancellations
// and subnormal results likely.
func TestFMA(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	draw := func(exponents int) float32 {
		x := float32(r.IntN(1<<24)>>r.IntN(24)) * float32(1-2*r.IntN(2))
		return float32(math.Ldexp(float64(x), r.IntN(2*exponents+1)-exponents-12))
	}
	for i := range 400000 {
		a, b, c := draw(4), draw(4), draw(20)
		switch i % 4 {
		case 1: // the sum is subnormal
			a, b, c = float32(math.Ldexp(float64(draw(4)), -70)), float32(math.Ldexp(float64(draw(4)), -70)),
				float32(math.Ldexp(float64(draw(10)), -135))
		case 2: // a midpoint between two floats, plus or minus a little
			c = float32(r.IntN(1<<23) + 1<<23)
			a, b = 0.5, 1+float32(r.IntN(3)-1)*0x1p-23
		case 3:
			c = -float32(a * b)
		}
		exact := func(x float32) *big.Float { return new(big.Float).SetPrec(600).SetFloat64(float64(x)) }
		p := new(big.Float).SetPrec(600).Mul(exact(a), exact(b))
		want, _ := new(big.Float).SetPrec(600).Add(p, exact(c)).Float32()
		require.Equal(t, want, fma32(a, b, c), "fma(%g, %g, %g)", a, b, c)
	}
}
