package rounded

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// function is one of the package with its first evaluation, whose error is below bound·|value|, and
// its evaluation in big arithmetic.
type function struct {
	name  string
	f     func(x float64) float64
	first func(x float64) double
	sharp func(x *big.Float, prec uint) *big.Float
	bound float64
	draw  func(rng *rand.Rand) float64
}

func functions() []function {
	scaled := func(x float64) double {
		d, k := expand(double{x, 0})
		return double{math.Ldexp(d.high, k), math.Ldexp(d.low, k)}
	}
	less := func(x *big.Float, prec uint) *big.Float {
		y := bigExp(x, prec+64)
		return y.Sub(y, big.NewFloat(1))
	}
	sine, cosine := func(x float64) double { s, _ := circle(x); return s },
		func(x float64) double { _, c := circle(x); return c }
	bigSin := func(x *big.Float, prec uint) *big.Float { s, _ := bigSincos(x, prec); return s }
	bigCos := func(x *big.Float, prec uint) *big.Float { _, c := bigSincos(x, prec); return c }
	uniform := func(low, high float64) func(rng *rand.Rand) float64 {
		return func(rng *rand.Rand) float64 { return low + float64((high-low)*rng.Float64()) }
	}
	towards := func(x, radius float64) func(rng *rand.Rand) float64 { // x on a logarithmic scale
		return func(rng *rand.Rand) float64 { return x + math.Ldexp(radius*(2*rng.Float64()-1), -rng.IntN(50)) }
	}
	anyExponent := func(rng *rand.Rand) float64 { return math.Ldexp(1+rng.Float64(), rng.IntN(2000)-1000) }
	right := func(rng *rand.Rand) float64 { // beside a multiple of π/2
		x := math.Pi / 2 * float64(1+rng.IntN(2_600_000))
		return math.Float64frombits(math.Float64bits(x) + rng.Uint64N(3) - 1)
	}
	return []function{
		{"exp", Exp, scaled, bigExp, 0x1p-70, uniform(-600, 709)},
		{"exp near 0", Exp, scaled, bigExp, 0x1p-70, towards(0, 1)},
		{"expm1", Expm1, func(x float64) double { return tail(double{x, 0}) }, less, 0x1p-66, towards(0, 0.005)},
		{"log", Log, logarithm, bigLog, 0x1p-68, anyExponent},
		{"log of middle numbers", Log, logarithm, bigLog, 0x1p-68, uniform(0.5, 2)},
		{"log near 1", Log, logarithm, bigLog, 0x1p-68, towards(1, 0.5)},
		{"sin", Sin, sine, bigSin, 0x1p-66, uniform(0, 8)},
		{"sin of large numbers", Sin, sine, bigSin, 0x1p-66, uniform(0, 1<<22)},
		{"sin beside multiples of π/2", Sin, sine, bigSin, 0x1p-66, right},
		{"cos", Cos, cosine, bigCos, 0x1p-66, uniform(0, 8)},
		{"cos of large numbers", Cos, cosine, bigCos, 0x1p-66, uniform(0, 1<<22)},
		{"cos beside multiples of π/2", Cos, cosine, bigCos, 0x1p-66, right},
	}
}

// The first evaluation keeps within a quarter of its bound, and results are those of big arithmetic.
func TestFunctions(t *testing.T) {
	t.Parallel()
	for _, c := range functions() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(1, 2))
			worst := 0.0
			for range 1000 {
				x := c.draw(rng)
				want := c.sharp(big.NewFloat(x), 160)
				rounded, _ := want.Float64()
				require.Equal(t, rounded, c.f(x), "%v", x)
				d := c.first(x)
				difference := number(300, d.high)
				difference.Add(difference, big.NewFloat(d.low)).Sub(difference, want)
				if difference.Sign() == 0 { // 0
					continue
				}
				relative, _ := difference.Quo(difference, want).Float64()
				worst = max(worst, math.Abs(relative))
			}
			require.LessOrEqual(t, worst, c.bound/4, "2^%.1f", math.Log2(worst))
		})
	}
}

