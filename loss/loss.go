// Package loss turns token log-probabilities and rewards into a scalar and its
// gradient; it knows no model and no device.
//
// An algorithm is an expression over per-token vectors, which Gorgonia differentiates.
// Each has a file of its own (grpo.go, gspo.go, cispo.go, reinforce.go), and
// objective.go lists them; docs/tutorial.md adds one. A method is an algorithm with an
// advantage and an aggregation; configs/objectives has the methods of the papers. Eval
// returns sums that are not divided by anything, so that a step's groups can be trained
// as they arrive. Aggregation gives the divisor of the step's total.
package loss

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// The kinds of objective. Their expressions explain them.
const (
	GRPO      = "grpo"       // clipped ratio of a token (Shao et al. 2024)
	GSPO      = "gspo"       // clipped ratio of a response (Zheng et al. 2025)
	GSPOToken = "gspo-token" // the same with an advantage of each token (Zheng et al. 2025)
	CISPO     = "cispo"      // clipped weight of a token (MiniMax 2025)
	REINFORCE = "reinforce"  // no ratio (Williams 1992)
)

// The policies that a ratio can have in its denominator.
const (
	// Behaviour is the policy that sampled the responses.
	Behaviour = "behaviour"
	// PreviousStep is the policy that sampled the previous step, in the first step its own
	// (Lu 2025, section 4.1 and algorithm 1, line 20). All mini-batches of a step have the
	// same one.
	PreviousStep = "previous-step"
)

// Estimators of the divergence of the policy from the reference (Schulman 2020,
// "Approximating KL divergence"). The third of them, k1 = -d, estimates the divergence
// without bias but cannot be minimized: its gradient is that of log π, whatever the
// reference.
const (
	K2 = "k2" // d²/2, with d = log π_ref - log π
	K3 = "k3" // e^d - 1 - d
)

// Config sets the objective.
type Config struct {
	// Kind of objective: "grpo", "gspo", "gspo-token", "cispo" or "reinforce".
	Kind string `toml:"kind"`
	// Clips the ratio at 1 - EpsilonLow if the advantage is negative; with kind "cispo",
	// always.
	EpsilonLow float64 `toml:"epsilon_low"`
	// Clips the ratio at 1 + EpsilonHigh if the advantage is positive; with kind "cispo",
	// always.
	EpsilonHigh float64 `toml:"epsilon_high"`
	// Maximum ratio if the advantage is negative, usually 3; 0 sets no maximum. Kinds "cispo"
	// and "reinforce" ignore it.
	DualClip float64 `toml:"dual_clip"`
	// Weight of the divergence from the reference model; 0 needs no reference model.
	Beta float64 `toml:"beta"`
	// Estimator of the divergence from the reference model: "k2" or "k3".
	KL string `toml:"kl"`
	// Aggregation of token losses: "sequence-mean", "token-mean" or "constant".
	Aggregation Aggregation `toml:"aggregation"`
	// Advantage estimator. "group", "group-mean", "leave-one-out" and "reward" wait for the
	// response's group; "batch" and "batch-baseline" wait for the whole batch.
	Advantage string `toml:"advantage"`
	// Policy in the denominator of the ratio: "behaviour" or "previous-step".
	OldPolicy string `toml:"old_policy"`
	// Correction for instances whose log-probabilities differ from the trainer's:
	// "none", "truncate" or "mask".
	Correction string `toml:"correction"`
	// CorrectionLow is the smallest ratio of the trainer's to the instance's probability
	// that "mask" keeps: 0.5, the alpha of IcePop.
	CorrectionLow float64 `toml:"-"`
	// Largest ratio of the trainer's to the instance's probability that "mask" keeps, and the
	// upper bound of "truncate".
	CorrectionHigh float64 `toml:"correction_high"`
	// Number of responses per group to train, half of them the best and half the worst; 0
	// trains all.
	Keep int `toml:"keep" unit:"responses"`
}

// Default returns GRPO without a reference, averaged over a step's tokens.
func Default() Config {
	return Config{
		Kind: GRPO, EpsilonLow: 0.2, EpsilonHigh: 0.2, KL: K3,
		Aggregation: TokenMean, Advantage: GroupAdvantage, OldPolicy: Behaviour,
		Correction: NoCorrection, CorrectionLow: 0.5, CorrectionHigh: 2,
	}
}

// Validate reports all faults of c together, each beginning with its key.
func (c *Config) Validate() error {
	return errors.Join(
		oneOf("kind", c.Kind, kinds()...),
		within("epsilon_low", c.EpsilonLow, 1, "0 to 1"),
		within("epsilon_high", c.EpsilonHigh, math.MaxFloat64, "0 or more"),
		dualClip(c.DualClip),
		within("beta", c.Beta, math.MaxFloat64, "0 or more"),
		estimator(c.KL),
		oneOf("aggregation", string(c.Aggregation), string(SequenceMean), string(TokenMean), string(Constant)),
		oneOf("advantage", c.Advantage, GroupAdvantage, GroupMeanAdvantage, LeaveOneOutAdvantage, RewardAdvantage,
			BatchAdvantage, BatchBaselineAdvantage),
		oneOf("old_policy", c.OldPolicy, Behaviour, PreviousStep),
		oneOf("correction", c.Correction, NoCorrection, Truncate, Mask),
		within("correction_low", c.CorrectionLow, 1, "0 to 1"),
		between("correction_high", c.CorrectionHigh, 1, math.MaxFloat64, "1 or more"),
		within("keep", float64(c.Keep), math.MaxInt32, "0 or more"),
	)
}

// estimator checks the key kl.
func estimator(kl string) error {
	if kl == "k1" {
		return fmt.Errorf("kl is %q, expected %q or %q: the gradient of k1 = log π - log π_ref does not depend on "+
			"the reference, so it cannot keep the policy near it", kl, K3, K2)
	}
	return oneOf("kl", kl, K2, K3)
}

// oneOf rejects values that are not allowed.
func oneOf(key, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("%s is %q, expected \"%s\"", key, value, strings.Join(allowed, `", "`))
}

// within rejects values outside [0, max] and NaN.
func within(key string, value, max float64, expected string) error {
	return between(key, value, 0, max, expected)
}

// dualClip checks the key dual_clip.
func dualClip(value float64) error {
	if value == 0 {
		return nil
	}
	return between("dual_clip", value, 1, math.MaxFloat64, "0, or 1 or more")
}

// between rejects values outside [min, max] and NaN.
func between(key string, value, min, max float64, expected string) error {
	if value >= min && value <= max {
		return nil
	}
	return fmt.Errorf("%s is %v, expected %s", key, value, expected)
}
