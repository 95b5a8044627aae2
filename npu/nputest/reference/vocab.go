package reference

import (
	"math"
	"sort"

	"github.com/easyrl/easyrl/npu"
)

// LogProb computes the log softmax at targets and the entropy of the distribution. It also computes the
// derivatives of Σ dlp·logp with respect to hidden and to the logits before scaling. dLogits is
// transposed, [vocabulary, rows].
func LogProb[F Float](hidden, w, dlp []F, targets []int32, invTemp float32) (logp, entropy, dLogits, dHidden []F) {
	n := len(targets)
	k := len(hidden) / n
	dLogits, dHidden = make([]F, n*(len(w)/k)), make([]F, len(hidden))
	for i := range targets {
		s := logits(hidden[i*k:(i+1)*k], w, F(invTemp))
		top, sum, ent := s[0], F(0), F(0)
		for _, v := range s {
			top = max(top, v)
		}
		for _, v := range s {
			sum += F(math.Exp(float64(v - top)))
		}
		lse := top + F(math.Log(float64(sum)))
		for j, v := range s {
			p := F(math.Exp(float64(v - lse)))
			ent -= p * (v - lse)
			g := -p
			if j == int(targets[i]) {
				g++
			}
			g *= dlp[i] * F(invTemp)
			dLogits[j*n+i] = g
			for e := range k {
				dHidden[i*k+e] += g * w[j*k+e]
			}
		}
		logp, entropy = append(logp, s[targets[i]]-lse), append(entropy, ent)
	}
	return logp, entropy, dLogits, dHidden
}

// logits returns a row's scaled logits.
func logits[F Float](hidden, w []F, invTemp F) []F {
	k := len(hidden)
	s := make([]F, len(w)/k)
	for j := range s {
		for e, h := range hidden {
			s[j] += h * w[j*k+e]
		}
		s[j] *= invTemp
	}
	return s
}

// Distribution returns the distribution from which npu's Sample draws the token of a row: top-k, then
// top-p, then min-p. p.Temperature must not be 0.
func Distribution(logits []float32, p npu.SampleParams) []float64 {
	prob, order := make([]float64, len(logits)), make([]int, len(logits))
	top := math.Inf(-1)
	for i, v := range logits {
		order[i] = i
		top = max(top, float64(v))
	}
	for i, v := range logits {
		prob[i] = math.Exp((float64(v) - top) / float64(p.Temperature))
	}
	sort.SliceStable(order, func(a, b int) bool { return logits[order[a]] > logits[order[b]] })
	keep := len(order)
	if p.TopK > 0 {
		keep = min(keep, int(p.TopK))
	}
	mass, sum := 0.0, 0.0
	for _, i := range order[:keep] {
		mass += prob[i]
	}
	if p.TopP < 1 {
		for n, i := range order[:keep] {
			sum += prob[i]
			if sum >= mass*float64(p.TopP) {
				keep = n + 1
				break
			}
		}
	}
	out, total := make([]float64, len(logits)), 0.0
	for _, i := range order[:keep] {
		if prob[i] >= float64(p.MinP) {
			out[i] = prob[i]
			total += prob[i]
		}
	}
	for i := range out {
		out[i] /= total
	}
	return out
}