// An argument whose first evaluation is undecided is evaluated again.
func TestUndecidedArguments(t *testing.T) {
	t.Parallel()
	for _, c := range functions() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(3, 4))
			found := 0
			for range 2_000_000 {
				x := c.draw(rng)
				d := c.first(x)
				if _, ok := d.nearest(c.bound * math.Abs(d.high)); !ok {
					found++
					want, _ := c.sharp(big.NewFloat(x), 300).Float64()
					require.Equal(t, want, c.f(x), "%v", x)
				}
				if found == 8 {
					return
				}
			}
			t.Errorf("found %d undecided arguments, expected 8", found)
		})
	}
}

// Powers are those of big arithmetic.
func TestPow(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(11, 12))
	for i := range 2000 {
		x, y := math.Ldexp(1+rng.Float64(), rng.IntN(60)-30), rng.NormFloat64()*math.Ldexp(1, rng.IntN(12)-6)
		switch i % 4 {
		case 1:
			x, y = float64(2+rng.IntN(1000)), float64(rng.IntN(60)-30)
		case 2:
			x, y = float64(1+rng.IntN(1000)), float64(rng.IntN(40)-20)/4
		case 3:
			x, y = 1+(rng.Float64()-0.5)*0x1p-20, rng.NormFloat64()*1e7
		}
		want := new(big.Float).Mul(bigLog(big.NewFloat(x), 400), big.NewFloat(y))
		if size, _ := want.Float64(); math.Abs(size) > 740 {
			continue
		}
		v, _ := bigExp(want, 400).SetPrec(300).Float64()
		require.Equal(t, v, Pow(x, y), "%v^%v", x, y)
	}
}

// The functions of math differ in the last places at most.
func TestNearMath(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	places := 2.0
	near := func(want, got float64, name string, args ...float64) {
		gap := math.Nextafter(math.Abs(want), math.Inf(1)) - math.Abs(want)
		require.InDelta(t, want, got, places*gap, "%s of %v", name, args)
	}
	for range 20_000 {
		x, y := rng.NormFloat64()*30, rng.NormFloat64()
		near(math.Exp(x), Exp(x), "exp", x)
		near(math.Expm1(x), Expm1(x), "expm1", x)
		near(math.Expm1(y/100), Expm1(y/100), "expm1", y/100)
		near(math.Log(math.Abs(x)), Log(math.Abs(x)), "log", math.Abs(x))
		sin, cos := Sincos(x)
		require.InDelta(t, math.Sin(x), sin, 3e-16)
		require.InDelta(t, math.Cos(x), cos, 3e-16)
	}
	places = 32 // math.Pow is less accurate
	for range 500 {
		x, y := rng.NormFloat64()*30, rng.NormFloat64()*5
		near(math.Pow(math.Abs(x), y), Pow(math.Abs(x), y), "pow", math.Abs(x), y)
		near(math.Atan2(x, y), Atan2(x, y), "atan2", x, y)
	}
}

