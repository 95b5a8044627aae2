package loss

// vectors are what an objective is written in: one value for each token.
type vectors struct {
	policy    node // log-probability under the policy that is trained
	old       node // the same under the policy that the ratio is taken to
	reference node // the same under the reference; absent where beta is 0
	advantage node
}

// objective is a token's loss, to be minimised, and its part that is not the
// divergence. Weights are applied outside.
type objective func(x *expression, v vectors, c Config) (loss, pg node)

// objectives by kind. A new one is an expression here and a name in Config.
func objectives(kind string) objective {
	switch kind {
	case GRPO:
		return grpo
	}
	return nil
}

// grpo is the negative of min(r·A, clip(r, 1-ε_low, 1+ε_high)·A) - β·D, with
// r = π/π_old (Lu 2025, eq. 4 to 6, token by token).
func grpo(x *expression, v vectors, c Config) (loss, pg node) {
	ratio := x.exp(x.sub(v.policy, v.old))
	clipped := x.clip(ratio, 1-c.EpsilonLow, 1+c.EpsilonHigh)
	pg = x.neg(x.min(x.mul(ratio, v.advantage), x.mul(clipped, v.advantage)))
	if c.Beta == 0 {
		return pg, pg
	}
	return x.add(pg, x.mul(x.scalar(c.Beta), divergence(x, v, c.KL))), pg
}

// divergence estimates KL(policy ‖ reference) at each token (Schulman 2020).
func divergence(x *expression, v vectors, kind string) node {
	d := x.sub(v.reference, v.policy)
	switch kind {
	case K1:
		return x.neg(d)
	case K2:
		return x.mul(x.scalar(0.5), x.square(d))
	default:
		return x.sub(x.sub(x.exp(d), d), x.scalar(1))
	}
}
