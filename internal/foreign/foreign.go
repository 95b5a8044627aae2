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
	Setting
	names []string
}

// Lookup returns the meaning of a setting of another program, such as "learning_rate",
// "--learning-rate" or "actor_rollout_ref.actor.optim.lr". The longest end of the path that
// has a meaning counts.
func Lookup(name string) (Setting, bool) {
	name = normal(name)
	for _, table := range tables() {
		for end, more := name, true; more; _, end, more = strings.Cut(end, ".") {
			if at := slices.IndexFunc(table, func(r row) bool { return r.has(end) }); at >= 0 {
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

// has reports whether the row gives a name.
func (r *row) has(name string) bool {
	return slices.ContainsFunc(r.names, func(known string) bool {
		begin, open := strings.CutSuffix(known, "*")
		return known == name || open && strings.HasPrefix(name, begin)
	})
}

// normal returns a name without the marks of a command line, as in --learning-rate and
// +trainer.x.
func normal(name string) string {
	name = strings.TrimLeft(strings.ToLower(strings.Trim(name, `"' `)), "-+~")
	return strings.ReplaceAll(name, "-", "_")
}