func TestSpecialValues(t *testing.T) {
	t.Parallel()
	inf, nan, zero := math.Inf(1), math.NaN(), math.Copysign(0, -1)
	least, most := math.SmallestNonzeroFloat64, math.MaxFloat64
	values := []float64{0, zero, 1, -1, 0.5, -0.5, 2, -2, 3, -3, 4, inf, -inf, nan, most, -most, 1 << 53, 1<<53 - 1,
		-(1<<53 - 1), 1e-300}
	same := func(want, got float64, name string, args ...float64) {
		if math.IsNaN(want) {
			require.True(t, math.IsNaN(got), "%s of %v", name, args)
			return
		}
		require.Equal(t, math.Float64bits(want), math.Float64bits(got), "%s of %v: %v, expected %v", name,
			args, got, want)
	}
	for _, x := range values {
		for _, y := range values {
			if want := math.Pow(x, y); want == 0 || math.IsInf(want, 0) || want == math.Trunc(want) ||
				math.IsNaN(want) {
				same(want, Pow(x, y), "pow", x, y)
			}
			if want := math.Atan2(x, y); x == 0 || y == 0 || math.IsInf(x, 0) || math.IsInf(y, 0) || math.IsNaN(want) {
				same(want, Atan2(x, y), "atan2", x, y)
			}
		}
	}
	for _, c := range []struct {
		name    string
		f       func(x float64) float64
		x, want float64
	}{
		{"exp", Exp, 0, 1}, {"exp", Exp, zero, 1}, {"exp", Exp, inf, inf}, {"exp", Exp, -inf, 0},
		{"exp", Exp, nan, nan},
		{"exp", Exp, least, 1}, {"exp", Exp, -0x1p-60, 1}, {"exp", Exp, most, inf}, {"exp", Exp, -most, 0},
		{"exp", Exp, 0x1.62e42fefa39efp9, 0x1.fffffffffff2ap1023}, {"exp", Exp, 0x1.62e42fefa39f0p9, inf},
		{"exp", Exp, -0x1.74910d52d3051p9, least}, {"exp", Exp, -0x1.74910d52d3052p9, 0},
		{"expm1", Expm1, 0, 0}, {"expm1", Expm1, zero, zero}, {"expm1", Expm1, inf, inf}, {"expm1", Expm1, -inf, -1},
		{"expm1", Expm1, nan, nan}, {"expm1", Expm1, least, least}, {"expm1", Expm1, -least, -least},
		{"expm1", Expm1, -50, -1},
		{"expm1", Expm1, most, inf}, {"expm1", Expm1, 0x1p-54, 0x1p-54},
		{"log", Log, 1, 0}, {"log", Log, 0, -inf}, {"log", Log, zero, -inf}, {"log", Log, -1, nan},
		{"log", Log, -inf, nan},
		{"log", Log, inf, inf}, {"log", Log, nan, nan}, {"log", Log, least, -0x1.74385446d71c3p9},
		{"log", Log, most, 0x1.62e42fefa39efp9},
		{"sin", Sin, 0, 0}, {"sin", Sin, zero, zero}, {"sin", Sin, inf, nan}, {"sin", Sin, nan, nan},
		{"sin", Sin, least, least},
		{"sin", Sin, math.Pi, 0x1.1a62633145c07p-53}, {"sin", Sin, 1e22, -0.8522008497671888},
		{"sin", Sin, -most, -0.004961954789184062},
		{"cos", Cos, 0, 1}, {"cos", Cos, -inf, nan}, {"cos", Cos, nan, nan},
		{"cos", Cos, math.Pi / 2, 0x1.1a62633145c07p-54},
		{"cos", Cos, math.Pi, -1},
	} {
		same(c.want, c.f(c.x), c.name, c.x)
	}
	for _, c := range []struct{ x, y, want float64 }{ // powers that are float64 or halfway between two
		{2.25, 1.5, 3.375}, {4, -0.5, 0.5}, {1 << 53, 0.5, 0x1p26 * math.Sqrt2}, {3, 33, 5559060566555523},
		{3, 34, 16677181699666568},
		{-3, 33, -5559060566555523}, {10, 22, 1e22}, {10, 23, 1e23}, {10, 308, 1e308}, {10, 309, inf},
		{10, -323, 1e-323}, {10, -324, 0},
		{2, -1074, least}, {2, -1075, 0}, {1.5 * 0x1p-1074, 1, 2 * least},
	} {
		same(c.want, Pow(c.x, c.y), "pow", c.x, c.y)
	}
}

