package cpu

import "math"

// fma32 returns a·b + c, rounded once. The product of two float32 is exact in
// float64. Rounding the sum to float64 and then to float32 is correct, except in two
// cases: the float64 is a tie in float32, or the result is subnormal. In these cases
// fmaOdd first rounds the sum to odd (Boldo and Melquiond 2008).
func fma32(a, b, c float32) float32 {
	s := float64(float64(a)*float64(b)) + float64(c)
	u := math.Float64bits(s)
	const droppedBits = 1<<29 - 1 // mantissa bits of a float64 that a float32 lacks
	const tie = 1 << 28
	magnitude := u << 1 // without the sign; subtracting 1 excludes 0 from the subnormals
	subnormal := magnitude-1 < minNormal<<1-1
	if u&droppedBits == tie || subnormal {
		return fmaOdd(a, b, c)
	}
	return float32(s)
}

// minNormal holds the float64 bits of 2^-126, the smallest normal float32.
const minNormal = 0x3810000000000000

// fmaOdd returns fma32 in the cases that need it. To round a sum to odd is to truncate it and to
// set its last bit if the truncation is inexact.
func fmaOdd(a, b, c float32) float32 {
	p, z := float64(float64(a)*float64(b)), float64(c)
	s := float64(p + z)
	// e is the exact error of the sum: p + z = s + e (Knuth's two-sum).
	t := float64(s - p)
	e := float64(p-float64(s-t)) + float64(z-t)
	u := math.Float64bits(s)
	if e != 0 && u&1 == 0 { // inexact and even: move one step towards the exact sum
		if (e > 0) == (s > 0) {
			u++
		} else {
			u--
		}
	}
	return float32(math.Float64frombits(u))
}

// Constants of csrc/easyrl_math.h, which documents them.
const (
	expMax   = 89
	expMin   = -104
	expRound = 0x1.8p23
	expLog2e = 0x1.715476p+0
	expLn2Hi = 0x1.62e430p-1
	expLn2Lo = -0x1.05c610p-29
	expQ0    = 0x1.fffffcp-2
	expQ1    = 0x1.5554a2p-3
	expQ2    = 0x1.555880p-5
	expQ3    = 0x1.12309cp-7
	expQ4    = 0x1.6a48f6p-10

	exp2Min = -126 // in FP32, exp2of and pow2 of less are 0
	exp2P0  = 0x1.62e430p-1
	exp2P1  = 0x1.ebfbdap-3
	exp2P2  = 0x1.c6aed4p-5
	exp2P3  = 0x1.3b2dbcp-7
	exp2P4  = 0x1.5f456ap-10
	exp2P5  = 0x1.41d334p-13

	exp2MinBF16 = -60 // in BF16, exp2BF16 and pow2 of less are 0
	exp2R0      = 0x1.fff692p-1
	exp2R1      = 0x1.62f31ap-1
	exp2R2      = 0x1.f0de1ap-3
	exp2R3      = 0x1.c3f760p-5

	logLn2Hi = 0x1.62e400p-1
	logLn2Lo = 0x1.7f7d1cp-20
	logQ0    = 0x1.555548p-2
	logQ1    = -0x1.ffffeep-3
	logQ2    = 0x1.99a40cp-3
	logQ3    = -0x1.556258p-3
	logQ4    = 0x1.2347a4p-3
	logQ5    = -0x1.fb6890p-4
	logQ6    = 0x1.e55f48p-4
	logQ7    = -0x1.e1cf38p-4
	logQ8    = 0x1.1bf0c0p-4
)

// exp32 is v_exp of csrc/easyrl_math.h, which explains the method.
func exp32(x float32) float32 {
	if x != x { // NaN
		return x
	}
	x = max(expMin, min(expMax, x))
	t := fma32(x, expLog2e, expRound)
	n := t - expRound
	r := fma32(-n, expLn2Hi, x)
	r = fma32(-n, expLn2Lo, r)
	q := fma32(expQ4, r, expQ3)
	q = fma32(q, r, expQ2)
	q = fma32(q, r, expQ1)
	q = fma32(q, r, expQ0)
	p := fma32(float32(r*r), q, r) + 1
	i := int32(math.Float32bits(t) - 0x4b400000)
	half := i >> 1
	p = float32(p * math.Float32frombits(uint32(half+127)<<23))
	return float32(p * math.Float32frombits(uint32(i-half+127)<<23))
}

// exp2of is v_exp2 of csrc/easyrl_math.h, which explains the method.
func exp2of(x float32) float32 {
	if x < exp2Min {
		return 0
	}
	x = min(x, 128) // min keeps NaN
	t := x + expRound
	r := x - (t - expRound)
	p := fma32(exp2P5, r, exp2P4)
	p = fma32(p, r, exp2P3)
	p = fma32(p, r, exp2P2)
	p = fma32(p, r, exp2P1)
	p = fma32(p, r, exp2P0)
	p = fma32(p, r, 1)
	if p != p {
		return p
	}
	return math.Float32frombits(math.Float32bits(p) + math.Float32bits(t)<<23)
}

// exp2BF16 is exp2of with a polynomial of degree 3. 2^x is infinite for x of at least 128.
func exp2BF16(x float32) float32 {
	switch {
	case x < exp2MinBF16:
		return 0
	case x >= 128:
		return float32(math.Inf(1))
	case x != x: // NaN
		return x
	}
	t := x + expRound
	r := x - (t - expRound)
	p := fma32(exp2R3, r, exp2R2)
	p = fma32(p, r, exp2R1)
	p = fma32(p, r, exp2R0)
	return math.Float32frombits(math.Float32bits(p) + math.Float32bits(t)<<23)
}

// pow2 returns 2^n for a whole n from -2^21 to 0, and 0 for n below least, which is at least -126.
func pow2(n, least float32) float32 {
	if n < least {
		return 0
	}
	return math.Float32frombits(uint32(int32(n)+127) << 23)
}

// log32 is s_log of csrc/easyrl_math.h, which explains the method.
func log32(x float32) float32 {
	switch {
	case x == 0:
		return float32(math.Inf(-1))
	case !(x > 0): // negative or NaN
		return float32(math.NaN())
	case x > math.MaxFloat32:
		return x
	}
	var e float32
	if x < 0x1p-126 { // subnormal
		x *= 0x1p23
		e = -23
	}
	i := int32(math.Float32bits(x) - 0x3f3504f3)
	e += float32(i >> 23)
	f := math.Float32frombits(uint32(i&0x7fffff)+0x3f3504f3) - 1
	q := fma32(logQ8, f, logQ7)
	q = fma32(q, f, logQ6)
	q = fma32(q, f, logQ5)
	q = fma32(q, f, logQ4)
	q = fma32(q, f, logQ3)
	q = fma32(q, f, logQ2)
	q = fma32(q, f, logQ1)
	q = fma32(q, f, logQ0)
	z := float32(f * f)
	y := float32(float32(z*f) * q)
	y = fma32(e, logLn2Lo, y)
	y = fma32(-0.5, z, y)
	return fma32(e, logLn2Hi, f+y)
}
