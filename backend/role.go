package backend

// Role is the part that weights play in training.
type Role string

// The roles. Training updates the policy. The others are earlier, frozen copies of it.
const (
	Policy    Role = "policy"
	OldPolicy Role = "old policy" // denominator of the loss's probability ratio
	Sampler   Role = "sampler"    // the version that sampled the rollouts
	Reference Role = "reference"  // the starting weights, for a divergence
)

// Values holds, by role, one value for each target of a layout, in the order of the targets: the target's
// log-probability, or the derivative of the loss with respect to it. A role without values is absent. Slices may share
// memory.
type Values map[Role][]float32

// Outputs is what the roles compute for a layout.
type Outputs struct {
	// Values are log-probabilities. OldPolicy is absent if the recorded log-probabilities of the sampler
	// replace it, and Sampler if it is not computed.
	Values  Values
	Entropy []float32 // of the policy's distribution at each target, in nats
}
