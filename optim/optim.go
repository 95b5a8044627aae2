// Package optim updates weights: AdamW, gradient clipping, learning-rate schedules.
//
// Gradients arrive as unnormalised sums over a step. The update applies one factor to them,
// which combines the divisor and the clip.
package optim

import (
	"errors"
	"fmt"
	"math"
)

// The constants of AdamW that no run changes.
const (
	Beta1 = 0.9  // decay of the gradient's running mean
	Eps   = 1e-8 // keeps the update finite if the gradient has been zero
)

// Config sets how weights are updated.
type Config struct {
	// Peak learning rate.
	LR float64 `toml:"lr"`
	// Learning-rate schedule after the warm-up: "constant", "linear" or "cosine".
	Schedule string `toml:"schedule"`
	// Number of steps over which the learning rate rises to LR.
	Warmup int `toml:"warmup" unit:"steps"`
	// Learning rate at the end of the decay, as a fraction of LR.
	MinLR float64 `toml:"min_lr" unit:"fraction"`
	// Decay rate of the running mean of squared gradients.
	Beta2 float64 `toml:"beta2"`
	// Weight decay of matrices, decoupled from the gradient.
	WeightDecay float64 `toml:"weight_decay"`
	// Maximum global gradient norm; 0 does not clip.
	ClipGrad float64 `toml:"clip_grad"`
}

// Default returns AdamW at a constant rate of 1e-6 with the gradient's norm clipped at 1.
func Default() Config {
	return Config{LR: 1e-6, Schedule: Constant, Beta2: 0.999, ClipGrad: 1}
}

// Validate reports all faults of c together, each beginning with its key.
func (c *Config) Validate() error {
	var faults []error
	expect := func(ok bool, key string, value any, expected string) {
		if !ok {
			faults = append(faults, fmt.Errorf("%s is %v, expected %s", key, value, expected))
		}
	}
	nonNegative := func(f float64) bool { return f >= 0 && f <= math.MaxFloat32 } // and a finite float32
	expect(nonNegative(c.LR), "lr", c.LR, "0 or more")
	expect(c.Schedule == Constant || c.Schedule == Linear || c.Schedule == Cosine,
		"schedule", fmt.Sprintf("%q", c.Schedule), `"constant", "linear" or "cosine"`)
	expect(c.Warmup >= 0, "warmup", c.Warmup, "0 or more steps")
	expect(c.MinLR >= 0 && c.MinLR <= 1, "min_lr", c.MinLR, "a fraction of lr, 0 to 1")
	expect(c.Beta2 >= 0 && float32(c.Beta2) < 1, "beta2", c.Beta2, "0 or more and less than 1")
	expect(nonNegative(c.WeightDecay), "weight_decay", c.WeightDecay, "0 or more")
	expect(nonNegative(c.ClipGrad), "clip_grad", c.ClipGrad, "0 or more")
	return errors.Join(faults...)
}
