package rounded

import (
	"math"
	"math/big"
	"sync"
)

// Numbers of steps in the tables.
const (
	expSteps   = 64  // of a doubling
	logSteps   = 128 // of a unit
	angleSteps = 256 // of a full turn
)

// constants holds lookup tables, and irrational numbers as sums of float64.
type constants struct {
	power    [expSteps]double   // 2^(i/expSteps)
	expStep  double             // log(2)/expSteps; the product of high and an integer of 21 bits is exact
	ln2      double             // log(2); the product of high and an integer of 11 bits is exact
	inverse  [logSteps]float64  // see tables
	minusLog [logSteps]double   // -log(inverse[i])
	sin, cos [angleSteps]double // of i·2π/angleSteps
	turn     [3]float64         // 2π/angleSteps as an unevaluated sum
}

// tables returns the constants. The first call computes them, in about 10 ms.
//
// Step i of inverse is the range from 1/2 + i/logSteps to 1/2 + (i+1)/logSteps. inverse[i] has at most 11
// bits and is near the reciprocal of the middle of that range. For the two steps next to 1 it is exactly
// 1, so that a logarithm near 0 is accurate.
var tables = sync.OnceValue(func() *constants {
	const prec = 256
	c := &constants{}
	ln2 := bigLn2(prec)
	c.ln2 = split(ln2, 11)
	c.expStep = split(new(big.Float).SetMantExp(ln2, -6), 21)
	for i := range c.power {
		x := number(prec, float64(i)/expSteps)
		c.power[i] = split(bigExp(x.Mul(x, ln2), prec), 0)
	}
	for i := range c.inverse {
		c.inverse[i] = 1
		if i != logSteps/2-1 && i != logSteps/2 {
			c.inverse[i] = math.Round(512/(0.5+float64((float64(i)+0.5)/logSteps))) / 512
		}
		l := bigLog(number(prec, c.inverse[i]), prec)
		c.minusLog[i] = split(l.Neg(l), 0)
	}
	step := new(big.Float).SetMantExp(bigPi(prec), -7)
	for i := range c.sin {
		x := number(prec, float64(i))
		sin, cos := bigSincos(x.Mul(x, step), prec)
		if i%(angleSteps/2) == 0 {
			sin.SetInt64(0)
		} else if i%(angleSteps/4) == 0 {
			cos.SetInt64(0)
		}
		c.sin[i], c.cos[i] = split(sin, 0), split(cos, 0)
	}
	for i := range c.turn {
		c.turn[i], _ = step.Float64()
		step = step.Sub(step, big.NewFloat(c.turn[i]))
	}
	return c
})

// split returns the sum of two float64 that is nearest to x, where the lowest zeros bits of high are 0.
func split(x *big.Float, zeros uint) double {
	high, _ := new(big.Float).SetPrec(53 - zeros).Set(x).Float64()
	low, _ := new(big.Float).SetPrec(x.Prec()).Sub(x, big.NewFloat(high)).Float64()
	return double{high, low}
}
