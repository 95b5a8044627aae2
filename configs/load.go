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
	for i, file := range files {
		document, err := os.ReadFile(file)
		if err != nil {
			if key, _, is := strings.Cut(file, "="); is && strings.Contains(key, ".") {
				err = fmt.Errorf("%w, expected -set %s for a setting", err, file)
			}
			faults = append(faults, fmt.Errorf("read configuration: %w", err))
			continue
		}
		entries, err := parse(file, document)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		faults = append(faults, r.merge(entries, i+1)...)
	}
	for _, setting := range settings {
		e, err := r.parseSetting(setting)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		faults = append(faults, r.merge(e, len(files)+1)...)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	if len(r.Reward.Sources) > 0 && r.origins["reward.kind"].File == "" {
		r.Reward.Kind = "" // a usual reward for what no source names would be a guess
	}
	if r.Inference.Kind != Embedded && r.origins["inference.instances"].File == "" {
		r.Inference.Instances = 0 // servers sample alone unless told otherwise
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

// merge puts the entries of a layer on top of what is there.
func (r *Resolved) merge(entries []entry, layer int) []error {
	var faults []error
	unknown := "" // a table that is reported, whose keys are not
	for _, e := range entries {
		if !grow(&r.Config, e.path) {
			return append(faults, &Fault{e.name, fmt.Sprintf("%s is one name too many, expected %d at most", joinKey(e.path), mostNames)})
		}
	}
	all := shapeOf(&r.Config)
	known := all.keys()
	for _, e := range entries {
		key := joinKey(e.path)
		if unknown != "" && strings.HasPrefix(key, unknown+".") {
			continue
		}
		at := slices.Index(known, key)
		switch {
		case e.table && at >= 0 || !e.table && slices.Contains(all.tables, key):
			faults = append(faults, &Fault{e.name, wrongShape(e)})
			unknown = key
		case e.table:
			if !slices.Contains(all.tables, key) {
				message := fmt.Sprintf("unknown section %s, did you mean %s?", key, nearestKey(key, all.tables))
				faults = append(faults, &Fault{e.name, message})
				unknown = key
				continue
			}
			r.origins[key] = e.origin
		case at < 0:
			if fault, gone := checkRemoved(e); gone {
				if fault != nil {
					faults = append(faults, fault)
				}
				continue
			}
			message := fmt.Sprintf("unknown key %s, did you mean %s?", key, nearestKey(key, known))
			faults = append(faults, &Fault{e.name, message})
		default:
			if err := assign(all.fields[at].value, e.value); err != nil {
				faults = append(faults, &Fault{e.origin, key + ": " + err.Error()})
				continue
			}
			e.origin.layer = layer
			e.origin.again = r.origins[key].layer > 0
			r.origins[key] = e.origin
		}
	}
	return faults
}

func wrongShape(e entry) string {
	key := joinKey(e.path)
	if e.table {
		return fmt.Sprintf("%s is a value, expected %s = …", key, key)
	}
	return fmt.Sprintf("%s is a section, expected %s.<key> = …", key, key)
}

// parseSetting reads section.key=value. The value is TOML; where the key is a
// string it may also be the bare text.
func (r *Resolved) parseSetting(setting string) ([]entry, error) {
	name, text, ok := cutSetting(setting)
	name, text = strings.TrimSpace(name), strings.TrimSpace(text)
	origin := Origin{File: setOrigin}
	if !ok || name == "" || !utf8.ValidString(setting) || strings.ContainsFunc(name, unicode.IsControl) {
		return nil, &Fault{origin, fmt.Sprintf("%q, expected section.key=value", setting)}
	}
	var document map[string]any
	err := toml.Unmarshal([]byte("value = "+text), &document)
	value := document["value"]
	if len(document) > 1 {
		value, err = nil, errors.New("more than a value")
	}
	path := pathOf(name)
	if !grow(&r.Config, path) {
		return nil, &Fault{origin, fmt.Sprintf("%s is one name too many, expected %d at most", name, mostNames)}
	}
	all := shapeOf(&r.Config)
	key := joinKey(path)
	at := slices.Index(all.keys(), key)
	if at < 0 {
		if err != nil { // the key is what is wrong
			value = text
		}
		return appendEntries(nil, path, value, origin, origin), nil
	}
	t := all.fields[at].value.Type()
	_, isText := value.(string)
	_, isList := value.([]any)
	if !isText && (t.Kind() == reflect.String || err != nil && t == reflect.TypeFor[[]string]() && !isList) {
		value, err = text, nil
	}
	if err != nil {
		return nil, &Fault{origin, fmt.Sprintf("%s: expected %s, found %q", key, kindName(t), text)}
	}
	return appendEntries(nil, path, value, origin, origin), nil
}

// cutSetting cuts key=value; a quoted part of the key may have an equals sign.
func cutSetting(setting string) (key, value string, ok bool) {
	var open rune // the quotation mark that is not closed yet
	escaped := false
	for i, r := range setting {
		switch {
		case escaped:
			escaped = false
		case r == '\\' && open == '"':
			escaped = true
		case r == open:
			open = 0
		case open == 0 && (r == '"' || r == '\''):
			open = r
		case open == 0 && r == '=':
			return setting[:i], setting[i+1:], true
		}
	}
	return setting, "", false
}

// pathOf are the parts of a key as TOML reads it.
func pathOf(key string) []string {
	var document map[string]any
	if toml.Unmarshal([]byte(key+" = true"), &document) != nil {
		return strings.Split(key, ".") // no key of ours, to be reported as it is
	}
	var path []string
	var v any = document
	for {
		table, ok := v.(map[string]any)
		if !ok || len(table) != 1 {
			return path
		}
		for part, inner := range table {
			path, v = append(path, part), inner
		}
	}
}
