package loss

// grpo is the negative of min(r·A, clip(r, 1-ε_low, 1+ε_high)·A) with r = π/π_old per
// token (Shao et al. 2024, eq. 3; Lu 2025, eq. 4 to 6). With ε_high > ε_low it is DAPO
// (Yu et al. 2025, arXiv 2503.14476, eq. 8).
func grpo(x *expression, v vectors, c Config) node {
	return clipped(x, x.exp(x.sub(v.policy, v.old)), v.advantage, c)
}

// clipped is the negative of PPO's clipped surrogate (Schulman et al. 2017, arXiv
// 1707.06347, eq. 7). A dual clip c also bounds it if A < 0: max(min(r·A, clip(r)·A),
// c·A) (Ye et al. 2020, arXiv 1912.09729). If A >= 0 the bound is 0 and changes
// nothing.
func clipped(x *expression, ratio, advantage node, c Config) node {
	bounded := x.clip(ratio, 1-c.EpsilonLow, 1+c.EpsilonHigh)
	surrogate := x.min(x.mul(ratio, advantage), x.mul(bounded, advantage))
	if c.DualClip > 0 {
		surrogate = x.max(surrogate, x.mul(x.scalar(c.DualClip), x.min(advantage, x.scalar(0))))
	}
	return x.neg(surrogate)
}

// surrogateClips reports whether the clip removes a token's gradient.
func surrogateClips(c Config, advantage, ratio float64) bool {
	below, above := ratio < 1-c.EpsilonLow, ratio > 1+c.EpsilonHigh
	dual := c.DualClip > 0 && ratio > c.DualClip
	return advantage > 0 && above || advantage < 0 && (below || dual)
}
