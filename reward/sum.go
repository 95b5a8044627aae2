package reward

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/rollout"
)

// Sum is the name of sumKind.
const Sum = "sum"

// Part is one term of a sum.
type Part struct {
	Term
	// Factor of the part's score; 0 only logs the score.
	Weight float64 `toml:"weight"`
}

// DefaultPart is a part without a kind that counts once.
func DefaultPart() Part { return Part{Term: defaultTerm(), Weight: 1} }

// rule returns the part as a rule.
func (p *Part) rule() *Rule { return &Rule{Term: p.Term} }

func sumKind() Kind {
	return Kind{
		Name: Sum,
		About: "is the weighted sum of named parts. For pass@k, a response is right if every part that compares " +
			"with the reference answer " +
			"finds it right, whatever the weights.",
		example: func(r *Rule) { r.Parts = map[string]*Part{"right": {Term: Default().Term, Weight: 1}} },
		check:   checkSum,
		build:   buildSum,
		lacks: func(r *Rule, answer json.RawMessage) bool {
			return slices.ContainsFunc(slices.Collect(maps.Values(r.Parts)),
				func(p *Part) bool { return p.rule().Lacks(answer) })
		},
		refuses: func(r *Rule, p *rollout.Prompt) string {
			for _, name := range slices.Sorted(maps.Keys(r.Parts)) {
				if reason := r.Parts[name].rule().Refuses(p); reason != "" {
					return fmt.Sprintf("part %s: %s", name, reason)
				}
			}
			return ""
		},
	}
}

func checkSum(v *validation, r *Rule) {
	v.expect(len(r.Parts) > 0, "parts", "is empty, expected at least one [reward.parts.<name>] with kind %q", Sum)
	others := slices.DeleteFunc(Kinds(), func(k Kind) bool { return k.Name == Sum })
	for _, name := range slices.Sorted(maps.Keys(r.Parts)) {
		below := &validation{append(slices.Clone(v.path), "parts", name), v.maxTokens, nil}
		p := r.Parts[name]
		v.expect(goodName(name), "parts", "has a part named %q, expected names without spaces or slashes", name)
		below.rule(p.rule(), others)
		below.expect(finite(p.Weight), "weight", "is %v, expected a finite number", p.Weight)
		v.faults = append(v.faults, below.faults...)
	}
}

// checkNoParts reports the parts of a rule that may have none: one of another kind than Sum, or of no kind.
func checkNoParts(v *validation, r *Rule) {
	v.expect(len(r.Parts) == 0, "parts", "has %d parts, expected 0 with kind %q. Only kind %q has parts",
		len(r.Parts), r.Kind, Sum)
}

// goodName reports whether a component may have the name: it becomes part of metrics'
// names.
func goodName(name string) bool { return name != "" && !strings.ContainsAny(name, "/ \t\n") }

func buildSum(r *Rule, maxTokens int) (Func, error) {
	s := &sum{}
	for _, name := range slices.Sorted(maps.Keys(r.Parts)) {
		p := r.Parts[name]
		f, err := p.rule().build(maxTokens)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("part %s: %w", name, err), s.Close())
		}
		s.components = append(s.components, Component{Name: name, Weight: p.Weight, Func: f})
	}
	return NewSum(s.components)
}

// Component is one term of a sum.
type Component struct {
	Name   string // name of its value in Score.Parts
	Weight float64
	Func   Func
}

type sum struct{ components []Component }

// NewSum returns the reward of kind "sum": the sum of its components' values, each
// times its weight. The unweighted values are parts under their components' names. A
// component's own parts are added as "name/part". The answer is that of the first
// component with one. The verdict is Right if all components with a verdict find the
// response right, whatever their weights. The reason is that of the first component with one. There is an error
// instead of a score if a component returns one, or if the absolute value of a weighted component or of the sum
// is larger than MaxScore. The result is an io.Closer that closes the components.
func NewSum(components []Component) (Func, error) {
	var faults []error
	seen := map[string]bool{}
	for i, c := range components {
		switch {
		case !goodName(c.Name):
			faults = append(faults,
				fmt.Errorf("component %d is named %q, expected a name without spaces or slashes", i, c.Name))
		case seen[c.Name]:
			faults = append(faults, fmt.Errorf("component name %q is used twice, expected unique names", c.Name))
		case !finite(c.Weight):
			faults = append(faults, fmt.Errorf("component %q has weight %v, expected a finite number",
				c.Name, c.Weight))
		case c.Func == nil:
			faults = append(faults, fmt.Errorf("component %q has no reward", c.Name))
		}
		seen[c.Name] = true
	}
	if len(components) == 0 {
		faults = append(faults, errors.New("no components, expected at least one"))
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
		// The conversion forbids fusing with the addition below, so that all machines compute the same sum.
		weighted := float64(c.Weight * score.Value)
		if !inRange(weighted) {
			return Score{}, checkRange(fmt.Sprintf("component %s with weight %v", c.Name, c.Weight), weighted)
		}
		total.Value += weighted
		total.Parts[c.Name] = score.Value
		if score.Verdict != Open && total.Verdict != Wrong {
			total.Verdict = score.Verdict
		}
		if total.Reason == "" {
			total.Reason = score.Reason
		}
		if total.Answer == "" {
			total.Answer = score.Answer
		}
		for name, value := range score.Parts {
			total.Parts[c.Name+"/"+name] = value
		}
	}
	return total, checkRange("the sum", total.Value)
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
