package loss

import (
	"fmt"
	"math"
)

// Estimators of a response's advantage. Some use the rewards of the response's group, others those
// of all groups of an optimizer step (Hu et al. 2025, arXiv 2501.03262, "REINFORCE++", "global
// advantage normalization"). With the latter, no group can be trained before the last is complete.
//
// ReMax (Li et al. 2024, arXiv 2310.10505) is missing on purpose. Its baseline is the reward of the
// prompt's greedy response, which costs one more sample per prompt and is never trained. This pays
// off with a single response per prompt. In a group, leave-one-out has an unbiased baseline for free.
const (
	// GroupAdvantage is (r - mean) / (std + 1e-4) with the unbiased standard
	// deviation (Shao et al. 2024, section 4.1.2).
	GroupAdvantage = "group"
	// GroupMeanAdvantage is r - mean (Liu et al. 2025, arXiv 2503.20783, "Dr. GRPO").
	GroupMeanAdvantage = "group-mean"
	// LeaveOneOutAdvantage is r minus the mean of the group's other rewards, which
	// is G/(G-1)·(r - mean) (Ahmadian et al. 2024, arXiv 2402.14740, "RLOO").
	LeaveOneOutAdvantage = "leave-one-out"
	// RewardAdvantage is r itself (Williams 1992, "REINFORCE").
	RewardAdvantage = "reward"
	// BatchAdvantage is (r - mean) / (std + 1e-4) over the batch: REINFORCE++. It also
	// works with one response per prompt.
	BatchAdvantage = "batch"
	// BatchBaselineAdvantage is d / (std(d) + 1e-4) over the batch, where d is the
	// reward minus its group's mean: REINFORCE++ with baseline. The paper also
	// subtracts the mean of d, which is 0.
	BatchBaselineAdvantage = "batch-baseline"
)

const (
	// stdFloor prevents large advantages from rewards that differ little.
	stdFloor = 1e-4
	// roundingSpread is the largest difference of rewards that counts as rounding, relative to the
	// largest magnitude of a reward.
	roundingSpread = 1e-12
)

// Advantages estimates the advantage of each response from the rewards of one whole
// group. The advantages are exactly 0 if all rewards are Equal, as in a group of one,
// unless the kind is "reward". A reward or standard deviation that is not finite makes the
// advantages of its group NaN, which Eval rejects. Advantages panics on an unknown kind and on one that
// needs the whole batch.
func Advantages(kind string, rewards []float64) []float64 {
	n := float64(len(rewards))
	advantages, mean := centre(rewards)
	switch kind {
	case GroupAdvantage:
		divide(advantages, deviation(rewards, mean)+stdFloor)
	case GroupMeanAdvantage: // centre has computed it
	case LeaveOneOutAdvantage:
		divide(advantages, (n-1)/n)
	case RewardAdvantage:
		for i, r := range rewards {
			advantages[i] = r + float64(0*mean) // adds 0, or NaN if the mean is NaN
		}
	default:
		panic(fmt.Sprintf("loss: unknown group advantage %q", kind))
	}
	return advantages
}

// Equal reports whether rewards differ at most by rounding: such a group teaches
// nothing. It returns false if a reward is not finite.
func Equal(rewards []float64) bool {
	if len(rewards) == 0 {
		return true
	}
	low, high := rewards[0], rewards[0]
	for _, r := range rewards {
		if !finite(r) {
			return false
		}
		low, high = min(low, r), max(high, r)
	}
	return high-low <= roundingSpread*max(high, -low)
}

// centre returns the rewards minus their mean, exactly 0 if they are Equal, and the
// mean. Both are NaN if a reward is not finite.
func centre(rewards []float64) (centred []float64, mean float64) {
	centred = make([]float64, len(rewards))
	for _, r := range rewards {
		mean += r / float64(len(rewards))
	}
	mean += float64(0 * mean) // adds 0, but turns an infinite mean into NaN
	if Equal(rewards) {
		return centred, mean
	}
	for i, r := range rewards {
		centred[i] = r - mean
	}
	return centred, mean
}

// divide divides values in place. Zeros stay 0, even if the divisor is 0.
func divide(values []float64, divisor float64) {
	for i, v := range values {
		if v != 0 {
			values[i] = v / divisor
		}
	}
}

// deviation returns the unbiased standard deviation of values, 0 for fewer than two, or
// NaN if it overflows.
func deviation(values []float64, mean float64) float64 {
	if len(values) < 2 {
		return 0
	}
	squares := 0.0
	for _, v := range values {
		squares += float64((v - mean) * (v - mean))
	}
	std := math.Sqrt(squares / float64(len(values)-1))
	return std + float64(0*std) // turns infinity into NaN; a division by infinity would hide the overflow
}
