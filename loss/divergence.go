package loss

// divergence estimates KL(policy ‖ reference) at each token (Schulman 2020).
func divergence(x *expression, v vectors, kind string) node {
	d := x.sub(v.reference, v.policy)
	switch kind {
	case K2:
		return x.mul(x.scalar(0.5), x.square(d))
	default:
		return x.sub(x.sub(x.exp(d), d), x.scalar(1))
	}
}
