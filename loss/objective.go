package loss

// vectors are what an objective is written in: one value for each token.
type vectors struct {
	policy     node // log-probability under the policy that is trained
	old        node // the same under the policy that the ratio is taken to
	reference  node // the same under the reference; absent where beta is 0
	behaviour  node // the same under the policy that sampled, as the sampler recorded it; absent without a correction
	recomputed node // behaviour as the trainer computes it; absent without a correction
	advantage  node // of the token's response
}

// objective is a token's loss, to be minimised, without the divergence. Weights
// are applied outside.
type objective func(x *expression, v vectors, c Config) node

// method is a kind of objective.
type method struct {
	kind  string // its name in a configuration
	loss  objective
	whole bool // the ratio is that of a whole response
	// clips says that the clip acts on a token; nil for a kind that has none.
	clips func(c Config, advantage, ratio float64) bool
}

// methods are all kinds. A new one is an expression in a file of its own and a
// line here: it is then a value of loss.kind, and TestEveryKind checks its
// gradient.
func methods() []method {
	return []method{
		{kind: GRPO, loss: grpo, clips: surrogateClips},
		{kind: GSPO, loss: gspo, whole: true, clips: surrogateClips},
		{kind: GSPOToken, loss: gspoToken, whole: true, clips: surrogateClips},
		{kind: CISPO, loss: cispo, clips: weightClips},
		{kind: REINFORCE, loss: reinforce},
	}
}

// methodOf is the kind of that name; its loss is nil where there is none.
func methodOf(kind string) method {
	for _, m := range methods() {
		if m.kind == kind {
			return m
		}
	}
	return method{}
}

// kinds are the names of the methods.
func kinds() (names []string) {
	for _, m := range methods() {
		names = append(names, m.kind)
	}
	return names
}

// total is a token's whole loss, and its part that is not the divergence.
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
