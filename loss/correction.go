package loss

import "math"

// The corrections for instances whose log-probabilities are not the trainer's to
// the bit. They weigh a token's loss, not its divergence, by a function of
// ρ = π_trainer/π_instance under the weights that sampled, and leave a token with
// ρ = 1 exactly as it is.
const (
	// NoCorrection is a weight of 1.
	NoCorrection = "none"
	// Truncate is min(ρ, high): truncated importance sampling (Yao et al. 2025,
	// "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training").
	Truncate = "truncate"
	// Mask is ρ where low <= ρ <= high and 0 elsewhere (Ling Team 2025, arXiv
	// 2510.18855, "IcePop").
	Mask = "mask"
)

// correction is a token's weight, which no gradient passes. The logarithm is
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

// correctionBounds are those of log ρ.
func correctionBounds(c Config) (low, high float64) {
	low = -math.MaxFloat64
	if c.Correction == Mask {
		low = max(low, math.Log(c.CorrectionLow))
	}
	return low, math.Log(c.CorrectionHigh)
}
