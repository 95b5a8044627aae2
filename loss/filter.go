package loss

import (
	"cmp"
	"slices"
)

// Keep picks n of a group's responses and returns their indices, ascending: half of them have the
// highest rewards, the others the lowest. If n is odd, it picks one more of the highest. Of equal
// rewards, the first counts as higher. If n is 0 or at least the group's size, it picks all.
// Estimate advantages before, from the rewards of the complete group.
//
// Rewards are most reliable at their extremes (Zhang et al. 2025, arXiv 2409.06957,
// "PF-PPO", filter "BW"). The paper draws with weights over the responses ranked by
// reward, half of the mass on the best and half on the worst; Keep takes the same
// halves without replacement.
func Keep(n int, rewards []float64) []int {
	order := make([]int, len(rewards))
	for i := range order {
		order[i] = i
	}
	if n <= 0 || n >= len(rewards) {
		return order
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rewards[b], rewards[a]) })
	kept := slices.Concat(order[:(n+1)/2], order[len(order)-n/2:])
	slices.Sort(kept)
	return kept
}

// Signal reports whether any of the kept responses of a group has an advantage other than 0
// in float32, as it is trained. A group without one teaches nothing.
func Signal(advantages []float64, kept []int) bool {
	return slices.ContainsFunc(kept, func(i int) bool { return float32(advantages[i]) != 0 })
}

// MaySignal reports whether a group with these rewards may have a signal. The answer is
// certain for advantages that depend on the group alone. With "batch", every group may have
// one, because its advantages depend on the other groups of its batch.
func (c *Config) MaySignal(rewards []float64) bool {
	kept := Keep(c.Keep, rewards)
	switch c.Advantage {
	case BatchAdvantage:
		return true
	case BatchBaselineAdvantage:
		return Signal(Advantages(GroupMeanAdvantage, rewards), kept)
	}
	return Signal(Advantages(c.Advantage, rewards), kept)
}
