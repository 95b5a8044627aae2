package reward

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Term is a kind of reward with the keys of all kinds, each in the file of its
// kind.
type Term struct {
	// Kind of reward: [Kinds].
	Kind string `toml:"kind"`
	ExactConfig
	RegexConfig
	FormatConfig
	OverlongConfig
	RepetitionConfig
	CommandConfig
	HTTPConfig
	CallConfig
}

// Kinds are all kinds of reward. A new one is a row in a file of its own and a
// line here; one with keys of its own embeds them in Term.
func Kinds() []Kind {
	return []Kind{
		exactKind(),
		prefixKind(),
		mathKind(),
		gsm8kKind(),
		regexKind(),
		formatKind(),
		overlongKind(),
		repetitionKind(),
		commandKind(),
		httpKind(),
		sumKind(),
	}
}

// Kind is a kind of reward.
type Kind struct {
	Name  string   // the value of key "kind"
	About string   // what it does, as the rest of a sentence that begins with the name
	keys  []string // that it takes besides "kind"
	// defaults sets the keys whose default is not zero; nil if there are none.
	defaults func(t *Term)
	// example sets the keys that have no default; nil if there are none.
	example func(r *Rule)
	// check reports the faults of the keys; nil if every value is fine.
	check func(v *validation, r *Rule)
	// build makes the reward of a valid rule; a response has maxTokens at most.
	build func(r *Rule, maxTokens int) (Func, error)
	// lacks reports whether the rule compares with an answer and this is none; nil
	// for a kind that never compares.
	lacks func(r *Rule, answer json.RawMessage) bool
}

// kindOf is the kind of that name; it is empty if there is none.
func kindOf(name string) Kind {
	for _, k := range Kinds() {
		if k.Name == name {
			return k
		}
	}
	return Kind{}
}

func names(kinds []Kind) (list []string) {
	for _, k := range kinds {
		list = append(list, k.Name)
	}
	return list
}

// Example is a valid rule of the kind, with defaults where it has them.
func (k Kind) Example() Rule {
	r := DefaultRule()
	r.Kind = k.Name
	if k.example != nil {
		k.example(&r)
	}
	return r
}

// valid reports the faults of a term of the kind, which has a check. A response has
// at most maxTokens tokens.
func (k Kind) valid(t Term, maxTokens int) error {
	v := &validation{maxTokens: maxTokens}
	k.check(v, &Rule{Term: t})
	if err := errors.Join(v.faults...); err != nil {
		return fmt.Errorf("new %s reward: %w", k.Name, err)
	}
	return nil
}

// defaultTerm is a term without a kind.
func defaultTerm() (t Term) {
	for _, k := range Kinds() {
		if k.defaults != nil {
			k.defaults(&t)
		}
	}
	return t
}

// Takes reports whether key says something to the term's kind.
func (t *Term) Takes(key string) bool {
	return key == "kind" || slices.Contains(kindOf(t.Kind).keys, key)
}

// Unused is the message of a Fault about a key that is set and says nothing to the
// term's kind.
func (t *Term) Unused(key string) string {
	var users []string
	for _, k := range Kinds() {
		if slices.Contains(k.keys, key) {
			users = append(users, k.Name)
		}
	}
	return fmt.Sprintf(`is set, expected none with kind %q: it is for "%s"`, t.Kind, strings.Join(users, `" and "`))
}
