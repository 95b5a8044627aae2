package configs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/internal/foreign"
	"github.com/easyrl/easyrl/internal/spelling"
)

// unknownKey returns the message about a key that does not exist: what it is called here, a
// key that it may be a misspelling of, or the keys of its section.
func unknownKey(key string, all *shape) string {
	if advice, ok := suggest(key, all.keys()); ok {
		return "unknown key " + key + advice
	}
	return fmt.Sprintf("unknown key %s, expected %s", key, keysAround(key, all))
}

// unknownSection returns the message about a section that does not exist. near reports whether the name resembles
// that of a section.
func unknownSection(name string, all *shape) (message string, near bool) {
	if meant, ok := spelling.Near(name, all.tables); ok {
		return fmt.Sprintf("unknown section %s, did you mean %s?", name, meant), true
	}
	if lastDot(name) < 0 {
		return fmt.Sprintf("unknown section %s, expected %s", name, sectionNames(all)), false
	}
	return fmt.Sprintf("unknown section %s, expected %s", name, keysAround(name, all)), false
}

// keysAround lists the keys of the section nearest above key.
func keysAround(key string, all *shape) string {
	section := parent(key)
	for section != "" && !slices.Contains(all.tables, section) {
		section = parent(section)
	}
	if section == "" {
		return "a key of " + sectionNames(all)
	}
	var names []string
	for _, k := range all.keys() {
		if parent(k) == section {
			names = append(names, last(k))
		}
	}
	if len(names) == 0 {
		return fmt.Sprintf("[%s.NAME]", section)
	}
	return fmt.Sprintf("a key of [%s]: %s", section, strings.Join(names, ", "))
}

// sectionNames lists the top-level sections.
func sectionNames(all *shape) string {
	var names []string
	for _, t := range all.tables {
		if lastDot(t) < 0 {
			names = append(names, "["+t+"]")
		}
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// suggest returns the end of a message about an unknown key: advice about the setting of
// another program, or a question that names a similar key. It returns false if it knows neither.
func suggest(key string, known []string) (string, bool) {
	if setting, ok := foreign.Lookup(key); ok {
		return ": " + setting.String(), true
	}
	if meant, ok := nearKey(key, known); ok {
		return fmt.Sprintf(", did you mean %s?", meant), true
	}
	return "", false
}

// nearKey returns the known key that key probably means. In order of preference, it has the same name in another
// section, a similar name in the same section, or a similar name in any section.
func nearKey(key string, known []string) (string, bool) {
	name, section := last(key), parent(key)
	var same, here, names []string
	for _, k := range known {
		if last(k) == name || k == strings.Trim(key, `"`) {
			same = append(same, k)
		}
		if parent(k) == section {
			here = append(here, last(k))
		}
		names = append(names, last(k))
	}
	if len(same) > 0 {
		meant, _ := spelling.Near(key, same) // the one of a similar section
		return cmp.Or(meant, same[0]), true
	}
	if meant, ok := spelling.Near(name, here); ok {
		return joined(section, meant), true
	}
	if meant, ok := spelling.Near(key, known); ok {
		return meant, true
	}
	if meant, ok := spelling.Near(name, names); ok {
		return known[slices.Index(names, meant)], true
	}
	return "", false
}

// last returns the last part of a key.
func last(key string) string { return key[lastDot(key)+1:] }

// joined returns the key of a name in a section, which may be empty.
func joined(section, name string) string {
	if section == "" {
		return name
	}
	return section + "." + name
}