// The big functions agree with published digits and with each other.
func TestBigFunctions(t *testing.T) {
	t.Parallel()
	const prec = 190
	equal := func(want, got *big.Float, what string) {
		t.Helper()
		difference := new(big.Float).SetPrec(400).Sub(want, got)
		require.True(t, difference.Sign() == 0 || difference.MantExp(nil) < want.MantExp(nil)-prec+10,
			"%s: %.60g, expected %.60g", what, got, want)
	}
	digits := func(s string) *big.Float {
		x, _, err := big.ParseFloat(s, 10, 300, big.ToNearestEven)
		require.NoError(t, err)
		return x
	}
	equal(digits("2.71828182845904523536028747135266249775724709369995957496696763"),
		bigExp(big.NewFloat(1), prec), "e")
	equal(digits("3.14159265358979323846264338327950288419716939937510582097494459"), bigPi(prec), "π")
	equal(digits("0.693147180559945309417232121458176568075500134360255254120680009"), bigLn2(prec), "log 2")
	equal(digits("2.30258509299404568401799145468436420760110148862877297603332790"),
		bigLog(big.NewFloat(10), prec), "log 10")
	rng := rand.New(rand.NewPCG(7, 8))
	for range 50 {
		x := math.Ldexp(rng.Float64(), rng.IntN(16)-8)
		equal(big.NewFloat(x), bigLog(bigExp(big.NewFloat(x), prec+16), prec), "log(exp(x))")
		sin, cos := bigSincos(big.NewFloat(x), prec)
		twice, _ := bigSincos(big.NewFloat(2*x), prec)
		product := new(big.Float).SetPrec(400).Mul(sin, cos)
		equal(twice, product.SetMantExp(product, 1), "2·sin(x)·cos(x)")
		one := new(big.Float).SetPrec(400).Mul(sin, sin)
		equal(big.NewFloat(1), one.Add(one, new(big.Float).SetPrec(400).Mul(cos, cos)), "sin(x)² + cos(x)²")
		sin, cos = bigSincos(big.NewFloat(x/256), prec+16)
		equal(big.NewFloat(x/256), bigAtan(sin.Quo(sin, cos), prec), "atan(tan(x))")
	}
}

// TestBits pins the functions to the last bit on every machine.
func TestBits(t *testing.T) {
	t.Parallel()
	sum := fnv.New64a()
	add := func(x float64) {
		_, err := sum.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(x)))
		require.NoError(t, err)
	}
	rng := rand.New(rand.NewPCG(9, 10))
	for i := range 100_000 {
		x := 40 * (rng.Float64() - 0.5)
		add(Exp(x))
		add(Log(math.Abs(x)))
		if i%10 == 0 {
			sin, cos := Sincos(x * 1000)
			add(sin)
			add(cos)
			add(Expm1(x / 100))
		}
		if i%1000 == 0 {
			add(Pow(1e6, x/20))
			add(Atan2(x, 3))
		}
	}
	require.Equal(t, uint64(0x22b2c1ef6f9ee1b), sum.Sum64())
}

func BenchmarkFunctions(b *testing.B) {
	args := make([]float64, 1024)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range args {
		args[i] = rng.NormFloat64()
	}
	for _, c := range []struct {
		name       string
		ours, math func(x float64) float64
	}{
		{"exp", Exp, math.Exp},
		{"expm1", Expm1, math.Expm1},
		{"log", func(x float64) float64 { return Log(math.Abs(x)) },
			func(x float64) float64 { return math.Log(math.Abs(x)) }},
		{"sincos", func(x float64) float64 { s, c := Sincos(1e4 * x); return s + c },
			func(x float64) float64 { s, c := math.Sincos(1e4 * x); return s + c }},
		{"pow", func(x float64) float64 { return Pow(1e6, x) }, func(x float64) float64 { return math.Pow(1e6, x) }},
	} {
		for name, f := range map[string]func(x float64) float64{"ours": c.ours, "math": c.math} {
			b.Run(c.name+"/"+name, func(b *testing.B) {
				for i := 0; b.Loop(); i++ {
					f(args[i&1023])
				}
			})
		}
	}
}
