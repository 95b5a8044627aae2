package loss

import (
	"fmt"
	"math"
)

// Vars are the tokens of one or more whole responses, one entry a token.
type Vars struct {
	Policy    []float32 // log-probability under the policy that is trained, natural log
	Old       []float32 // under the policy that the ratio is taken to; may be Policy itself
	Reference []float32 // under the reference; nil where beta is 0
	Advantage []float32 // of the token's response
	Weight    []float32 // of the token's response, see Aggregation.Weight
}

// Result holds sums over the tokens of one Eval, to be added over a step.
type Result struct {
	Grad     []float32 // d Loss / d Policy, one entry a token
	Loss     float64   // weighted, minimised, not divided by the step's denominator
	PG       float64   // Loss without the divergence
	KL       float64   // plain sum of the k3 estimate to the reference, 0 without one
	Clipped  float64   // number of tokens whose gradient the clip removes
	Ratio    float64   // plain sum of policy / old
	RatioMax float64   // the largest, and not a sum
	Tokens   int
}

// Objective evaluates one loss. It holds no state; calls may be concurrent.
type Objective struct {
	cfg  Config
	loss objective
}

// New makes the objective that cfg names.
func New(cfg Config) (*Objective, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("new loss: %w", err)
	}
	return &Objective{cfg: cfg, loss: objectives(cfg.Kind)}, nil
}

// Eval is the loss of v's tokens and its gradient. A token's gradient depends
// on that token alone: any split of a batch into calls gives the same bits. An
// error names the first token with a value, loss or gradient that is not finite.
func (o *Objective) Eval(v Vars) (Result, error) {
	n := len(v.Policy)
	if err := o.check(v); err != nil {
		return Result{}, err
	}
	if n == 0 {
		return Result{Grad: []float32{}}, nil
	}
	x := newExpression()
	in := vectors{policy: x.vector("policy", v.Policy), old: x.vector("old", v.Old), advantage: x.vector("advantage", v.Advantage)}
	if o.cfg.Beta > 0 {
		in.reference = x.vector("reference", v.Reference)
	}
	weight := x.vector("weight", v.Weight)
	loss, pg := o.loss(x, in, o.cfg)
	each, part := x.mul(weight, loss), x.mul(weight, pg)
	grad, values, err := x.evaluate(each, in.policy, each, part)
	if err != nil {
		return Result{}, err
	}
	r := Result{Grad: make([]float32, n), Tokens: n}
	for i, g := range grad {
		r.Grad[i] = float32(g)
		r.Loss += values[0][i]
		r.PG += values[1][i]
		if !finite(float64(r.Grad[i])) || !finite(values[0][i]) {
			return Result{}, fmt.Errorf("loss of token %d: loss %v, gradient %v, expected finite; policy %v, old %v, advantage %v",
				i, values[0][i], g, v.Policy[i], v.Old[i], v.Advantage[i])
		}
	}
	o.measure(&r, v)
	return r, nil
}

// check refuses lengths that differ and values that are not finite.
func (o *Objective) check(v Vars) error {
	if v.Reference == nil && o.cfg.Beta > 0 && len(v.Policy) > 0 {
		return fmt.Errorf("loss: no reference log-probabilities, expected them with beta %v", o.cfg.Beta)
	}
	for _, in := range []struct {
		name   string
		values []float32
	}{
		{"policy", v.Policy}, {"old", v.Old}, {"reference", v.Reference}, {"advantage", v.Advantage}, {"weight", v.Weight},
	} {
		if in.name == "reference" && in.values == nil {
			continue
		}
		if len(in.values) != len(v.Policy) {
			return fmt.Errorf("loss: %s has %d tokens, expected %d as policy has", in.name, len(in.values), len(v.Policy))
		}
		for i, f := range in.values {
			if !finite(float64(f)) {
				return fmt.Errorf("loss: %s of token %d is %v, expected a finite value", in.name, i, f)
			}
		}
	}
	return nil
}

// measure fills in what is reported and not optimised.
func (o *Objective) measure(r *Result, v Vars) {
	low, high := 1-o.cfg.EpsilonLow, 1+o.cfg.EpsilonHigh
	for i, p := range v.Policy {
		ratio := math.Exp(float64(p) - float64(v.Old[i]))
		r.Ratio += ratio
		r.RatioMax = max(r.RatioMax, ratio)
		if a := v.Advantage[i]; a > 0 && ratio > high || a < 0 && ratio < low {
			r.Clipped++
		}
		if v.Reference != nil {
			d := float64(v.Reference[i]) - float64(p)
			r.KL += math.Exp(d) - 1 - d
		}
	}
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }
