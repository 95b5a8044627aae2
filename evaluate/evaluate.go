// Package evaluate turns the scores of several responses to a prompt into
// mean@k, pass@k and maj@k.
package evaluate

import "math"

// MeanAtK is the mean of the first k scores.
func MeanAtK(scores []float64, k int) float64 {
	k = min(k, len(scores))
	if k == 0 {
		return 0
	}
	sum := 0.0
	for _, s := range scores[:k] {
		sum += s
	}
	return sum / float64(k)
}

// PassAtK is the chance that at least one of k responses drawn without
// replacement from n, of which c are right, is right: the unbiased estimator of
// Chen et al. 2021 (eq. 1). k above n counts as n.
func PassAtK(n, c, k int) float64 {
	k = min(k, n)
	if n-c < k {
		return 1
	}
	miss := 1.0
	for i := n - c + 1; i <= n; i++ {
		miss *= 1 - float64(k)/float64(i)
	}
	return 1 - miss
}

// GPassAtK is the chance that at least the share tau of k responses drawn
// without replacement from n, of which c are right, is right (Liu et al. 2024,
// "Are Your LLMs Capable of Stable Reasoning?", eq. 2). With tau 0 it is
// PassAtK.
func GPassAtK(n, c, k int, tau float64) float64 {
	k = min(k, n)
	least := max(1, int(math.Ceil(tau*float64(k))))
	sum := 0.0
	for right := least; right <= min(c, k); right++ {
		sum += math.Exp(choose(c, right) + choose(n-c, k-right) - choose(n, k))
	}
	return min(1, sum)
}

// choose is the logarithm of n over k, minus infinity where it is 0.
func choose(n, k int) float64 {
	if k < 0 || k > n {
		return math.Inf(-1)
	}
	lgamma := func(x int) float64 { v, _ := math.Lgamma(float64(x) + 1); return v }
	return lgamma(n) - lgamma(k) - lgamma(n-k)
}

// MajAtK is the score of the commonest of the first k answers, the earliest
// among equals (Wang et al. 2022, self-consistency): scores[i] is that of
// answers[i]. An empty answer, a response without one, does not vote.
func MajAtK(answers []string, scores []float64, k int) float64 {
	k = min(k, len(answers))
	votes := map[string]int{}
	best, at := 0, -1
	for _, a := range answers[:k] {
		if a != "" {
			votes[a]++
			best = max(best, votes[a])
		}
	}
	for i, a := range answers[:k] {
		if a != "" && votes[a] == best {
			at = i
			break
		}
	}
	if at < 0 {
		return 0
	}
	return scores[at]
}
