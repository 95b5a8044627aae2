package loss

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
)

// The filters of a group's responses (Zhang et al. 2025, arXiv 2409.06957,
// "PF-PPO"): rewards are most reliable where they are extreme, so that of many
// responses few are trained. The paper draws from weights over the responses
// ranked by reward, 1/2 for the best and the other half for the worst or for all
// others alike; here the same halves are taken without replacement.
const (
	// BestWorst keeps the best half of the kept responses and the worst half.
	BestWorst = "best-worst"
	// BestRandom keeps the best half, and the rest at random from the others.
	BestRandom = "best-random"
)

// Keep picks n of a group's responses by their rewards and returns their indices,
// ascending; all of them where n is 0 or not less than the group. The better
// half is the larger one where n is odd, and of equal rewards the first is the
// better. Random picks depend on seed and stream alone. Advantages are those of
// the whole group: estimate them before. An unknown filter panics.
func Keep(filter string, n int, rewards []float64, seed, stream uint64) []int {
	order := make([]int, len(rewards))
	for i := range order {
		order[i] = i
	}
	if n <= 0 || n >= len(rewards) {
		return order
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rewards[b], rewards[a]) })
	best, others := order[:(n+1)/2], order[(n+1)/2:]
	switch filter {
	case BestWorst:
	case BestRandom:
		rand.New(rand.NewPCG(seed, stream)).Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	default:
		panic(fmt.Sprintf("loss: unknown filter %q", filter))
	}
	kept := slices.Concat(best, others[len(others)-n/2:])
	slices.Sort(kept)
	return kept
}
