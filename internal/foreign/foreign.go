// Package foreign translates the names of settings in TRL, verl, OpenRLHF, prime-rl, Hugging Face
// Trainer and vLLM to configuration keys.
package foreign

import (
	_ "embed"
	"slices"
	"strings"
)

// settings lists the known settings; its first lines describe the format.
//
//go:embed settings.txt
var settings string

// Setting is the counterpart of another program's setting.
type Setting struct {
	// Key is the configuration key. It is empty if there is none.
	Key string
	// Note says how the value differs or, without a key, why there is none. It may be empty.
	Note string
}

// String returns advice for an error about an unknown key, such as "use train.lr".
func (s Setting) String() string {
	switch {
	case s.Key == "":
		return s.Note
	case s.Note == "":
		return "use " + s.Key
	}
	return "use " + s.Key + ", " + s.Note
}

// row maps several names to one Setting.
type row struct {
	Setting
	names []string // normalized; a name that ends in * matches every name with this beginning
}

// Lookup returns the meaning of a setting of another program, such as "learning_rate",
// "--learning-rate" or "actor_rollout_ref.actor.optim.lr". Within a table, the longest suffix of
// the dotted path that the table lists counts.
func Lookup(name string) (Setting, bool) {
	name = normalize(name)
	for _, table := range tables() {
		for suffix, more := name, true; more; _, suffix, more = strings.Cut(suffix, ".") {
			if at := slices.IndexFunc(table, func(r row) bool { return r.has(suffix) }); at >= 0 {
				return table[at].Setting, true
			}
		}
	}
	return Setting{}, false
}

// tables parses settings. An earlier table takes precedence.
func tables() (all [][]row) {
	for part := range strings.SplitSeq(settings, "\n---\n") {
		var table []row
		for line := range strings.Lines(part) {
			indented := line[0] == ' '
			line = strings.TrimSpace(line)
			switch {
			case line == "" || line[0] == '#':
			case indented:
				last := &table[len(table)-1]
				last.names = append(last.names, strings.Fields(line)...)
			default:
				key, note, _ := strings.Cut(line, ": ")
				if key == "none" {
					key = ""
				}
				table = append(table, row{Setting: Setting{key, note}})
			}
		}
		all = append(all, table)
	}
	return all
}

// has reports whether the row's names match name.
func (r *row) has(name string) bool {
	return slices.ContainsFunc(r.names, func(known string) bool {
		prefix, wildcard := strings.CutSuffix(known, "*")
		return known == name || wildcard && strings.HasPrefix(name, prefix)
	})
}

// normalize returns name in lower case with underscores for hyphens, and without quotes or the
// prefixes of command lines, as in --learning-rate and +trainer.x.
func normalize(name string) string {
	name = strings.TrimLeft(strings.ToLower(strings.Trim(name, `"' `)), "-+~")
	return strings.ReplaceAll(name, "-", "_")
}
