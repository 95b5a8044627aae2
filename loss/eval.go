package loss

import (
	"fmt"
	"math"

	"github.com/easyrl/easyrl/internal/exactsum"
)

// Vars holds the tokens of one or more whole responses, one entry per token.
type Vars struct {
	Policy    []float32 // natural log-probabilities under the trained policy
	Old       []float32 // log-probabilities under the policy in the ratio's denominator; may be Policy itself
	Reference []float32 // log-probabilities under the reference; nil if beta is 0
	Advantage []float32 // advantages of the tokens' responses
	Weight    []float32 // weights of the tokens' responses, see Aggregation.Weight

	// Lengths are the numbers of tokens of the responses, in order. nil if ratios are
	// per token.
	Lengths []int
	// Behaviour is the log-probability under the policy that sampled, as the sampler
	// recorded it. nil without a correction.
	Behaviour []float32
	// Recomputed is Behaviour as the trainer computes it from the same weights. It may
	// be Policy or Old itself. nil without a correction.
	Recomputed []float32
}

// Result holds sums over the tokens of one Eval, to be added over a step. The sums are exact,
// so that the split of a step into calls does not change them.
type Result struct {
	Grad      []float32    // d Loss / d Policy, one entry per token
	Loss      exactsum.Sum // weighted sum, not divided by the step's denominator
	PG        exactsum.Sum // Loss without the divergence
	KL        exactsum.Sum // unweighted sum of the k3 estimate to the reference, 0 without one
	Ratio     exactsum.Sum // unweighted sum of policy / old, per token or per response as the kind defines it
	RatioMax  float64      // maximum, not a sum
	Clipped   int          // tokens whose gradient the clip removes or whose weight it changes
	Corrected int          // tokens whose ratio of recomputed to behaviour the correction bounds or masks
	Tokens    int
}

// Objective evaluates one loss. Calls may be concurrent.
type Objective struct {
	cfg      Config
	programs programs
}

// New returns the objective of cfg.
func New(cfg Config) (*Objective, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("new loss: %w", err)
	}
	return &Objective{cfg: cfg, programs: programs{idle: map[int][]*program{}}}, nil
}

// Eval returns the loss of v's tokens and its gradient. A token's gradient depends
// only on the token, or on its response if ratios are per response: any split of a
// batch between responses gives the same bits. An error names the first token with a
// value, loss or gradient that is not finite.
func (o *Objective) Eval(v Vars) (Result, error) {
	n := len(v.Policy)
	if err := o.check(v); err != nil {
		return Result{}, err
	}
	if n == 0 {
		return Result{Grad: []float32{}}, nil
	}
	p, err := o.take(n) // given back only on success: a program that failed may be in any state
	if err != nil {
		return Result{}, err
	}
	out, err := p.run(&v)
	if err != nil {
		return Result{}, err
	}
	grads, losses, pgs := out[0], out[1], out[2]
	r := Result{Grad: make([]float32, n), Tokens: n}
	for i, g := range grads {
		r.Grad[i] = float32(g)
		r.Loss.Add(losses[i])
		r.PG.Add(pgs[i])
		if !finite(float64(r.Grad[i])) || !finite(losses[i]) {
			return Result{}, fmt.Errorf(
				"loss of token %d: loss %v, gradient %v, expected finite; policy %v, old %v, advantage %v",
				i, losses[i], g, v.Policy[i], v.Old[i], v.Advantage[i])
		}
	}
	o.give(p)
	o.measure(&r, v)
	return r, nil
}

// build returns the policy's log-probabilities and, as functions of them, the weighted loss of
// each token and that loss without the divergence.
func (o *Objective) build(x *expression) (policy, losses, pgs node) {
	in := vectors{
		policy:    x.vector("policy", func(v *Vars) []float32 { return v.Policy }),
		old:       x.vector("old", func(v *Vars) []float32 { return v.Old }),
		advantage: x.vector("advantage", func(v *Vars) []float32 { return v.Advantage }),
	}
	if o.cfg.Beta > 0 {
		in.reference = x.vector("reference", func(v *Vars) []float32 { return v.Reference })
	}
	if o.cfg.Correction != NoCorrection {
		in.recomputed = x.vector("recomputed", func(v *Vars) []float32 { return v.Recomputed })
		in.behaviour = x.vector("behaviour", func(v *Vars) []float32 { return v.Behaviour })
	}
	weight := x.vector("weight", func(v *Vars) []float32 { return v.Weight })
	loss, pg := total(x, in, o.cfg)
	return in.policy, x.mul(weight, loss), x.mul(weight, pg)
}

// check rejects missing vectors, vectors of different lengths and values that are not
// finite.
func (o *Objective) check(v Vars) error {
	if v.Reference == nil && o.cfg.Beta > 0 && len(v.Policy) > 0 {
		return fmt.Errorf("loss: beta is %v, but reference log-probabilities are missing", o.cfg.Beta)
	}
	corrected := o.cfg.Correction != NoCorrection
	if corrected && len(v.Policy) > 0 && (v.Recomputed == nil || v.Behaviour == nil) {
		return fmt.Errorf("loss: correction %q needs the sampler's log-probabilities and the trainer's recomputed ones",
			o.cfg.Correction)
	}
	for _, in := range []struct {
		name   string
		values []float32
		unused bool
	}{
		{"policy", v.Policy, false}, {"old", v.Old, false}, {"reference", v.Reference, v.Reference == nil},
		{"advantage", v.Advantage, false}, {"weight", v.Weight, false},
		{"recomputed", v.Recomputed, !corrected}, {"behaviour", v.Behaviour, !corrected},
	} {
		if in.unused {
			continue
		}
		if len(in.values) != len(v.Policy) {
			return fmt.Errorf("loss: %s has %d tokens, expected %d as in policy", in.name, len(in.values),
				len(v.Policy))
		}
		for i, f := range in.values {
			if !finite(float64(f)) {
				return fmt.Errorf("loss: %s of token %d is %v, expected a finite value", in.name, i, f)
			}
		}
	}
	return o.checkLengths(v)
}

// checkLengths rejects lengths that do not add up to the tokens, if the objective uses
// them.
func (o *Objective) checkLengths(v Vars) error {
	if !methodOf(o.cfg.Kind).perResponse {
		return nil
	}
	left := len(v.Policy) // tokens that belong to no earlier response
	for i, n := range v.Lengths {
		if n < 1 || n > left {
			return fmt.Errorf("loss: length of response %d is %d, expected 1 to %d, the tokens left", i, n, left)
		}
		left -= n
	}
	if left > 0 {
		return fmt.Errorf("loss: lengths of %d responses leave %d of %d tokens unassigned, expected 0 with kind %q",
			len(v.Lengths), left, len(v.Policy), o.cfg.Kind)
	}
	return nil
}

// finite reports whether f is neither NaN nor infinite.
func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }
