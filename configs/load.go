package configs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
)

// Resolved is a configuration whose files and settings are merged.
type Resolved struct {
	Config
	origins map[string]Origin // of the keys that are no defaults
}

// Load merges files, left to right, and then settings of the form
// section.key=value. It reports all faults together, each a *Fault; Validate
// checks the values themselves.
func Load(files, settings []string) (*Resolved, error) {
	r := &Resolved{Config: Default(), origins: map[string]Origin{}}
	var faults []error
	for _, file := range files {
		document, err := os.ReadFile(file)
		if err != nil {
			faults = append(faults, fmt.Errorf("read configuration: %w", err))
			continue
		}
		entries, err := parse(file, document)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		faults = append(faults, r.merge(entries)...)
	}
	for _, setting := range settings {
		e, err := r.parseSetting(setting)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		faults = append(faults, r.merge(e)...)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	if r.Run.Name == "" && len(files) > 0 {
		r.Run.Name = strings.TrimSuffix(filepath.Base(files[0]), filepath.Ext(files[0]))
	}
	if r.Run.Dir == "" && r.Run.Name != "" {
		r.Run.Dir = filepath.Join("runs", r.Run.Name)
	}
	return r, nil
}

// Origin says who set key.
func (r *Resolved) Origin(key string) Origin { return r.origins[key] }

// merge puts entries on top of what is there.
func (r *Resolved) merge(entries []entry) []error {
	all := fields(&r.Config)
	known := Keys()
	tables := sections(known)
	var faults []error
	unknown := "" // a table that is reported, whose keys are not
	for _, e := range entries {
		if unknown != "" && strings.HasPrefix(e.key, unknown+".") {
			continue
		}
		at := slices.Index(known, e.key)
		switch {
		case e.table && at >= 0 || !e.table && slices.Contains(tables, e.key):
			faults = append(faults, &Fault{e.name, wrongShape(e)})
			unknown = e.key
		case e.table:
			if !slices.Contains(tables, e.key) {
				message := fmt.Sprintf("unknown section %s, did you mean %s?", e.key, nearestKey(e.key, tables))
				faults = append(faults, &Fault{e.name, message})
				unknown = e.key
			}
		case at < 0:
			message := fmt.Sprintf("unknown key %s, did you mean %s?", e.key, nearestKey(e.key, known))
			faults = append(faults, &Fault{e.name, message})
		default:
			if err := assign(all[at].value, e.value); err != nil {
				faults = append(faults, &Fault{e.origin, e.key + ": " + err.Error()})
				continue
			}
			r.origins[e.key] = e.origin
		}
	}
	return faults
}

func wrongShape(e entry) string {
	if e.table {
		return fmt.Sprintf("%s is a value, expected %s = …", e.key, e.key)
	}
	return fmt.Sprintf("%s is a section, expected %s.<key> = …", e.key, e.key)
}

// parseSetting reads section.key=value. The value is TOML; where the key is a
// string it may also be the bare text.
func (r *Resolved) parseSetting(setting string) ([]entry, error) {
	key, text, ok := strings.Cut(setting, "=")
	key, text = strings.TrimSpace(key), strings.TrimSpace(text)
	origin := Origin{File: setOrigin}
	if !ok || key == "" || !utf8.ValidString(setting) || strings.ContainsFunc(key, unicode.IsControl) {
		return nil, &Fault{origin, fmt.Sprintf("%q, expected section.key=value", setting)}
	}
	var document map[string]any
	err := toml.Unmarshal([]byte("value = "+text), &document)
	value := document["value"]
	if len(document) > 1 {
		value, err = nil, errors.New("more than a value")
	}
	at := slices.Index(Keys(), key)
	if at < 0 {
		if err != nil { // the key is what is wrong
			value = text
		}
		return appendEntries(nil, key, value, origin, origin), nil
	}
	t := fields(&r.Config)[at].value.Type()
	_, isText := value.(string)
	_, isList := value.([]any)
	if !isText && (t.Kind() == reflect.String || err != nil && t == reflect.TypeFor[[]string]() && !isList) {
		value, err = text, nil
	}
	if err != nil {
		return nil, &Fault{origin, fmt.Sprintf("%s: expected %s, found %q", key, kindName(t), text)}
	}
	return appendEntries(nil, key, value, origin, origin), nil
}
