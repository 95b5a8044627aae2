package loss

// reinforce is the negative of A·log π (Williams 1992), whose gradient is A·∇ log π.
// It has no ratio and no clip, for steps on the policy's own responses. With advantage
// "leave-one-out" it is RLOO (Ahmadian et al. 2024, arXiv 2402.14740, section 3).
func reinforce(x *expression, v vectors, _ Config) node {
	return x.neg(x.mul(v.advantage, v.policy))
}
