package loss

// vectors are what an objective is written in: one value for each token.
type vectors struct {
	policy    node // log-probability under the policy that is trained
	old       node // the same under the policy that the ratio is taken to
	reference node // the same under the reference; absent where beta is 0
	behaviour node // the same under the policy that sampled; absent without a correction
	recorded  node // the same as the instance that sampled reported it; absent without a correction
	advantage node
}

// objective is a token's loss, to be minimised, without the divergence. Weights
// are applied outside.
type objective func(x *expression, v vectors, c Config) node

// objectives by kind. A new one is an expression in a file of its own, a line
// here and a name in Config.
func objectives(kind string) objective {
	switch kind {
	case GRPO:
		return grpo
	case GSPO:
		return gspo
	case GSPOToken:
		return gspoToken
	case CISPO:
		return cispo
	case REINFORCE:
		return reinforce
	}
	return nil
}

// total is a token's whole loss, and its part that is not the divergence.
func total(x *expression, v vectors, c Config) (loss, pg node) {
	pg = objectives(c.Kind)(x, v, c)
	if c.Correction != NoCorrection {
		pg = x.mul(correction(x, v, c), pg)
	}
	if c.Beta == 0 {
		return pg, pg
	}
	return x.add(pg, x.mul(x.scalar(c.Beta), divergence(x, v, c.KL))), pg
}
