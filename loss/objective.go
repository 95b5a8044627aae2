package loss

// vectors are the inputs of an objective, one value per token.
type vectors struct {
	policy     node // log-probability under the trained policy
	old        node // log-probability under the policy in the denominator of the ratio
	reference  node // log-probability under the reference; nil if beta is 0
	behaviour  node // log-probability that the sampler recorded; nil without a correction
	recomputed node // behaviour as the trainer computes it; nil without a correction
	advantage  node // advantage of the token's response
}

// objective returns a token's loss without the divergence. Its callers apply weights.
type objective func(x *expression, v vectors, c Config) node

// method is a kind of objective.
type method struct {
	kind        string // its name in a configuration
	loss        objective
	perResponse bool // ratios are per response, not per token
	// clips reports whether the clip affects a token; nil for kinds without a clip.
	clips func(c Config, advantage, ratio float64) bool
}

// methods returns all kinds of objective. To add one, write its expression in a new
// file and add a line here: loss.kind then accepts it, and TestEveryKind checks its
// gradient.
func methods() []method {
	return []method{
		{kind: GRPO, loss: grpo, clips: surrogateClips},
		{kind: GSPO, loss: gspo, perResponse: true, clips: surrogateClips},
		{kind: GSPOToken, loss: gspoToken, perResponse: true, clips: surrogateClips},
		{kind: CISPO, loss: cispo, clips: weightClips},
		{kind: REINFORCE, loss: reinforce},
	}
}

// methodOf returns the method of that kind, or the zero method if there is none.
func methodOf(kind string) method {
	for _, m := range methods() {
		if m.kind == kind {
			return m
		}
	}
	return method{}
}

// kinds returns the names of the methods.
func kinds() (names []string) {
	for _, m := range methods() {
		names = append(names, m.kind)
	}
	return names
}

// total returns a token's loss, and the loss without the divergence. No weight is applied.
func total(x *expression, v vectors, c Config) (loss, pg node) {
	pg = methodOf(c.Kind).loss(x, v, c)
	if c.Correction != NoCorrection {
		pg = x.mul(correction(x, v, c), pg)
	}
	if c.Beta == 0 {
		return pg, pg
	}
	return x.add(pg, x.mul(x.scalar(c.Beta), divergence(x, v, c.KL))), pg
}
