package reward

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/easyrl/easyrl/rollout"
)

// Config sets how responses are scored.
type Config struct {
	Rule
	// Rules for prompts of these data sources, by name. Prompts of other sources use the rule
	// of [reward] itself, if it has a kind.
	Sources map[string]*Rule `toml:"sources"`
}

// Rule says how a response is scored.
type Rule struct {
	Term
	// Terms of kind "sum", by name.
	Parts map[string]*Part `toml:"parts"`
}

// Default returns the exact comparison.
func Default() Config {
	c := Config{Rule: DefaultRule()}
	c.Kind = Exact
	return c
}

// DefaultRule returns a rule without a kind.
func DefaultRule() Rule { return Rule{Term: defaultTerm()} }

// For returns the rule for a data set's prompts, or nil if there is none.
func (c *Config) For(source string) *Rule {
	if rule, ok := c.Sources[source]; ok {
		return rule
	}
	if c.Kind == "" {
		return nil
	}
	return &c.Rule
}

// Lacks reports whether the rule compares with the prompt's answer and answer is
// missing: null, an empty list or, except for kinds "exact" and "prefix", empty text.
func (r *Rule) Lacks(answer json.RawMessage) bool {
	k := kindOf(r.Kind)
	return k.lacks != nil && k.lacks(r, answer)
}

// Forwards reports whether the rule sends reference answers to a program or service.
func (r *Rule) Forwards() bool {
	if r.Kind == Command || r.Kind == HTTP {
		return true
	}
	return r.Kind == Sum && slices.ContainsFunc(slices.Collect(maps.Values(r.Parts)),
		func(p *Part) bool { return p.rule().Forwards() })
}

// Verbatim reports whether the rule compares responses with an answer's text, or the JSON of
// an answer that is no text.
func (r *Rule) Verbatim() bool {
	if r.Kind == Exact || r.Kind == Prefix {
		return true
	}
	return r.Kind == Sum && slices.ContainsFunc(slices.Collect(maps.Values(r.Parts)),
		func(p *Part) bool { return p.rule().Verbatim() })
}

// Gameable returns the paths below [reward] of the keys that make the reward grade numbers that are not marked as
// answers. A policy can exploit such a reward.
func (c *Config) Gameable() (keys [][]string) {
	if c.Kind != "" {
		keys = c.Rule.gameable(nil)
	}
	for _, source := range slices.Sorted(maps.Keys(c.Sources)) {
		keys = append(keys, c.Sources[source].gameable([]string{"sources", source})...)
	}
	return keys
}

// gameable is Gameable for the rule at path.
func (r *Rule) gameable(path []string) (keys [][]string) {
	if (r.Kind == Math || r.Kind == GSM8K) && r.Marks == AnyMarks {
		return [][]string{append(slices.Clone(path), "marks")}
	}
	if r.Kind == Sum {
		for _, name := range slices.Sorted(maps.Keys(r.Parts)) {
			keys = append(keys, r.Parts[name].rule().gameable(append(slices.Clone(path), "parts", name))...)
		}
	}
	return keys
}

// Refuses returns why the rule would not accept a response that states an answer of p. Then no response to
// p can be right, except by accident. Refuses returns "" if the rule accepts at least one of p's answers,
// and for rules that do not compare answers as mathematics. p must have an answer (Lacks).
func (r *Rule) Refuses(p *rollout.Prompt) string {
	if k := kindOf(r.Kind); k.refuses != nil {
		return k.refuses(r, p)
	}
	return ""
}

// build returns the reward of a valid rule.
func (r *Rule) build(maxTokens int) (Func, error) { return kindOf(r.Kind).build(r, maxTokens) }
