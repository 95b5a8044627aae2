package loss

// Aggregation reduces the losses of a step's tokens to one number. Each token's loss
// is weighted by its response's weight, and the step's sum is divided once by a
// denominator that is known after the last group. Loss and gradient are linear in the
// sums, so training group by group is exact.
type Aggregation string

// The aggregations.
const (
	// SequenceMean averages over each response's tokens, then over responses
	// (Shao et al. 2024).
	SequenceMean Aggregation = "sequence-mean"
	// TokenMean averages over all response tokens of the step (Yu et al. 2025,
	// "DAPO").
	TokenMean Aggregation = "token-mean"
	// Constant sums over each response's tokens and divides by rollout.max_tokens,
	// then averages over responses (Liu et al. 2025, "Dr. GRPO").
	Constant Aggregation = "constant"
)

// Weight returns the weight of each token of a response with length tokens.
func (a Aggregation) Weight(length int) float32 {
	if a == SequenceMean && length > 0 {
		return float32(1 / float64(length))
	}
	return 1
}

// Denominator returns the divisor of the step's sums, given the number of its
// responses, the number of all their tokens (including those without a gradient) and
// the constant length.
func (a Aggregation) Denominator(responses, tokens, constant int) float64 {
	switch a {
	case SequenceMean:
		return float64(responses)
	case Constant:
		return float64(responses) * float64(constant)
	default:
		return float64(tokens)
	}
}
