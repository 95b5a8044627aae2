// Package bf16 computes what tensor cores compute from bfloat16 operands, to the bit.
package bf16

import "math"

// Number is a bfloat16: the upper half of a float32.
type Number uint16

// smallest is the magnitude below which Round returns 0. A product of two numbers of at least this magnitude
// is a normal float32, and only such products are known to follow the rule of Dot.
const smallest = 0x1p-62

// Round returns x rounded to the nearest number, ties to even. Above the largest finite number it returns an
// infinity, and below the magnitude 2^-62 it returns +0. A NaN stays a NaN.
func Round(x float32) Number {
	bits := math.Float32bits(x)
	switch {
	case x != x: // NaN: rounding could carry into the sign
		return Number(bits>>16) | 0x40
	case x < smallest && x > -smallest:
		return 0
	}
	return Number((bits + 0x7fff + bits>>16&1) >> 16)
}

// Float returns the value of n.
func (n Number) Float() float32 { return math.Float32frombits(uint32(n) << 16) }

// Step is the number of terms that Dot adds at once.
const Step = 16

// Dot returns c + Σ a[i]·b[i] over Step terms, as the instruction mma.sync.m16n8k16 of an NVIDIA H100 computes
// it. The 16 exact products and c are aligned to the largest exponent among them, each is truncated toward 0
// at 25 bits after the point, their sum is exact, and the result is truncated toward 0 to a float32. A sum of 0
// is +0, and every NaN is quietNaN.
//
// The exponent of a product is the sum of its factors' exponents, so its significand lies in [1, 4). An exponent
// below minExponent counts as minExponent.
func Dot(c float32, a, b *[Step]Number) float32 {
	var terms [Step + 1]term
	infinite := float32(0) // sum of the infinite terms; NaN if they contradict each other
	for i := range a {
		x, y := a[i].Float(), b[i].Float()
		if isFinite(x) && isFinite(y) {
			terms[i] = product(x, y)
		} else {
			infinite += float32(x * y)
		}
	}
	if isFinite(c) {
		terms[Step] = split(c)
	} else {
		infinite += c
	}
	switch {
	case infinite != infinite:
		return math.Float32frombits(quietNaN)
	case infinite != 0:
		return infinite
	}
	top := minExponent
	for _, t := range terms {
		if t.significand != 0 {
			top = max(top, t.exponent)
		}
	}
	sum := int64(0) // in units of 2^(top - fraction)
	for _, t := range terms {
		aligned := t.significand >> min(uint(top-t.exponent), 63)
		if t.negative {
			aligned = -aligned
		}
		sum += aligned
	}
	return truncate(sum, top-fraction)
}

const (
	fraction    = 25         // bits after the point that alignment keeps
	minExponent = -133       // least exponent for alignment
	quietNaN    = 0x7fffffff // what tensor cores return for every NaN
)

func isFinite(x float32) bool { return x-x == 0 }

// term is a finite value: significand · 2^(exponent - fraction).
type term struct {
	negative    bool
	significand int64
	exponent    int
}

// split returns the term of a finite x, with 1 at bit fraction of the significand unless x is subnormal.
func split(x float32) term {
	bits := math.Float32bits(x)
	t := term{negative: bits>>31 != 0, significand: int64(bits & (1<<23 - 1)), exponent: int(bits >> 23 & 0xff)}
	if t.exponent == 0 { // subnormal
		t.exponent = 1
	} else {
		t.significand |= 1 << 23
	}
	t.significand <<= fraction - 23
	t.exponent -= 127
	return t
}

// product returns the exact product of finite numbers. Each has at most 7 bits after the point.
func product(x, y float32) term {
	const point = 7
	s, t := split(x), split(y)
	exact := (s.significand >> (fraction - point)) * (t.significand >> (fraction - point)) // 14 bits after the point
	return term{s.negative != t.negative, exact << (fraction - 2*point), s.exponent + t.exponent}
}

// truncate returns sum · 2^exponent, truncated toward 0 to a float32. Above the largest float32 it is infinite.
func truncate(sum int64, exponent int) float32 {
	magnitude := max(sum, -sum)
	const bits = 24 // of a float32's significand
	for magnitude >= 1<<bits || magnitude != 0 && exponent < -149 {
		magnitude >>= 1
		exponent++
	}
	value := math.Ldexp(float64(magnitude), exponent) // exact
	if value > math.MaxFloat32 {
		value = math.Inf(1)
	}
	if sum < 0 && value != 0 {
		value = -value
	}
	return float32(value)
}
