package reward

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/rollout"
)

// Term is a kind of reward with the keys of all kinds. The file of each kind declares
// its keys.
type Term struct {
	// Kind of reward: [Kinds].
	Kind string `toml:"kind"`
	ExactConfig
	RegexConfig
	MathConfig
	FormatConfig
	OverlongConfig
	RepetitionConfig
	CommandConfig
	HTTPConfig
	CallConfig
}

// kinds returns the constructors of all kinds of reward. To add a kind, write a file for it
// and add a line here; if it has keys, embed them in Term.
func kinds() []func() Kind {
	return []func() Kind{
		exactKind,
		prefixKind,
		mathKind,
		gsm8kKind,
		regexKind,
		formatKind,
		overlongKind,
		repetitionKind,
		commandKind,
		httpKind,
		sumKind,
	}
}

// Kinds returns all kinds of reward.
func Kinds() (list []Kind) {
	for _, kind := range kinds() {
		list = append(list, kind())
	}
	return list
}

// Kind is a kind of reward.
type Kind struct {
	Name  string   // the value of key "kind"
	About string   // what it does: the rest of a sentence that begins with the name
	keys  []string // keys besides "kind"
	// defaults sets the keys whose default is not zero; nil if there are none.
	defaults func(t *Term)
	// example sets the keys that have no default; nil if there are none.
	example func(r *Rule)
	// check reports the faults of the keys; nil if every value is fine.
	check func(v *validation, r *Rule)
	// build returns the reward of a valid rule for responses of at most maxTokens.
	build func(r *Rule, maxTokens int) (Func, error)
	// lacks reports whether the rule compares with an answer and this one is missing;
	// nil for kinds that never compare.
	lacks func(r *Rule, answer json.RawMessage) bool
	// refuses returns why the rule does not find the prompt's own answer right, or "" if it
	// does; nil for kinds that do not compare as mathematics.
	refuses func(r *Rule, p *rollout.Prompt) string
}

// kindOf returns the kind of that name, or an empty Kind.
func kindOf(name string) Kind {
	for _, kind := range kinds() {
		if k := kind(); k.Name == name {
			return k
		}
	}
	return Kind{}
}

// names returns the names of kinds.
func names(kinds []Kind) (list []string) {
	for _, k := range kinds {
		list = append(list, k.Name)
	}
	return list
}

// Example returns a valid rule of the kind, with default values where possible.
func (k Kind) Example() Rule {
	r := DefaultRule()
	r.Kind = k.Name
	if k.example != nil {
		k.example(&r)
	}
	return r
}

// valid returns an error with the faults of a term of the kind, whose check must not be nil. maxTokens is the
// length limit of responses.
func (k Kind) valid(t Term, maxTokens int) error {
	v := &validation{maxTokens: maxTokens}
	k.check(v, &Rule{Term: t})
	if err := errors.Join(v.faults...); err != nil {
		return fmt.Errorf("new %s reward: %w", k.Name, err)
	}
	return nil
}

// defaultTerm returns a term without a kind.
func defaultTerm() (t Term) {
	for _, k := range Kinds() {
		if k.defaults != nil {
			k.defaults(&t)
		}
	}
	return t
}

// Takes reports whether the term's kind uses key.
func (t *Term) Takes(key string) bool {
	return key == "kind" || slices.Contains(kindOf(t.Kind).keys, key)
}

// Unused returns the message of a KeyFault about a key that is set but that the term's
// kind does not use.
func (t *Term) Unused(key string) string {
	var users []string
	for _, k := range Kinds() {
		if slices.Contains(k.keys, key) {
			users = append(users, k.Name)
		}
	}
	return fmt.Sprintf(`is set, but does not apply to kind %q. It applies to "%s"`, t.Kind,
		strings.Join(users, `" and "`))
}
