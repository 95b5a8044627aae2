package evaluate

import "math"

// meanAtK returns the mean of the first k scores.
func meanAtK(scores []float64, k int) float64 {
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

// passAtK returns the probability that at least one of k responses is right, drawn without
// replacement from n with c right. It is the unbiased estimator of Chen et al. 2021 (eq.
// 1). k above n counts as n.
func passAtK(n, c, k int) float64 {
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

// maxMajResponses is the maximum number of responses that majMean draws from. Its work grows with their cube.
const maxMajResponses = 128

// majMean returns the mean of majAtK over all ordered draws of k of the n responses. This
// is the complete U-statistic (Hoeffding 1948), the minimum-variance unbiased estimate of
// the score of k fresh responses. Over all orders, equally common answers win equally
// often, so with k = n it is the mean score of the most common answers. majMean takes n k^2
// log k operations and uses the first maxMajResponses responses. With k = n it takes n operations
// and uses all.
func majMean(answers []string, scores []float64, k int) float64 {
	if k >= len(answers) {
		_, candidates := tally(answers, scores)
		return meanOfMostCommon(candidates)
	}
	n := min(len(answers), maxMajResponses)
	k = min(k, n)
	silent, candidates := tally(answers[:n], scores)
	total := 0.0
	for votes := 1; votes <= k; votes++ {
		total += wonWith(votes, k, silent, candidates)
	}
	return total / binomials(n)[k]
}

// candidate is an answer that responses share.
type candidate struct {
	size  int     // responses with this answer
	score float64 // mean of their scores, because any of them may be drawn first
}

// tally counts the responses without an answer and those with each answer, in the order of
// first appearance.
func tally(answers []string, scores []float64) (silent int, candidates []candidate) {
	index := map[string]int{} // index in candidates of each answer
	for i, a := range answers {
		if a == "" {
			silent++
			continue
		}
		c, ok := index[a]
		if !ok {
			c = len(candidates)
			index[a] = c
			candidates = append(candidates, candidate{})
		}
		candidates[c].size++
		candidates[c].score += scores[i]
	}
	for c := range candidates {
		candidates[c].score /= float64(candidates[c].size)
	}
	return silent, candidates
}

// meanOfMostCommon returns the mean score of the largest candidates, or 0 without candidates.
func meanOfMostCommon(candidates []candidate) float64 {
	largest := 0
	equal, sum := 0.0, 0.0 // number of candidates of the largest size, and the sum of their scores
	for _, c := range candidates {
		if c.size > largest {
			largest, equal, sum = c.size, 0, 0
		}
		if c.size == largest {
			equal++
			sum += c.score
		}
	}
	return sum / max(1, equal)
}

// wonWith returns the sum of the winners' scores over all draws of k responses in which an
// answer wins with this many votes. Candidates with equally many votes share a draw.
// wonWith adds one candidate at a time. For each number of responses drawn and of
// candidates with enough votes, it keeps the number of draws and the sum of those
// candidates' scores over them.
func wonWith(votes, k, silent int, candidates []candidate) float64 {
	type state struct{ draws, scores float64 }
	maxWinners := k / votes // candidates that can win together
	index := func(drawn, winners int) int { return drawn*(maxWinners+1) + winners }
	current := make([]state, (k+1)*(maxWinners+1))
	for drawn, ways := range binomials(silent)[:min(silent, k)+1] {
		current[index(drawn, 0)].draws = ways
	}
	for _, c := range candidates {
		ways := binomials(c.size)
		next := make([]state, len(current))
		for drawn := range k + 1 {
			for winners := range maxWinners + 1 {
				s := current[index(drawn, winners)]
				if s.draws == 0 {
					continue
				}
				for fewer := range min(votes, c.size+1, k-drawn+1) { // c gets too few votes to win
					to := &next[index(drawn+fewer, winners)]
					to.draws += float64(ways[fewer] * s.draws)
					to.scores += float64(ways[fewer] * s.scores)
				}
				if c.size >= votes && drawn+votes <= k { // c is among the winners
					to := &next[index(drawn+votes, winners+1)]
					to.draws += float64(ways[votes] * s.draws)
					to.scores += float64(ways[votes] * (s.scores + float64(c.score*s.draws)))
				}
			}
		}
		current = next
	}
	sum := 0.0
	for winners := 1; winners <= maxWinners; winners++ {
		sum += current[index(k, winners)].scores / float64(winners)
	}
	return sum
}

// binomials returns the binomial coefficients of n and 0, 1, …, n.
func binomials(n int) []float64 {
	row := make([]float64, n+1)
	row[0] = 1
	for i := 1; i <= n; i++ {
		row[i] = math.Round(row[i-1] * float64(n-i+1) / float64(i))
	}
	return row
}

// standardError returns the standard error of the mean of the prompts' means: their standard
// deviation over the root of their number. Responses to one prompt are not independent, so
// the prompt is the unit (Miller 2024, "Adding Error Bars to Evals", clustered standard
// errors). The result is NaN for fewer than two prompts.
func standardError(means []float64) float64 {
	n := float64(len(means))
	mean := 0.0
	for _, x := range means {
		mean += x / n
	}
	squares := 0.0
	for _, x := range means {
		squares += float64((x - mean) * (x - mean))
	}
	return math.Sqrt(squares / (n - 1) / n)
}
