package loss

import (
	"fmt"
	"math"
)

// The estimators of a response's advantage from its group's rewards.
const (
	// GroupAdvantage is (r - mean) / (std + 1e-4) with the unbiased standard
	// deviation (Shao et al. 2024, section 4.1.2).
	GroupAdvantage = "group"
	// GroupMeanAdvantage is r - mean (Liu et al. 2025, "Dr. GRPO").
	GroupMeanAdvantage = "group-mean"
)

// stdFloor keeps rewards that differ by rounding only from large advantages.
const stdFloor = 1e-4

// Advantages estimates each response's advantage from the rewards of one whole
// group. They are exactly 0 where all rewards are equal, as in a group of one.
// A reward that is not finite makes all advantages of its group NaN, which Eval
// refuses. An unknown kind panics.
func Advantages(kind string, rewards []float64) []float64 {
	if kind != GroupAdvantage && kind != GroupMeanAdvantage {
		panic(fmt.Sprintf("loss: unknown advantage %q", kind))
	}
	advantages := make([]float64, len(rewards))
	equal, valid, mean := true, true, 0.0
	for _, r := range rewards {
		equal = equal && r == rewards[0]
		valid = valid && finite(r)
		mean += r / float64(len(rewards))
	}
	divisor := 1.0
	switch {
	case !valid:
		divisor = math.NaN()
	case equal:
		return advantages
	case kind == GroupAdvantage:
		divisor = deviation(rewards, mean) + stdFloor
	}
	for i, r := range rewards {
		advantages[i] = (r - mean) / divisor
	}
	return advantages
}

// deviation is the unbiased standard deviation of at least two values.
func deviation(values []float64, mean float64) float64 {
	squares := 0.0
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	return math.Sqrt(squares / float64(len(values)-1))
}
