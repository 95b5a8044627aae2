package configs

import (
	"reflect"
	"slices"
	"strings"
)

// field is one key of a configuration and the place of its value.
type field struct {
	key   string // section.name
	value reflect.Value
}

// fields are all keys of c, in the order of the struct.
func fields(c *Config) []field { return appendFields(nil, "", reflect.ValueOf(c).Elem()) }

func appendFields(out []field, prefix string, v reflect.Value) []field {
	for i := range v.NumField() {
		info := v.Type().Field(i)
		name, _, _ := strings.Cut(info.Tag.Get("toml"), ",")
		switch {
		case info.Anonymous && name == "":
			out = appendFields(out, prefix, v.Field(i))
		case name == "" || name == "-":
		case info.Type.Kind() == reflect.Struct:
			out = appendFields(out, prefix+name+".", v.Field(i))
		default:
			out = append(out, field{prefix + name, v.Field(i)})
		}
	}
	return out
}

// Keys are all keys that a run can set, in the order in which a resolved run
// lists them.
func Keys() []string {
	var c Config
	var keys []string
	for _, f := range fields(&c) {
		keys = append(keys, f.key)
	}
	return keys
}

// sections are the tables that keys are in, deeper ones included.
func sections(keys []string) []string {
	var out []string
	for _, key := range keys {
		for section := parent(key); section != "" && !slices.Contains(out, section); section = parent(section) {
			out = append(out, section)
		}
	}
	return out
}

// parent is the table that key is in.
func parent(key string) string {
	if i := strings.LastIndexByte(key, '.'); i >= 0 {
		return key[:i]
	}
	return ""
}

// Nearest is the one of known that begins with word, or else the one that is
// fewest typing slips from it; the first one where several are. known must not
// be empty.
func Nearest(word string, known []string) string {
	begins := func(k string) bool { return word != "" && strings.HasPrefix(k, word) }
	if at := slices.IndexFunc(known, begins); at >= 0 {
		return known[at]
	}
	best, least := "", -1
	word = word[:min(len(word), 100)] // what is longer resembles nothing
	for _, k := range known {
		if d := slips(strings.ToLower(word), strings.ToLower(k)); least < 0 || d < least {
			best, least = k, d
		}
	}
	return best
}

// nearestKey is the known key that is likeliest meant by key: one with the same
// last name, or else the one with the fewest slips.
func nearestKey(key string, known []string) string {
	var same []string
	for _, k := range known {
		if k[len(parent(k)):] == key[len(parent(key)):] {
			same = append(same, k)
		}
	}
	if len(same) > 0 {
		return Nearest(key, same)
	}
	return Nearest(key, known)
}

// slips counts the letters left out, put in, mistaken or swapped with their
// neighbour between a and b (optimal string alignment).
func slips(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := range x {
		row[0] = i + 1
		for j := range y {
			wrong := 1
			if x[i] == y[j] {
				wrong = 0
			}
			row[j+1] = min(last[j]+wrong, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(y)]
}
