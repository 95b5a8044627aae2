package loss

import (
	"math"

	"github.com/easyrl/easyrl/internal/rounded"
)

// Corrections for instances whose log-probabilities differ from the trainer's. They
// weight a token's loss, without its divergence, by a function of ρ =
// π_trainer/π_instance under the weights that sampled. They do not change a token with
// ρ = 1.
const (
	// NoCorrection is a weight of 1.
	NoCorrection = "none"
	// Truncate is min(ρ, correction_high): truncated importance sampling (Yao et al. 2025,
	// "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training").
	Truncate = "truncate"
	// Mask is ρ where 0.5 <= ρ <= correction_high and 0 elsewhere (Ling Team 2025,
	// arXiv 2510.18855, "IcePop").
	Mask = "mask"
)

// correction returns a token's weight. No gradient passes through it. The logarithm is
// bounded, so that no ρ overflows.
func correction(x *expression, v vectors, c Config) node {
	low, high := correctionBounds(c)
	log := x.sub(v.recomputed, v.behaviour)
	weight := x.exp(x.clip(log, low, high))
	if c.Correction == Truncate {
		return weight
	}
	inside := x.mul(x.atMost(x.scalar(low), log), x.atMost(log, x.scalar(high)))
	return x.mul(inside, weight)
}

// correctionBounds returns the bounds of log ρ.
func correctionBounds(c Config) (low, high float64) {
	low = -math.MaxFloat64
	if c.Correction == Mask {
		low = max(low, rounded.Log(c.CorrectionLow))
	}
	return low, rounded.Log(c.CorrectionHigh)
}
