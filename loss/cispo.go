package loss

// cispo is the negative of sg[clip(r, 1-ε_low, 1+ε_high)]·A·log π with r = π/π_old
// (MiniMax 2025, arXiv 2506.13585, eq. 4 and 5). It clips the weight, and every token
// keeps its gradient. The paper has no lower bound: ε_low = 1.
func cispo(x *expression, v vectors, c Config) node {
	weight := x.stop(x.clip(x.exp(x.sub(v.policy, v.old)), 1-c.EpsilonLow, 1+c.EpsilonHigh))
	return x.neg(x.mul(x.mul(weight, v.advantage), v.policy))
}

// weightClips reports whether the clip changes a token's weight.
func weightClips(c Config, _, ratio float64) bool {
	return ratio < 1-c.EpsilonLow || ratio > 1+c.EpsilonHigh
}
