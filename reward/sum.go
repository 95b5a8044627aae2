package reward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

// Component is one term of a sum.
type Component struct {
	Name   string // of its value in Score.Parts
	Weight float64
	Func   Func
}

type sum struct{ components []Component }

// NewSum is the reward of kind "sum": the sum of its components' values, each
// times its weight. The values themselves, unweighted, are parts under their
// components' names, and a component's own parts stand below it as
// "name/part". The answer is that of the first component that has one. The
// verdict is that of the components that have one, whatever their weights: right
// where all of these are. A component without a score leaves the sum without one. The result is an
// io.Closer that closes the components.
func NewSum(components []Component) (Func, error) {
	var faults []error
	seen := map[string]bool{}
	for i, c := range components {
		switch {
		case c.Name == "" || strings.ContainsAny(c.Name, "/ \t\n"):
			faults = append(faults, fmt.Errorf("component %d is named %q, expected a name without spaces and slashes", i, c.Name))
		case seen[c.Name]:
			faults = append(faults, fmt.Errorf("component %q is there twice, expected different names", c.Name))
		case math.IsNaN(c.Weight) || math.IsInf(c.Weight, 0):
			faults = append(faults, fmt.Errorf("component %q has weight %v, expected a finite number", c.Name, c.Weight))
		case c.Func == nil:
			faults = append(faults, fmt.Errorf("component %q has no reward", c.Name))
		}
		seen[c.Name] = true
	}
	if len(components) == 0 {
		faults = append(faults, errors.New("no components, expected one or more"))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("new reward sum: %w", err)
	}
	return &sum{components}, nil
}

func (s *sum) Score(ctx context.Context, in Input) (Score, error) {
	total := Score{Parts: make(map[string]float64, len(s.components))}
	for _, c := range s.components {
		score, err := c.Func.Score(ctx, in)
		if err != nil {
			return Score{}, fmt.Errorf("component %s: %w", c.Name, err)
		}
		total.Value += c.Weight * score.Value
		total.Parts[c.Name] = score.Value
		if score.Verdict != Open && total.Verdict != Wrong {
			total.Verdict = score.Verdict
		}
		if total.Answer == "" {
			total.Answer = score.Answer
		}
		for name, value := range score.Parts {
			total.Parts[c.Name+"/"+name] = value
		}
	}
	if !finite(total.Value) {
		return Score{}, fmt.Errorf("the sum is %v, expected a finite number", total.Value)
	}
	return total, nil
}

// Close closes the components that can be closed.
func (s *sum) Close() error {
	var faults []error
	for _, c := range s.components {
		if closer, ok := c.Func.(io.Closer); ok {
			faults = append(faults, closer.Close())
		}
	}
	return errors.Join(faults...)
}
