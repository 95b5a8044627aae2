// Package foreign translates the names of settings in TRL, verl, OpenRLHF, prime-rl, Hugging Face
// Trainer and vLLM to configuration keys.
package foreign

import (
	"slices"
	"strings"
)

// Setting says what another program's setting is here.
type Setting struct {
	// Key of the configuration; empty if there is none.
	Key string
	// Note says how the value differs or, without a key, why there is none. It may be empty.
	Note string
}

// String returns advice to follow the name of an unknown key.
func (s Setting) String() string {
	switch {
	case s.Key == "":
		return s.Note
	case s.Note == "":
		return "use " + s.Key
	}
	return "use " + s.Key + ", " + s.Note
}

// row gives several names the same meaning.
type row struct {
	key, note string
	// names are separated by spaces. A dotted name matches the end of a path. A name that ends
	// in * matches every name that begins so.
	names string
}

// Lookup returns the meaning of a setting of another program, such as "learning_rate",
// "--learning-rate" or "actor_rollout_ref.actor.optim.lr". The longest end of the path that
// has a meaning counts.
func Lookup(name string) (Setting, bool) {
	name = normal(name)
	for _, table := range [][]row{append(keys(), absent()...), others()} {
		for end, more := name, true; more; _, end, more = strings.Cut(end, ".") {
			if at := slices.IndexFunc(table, func(r row) bool { return r.has(end) }); at >= 0 {
				return Setting{table[at].key, table[at].note}, true
			}
		}
	}
	return Setting{}, false
}

// has reports whether the row gives a name.
func (r *row) has(name string) bool {
	for known := range strings.FieldsSeq(r.names) {
		if begin, open := strings.CutSuffix(known, "*"); known == name || open && strings.HasPrefix(name, begin) {
			return true
		}
	}
	return false
}

// normal returns a name without the marks of a command line, as in --learning-rate and
// +trainer.x.
func normal(name string) string {
	name = strings.TrimLeft(strings.ToLower(strings.Trim(name, `"' `)), "-+~")
	return strings.ReplaceAll(name, "-", "_")
}
