// Package loss turns token log-probabilities and rewards into a scalar and its
// gradient; it knows no model and no device.
//
// An algorithm is an expression over per-token vectors (objective.go), which
// Gorgonia differentiates. Everything that a batch divides by is left out: Eval
// returns sums, so that a step's groups can be trained as they arrive, and
// Aggregation says what the step's total is divided by, once.
package loss

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// GRPO is the kind of objective: the clipped ratio of Shao et al. 2024 (eq. 3)
// with a divergence from a reference policy.
const GRPO = "grpo"

// The policies that a ratio can be taken to.
const (
	// Behaviour is the policy that sampled the responses.
	Behaviour = "behaviour"
	// PreviousStep is the policy one optimizer step behind the current one
	// (Lu 2025, algorithm 1, line 20).
	PreviousStep = "previous-step"
)

// Estimators of the divergence of the policy from the reference (Schulman 2020,
// "Approximating KL divergence"), with d = log π_ref - log π.
const (
	K1 = "k1" // -d
	K2 = "k2" // d²/2
	K3 = "k3" // e^d - 1 - d
)

// Config is the [loss] section of a run.
type Config struct {
	// Kind of objective: "grpo".
	Kind string `toml:"kind"`
	// EpsilonLow bounds the ratio at 1 - EpsilonLow where the advantage is negative.
	EpsilonLow float64 `toml:"epsilon_low"`
	// EpsilonHigh bounds the ratio at 1 + EpsilonHigh where the advantage is positive.
	EpsilonHigh float64 `toml:"epsilon_high"`
	// Beta weighs the divergence from the reference; 0 needs no reference.
	Beta float64 `toml:"beta"`
	// KL is the estimator of that divergence: "k1", "k2" or "k3".
	KL string `toml:"kl"`
	// Aggregation of the tokens' losses: "sequence-mean", "token-mean" or "constant".
	Aggregation Aggregation `toml:"aggregation"`
	// Constant length that aggregation "constant" divides by; 0 takes the
	// largest number of tokens a response may have.
	Constant int `toml:"constant"`
	// Advantage of a response within its group: "group" or "group-mean".
	Advantage string `toml:"advantage"`
	// OldPolicy that the ratio is taken to: "behaviour" or "previous-step".
	OldPolicy string `toml:"old_policy"`
}

// Default is GRPO without a reference, averaged over a step's tokens.
func Default() Config {
	return Config{
		Kind: GRPO, EpsilonLow: 0.2, EpsilonHigh: 0.2, KL: K3,
		Aggregation: TokenMean, Advantage: GroupAdvantage, OldPolicy: Behaviour,
	}
}

// Validate reports all faults of c together, each beginning with its key.
func (c *Config) Validate() error {
	return errors.Join(
		oneOf("kind", c.Kind, GRPO),
		within("epsilon_low", c.EpsilonLow, 1, "0 to 1"),
		within("epsilon_high", c.EpsilonHigh, math.MaxFloat64, "0 or more"),
		within("beta", c.Beta, math.MaxFloat64, "0 or more"),
		oneOf("kl", c.KL, K1, K2, K3),
		oneOf("aggregation", string(c.Aggregation), string(SequenceMean), string(TokenMean), string(Constant)),
		within("constant", float64(c.Constant), math.MaxInt32, "0 or more"),
		oneOf("advantage", c.Advantage, GroupAdvantage, GroupMeanAdvantage),
		oneOf("old_policy", c.OldPolicy, Behaviour, PreviousStep),
	)
}

func oneOf(key, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("%s is %q, expected \"%s\"", key, value, strings.Join(allowed, `", "`))
}

// within refuses values outside [0, most] and NaN.
func within(key string, value, most float64, expected string) error {
	if value >= 0 && value <= most {
		return nil
	}
	return fmt.Errorf("%s is %v, expected %s", key, value, expected)
}
