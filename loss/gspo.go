package loss

// gspo is the negative of min(s·A, clip(s, 1-ε_low, 1+ε_high)·A) with the ratio of
// whole responses s = (π(y|x)/π_old(y|x))^(1/|y|) = exp(1/|y| Σ_t log π_t/π_old,t)
// (Zheng et al. 2025, arXiv 2507.18071, eq. 5 to 7). Every token has the loss of its
// response. Aggregation "sequence-mean" turns that into the paper's mean over
// responses.
func gspo(x *expression, v vectors, c Config) node {
	return clipped(x, x.exp(x.mean(x.sub(v.policy, v.old))), v.advantage, c)
}

// gspoToken is gspo with s_t = sg[s]·π_t/sg[π_t] at token t (Zheng et al. 2025, eq. 13
// and 14). It has the value of gspo, and also its gradient if all tokens of a response
// have one advantage.
func gspoToken(x *expression, v vectors, c Config) node {
	sequence := x.stop(x.mean(x.sub(v.policy, v.old)))
	return clipped(x, x.exp(x.add(sequence, x.sub(v.policy, x.stop(v.policy)))), v.advantage, c)
}
