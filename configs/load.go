package configs

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"

	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/internal/foreign"
)

// Resolved is a configuration with files and settings merged.
type Resolved struct {
	Config
	origins map[string]Origin // by key; keys with default values have none
}

// maxDocument bounds a file, in bytes.
const maxDocument = 1 << 20

// Load merges files from left to right and then settings of the form
// section.key=value. It reports all faults together, each as a *Fault. It does not check
// values; Validate does.
func Load(files, settings []string) (*Resolved, error) {
	r := &Resolved{Config: Default(), origins: map[string]Origin{}}
	var faults []error
	for i, file := range files {
		document, err := filetype.ReadInput(file, maxDocument)
		if err != nil {
			if key, _, is := strings.Cut(file, "="); is && strings.Contains(key, ".") {
				err = fmt.Errorf("%w; pass a setting as -set %s", err, file)
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
		r.Reward.Kind = "" // sources without a rule get no default reward
	}
	if r.Inference.Kind != Embedded && r.origins["inference.instances"].File == "" {
		r.Inference.Instances = 0 // with servers, embedded instances are opt-in
	}
	if r.Run.Name == "" && len(files) > 0 {
		r.Run.Name = strings.TrimSuffix(filepath.Base(files[0]), filepath.Ext(files[0]))
	}
	if r.Run.Dir == "" && r.Run.Name != "" {
		r.Run.Dir = filepath.Join("runs", r.Run.Name)
	}
	return r, nil
}

// Origin returns where a key was set.
func (r *Resolved) Origin(key string) Origin { return r.origins[key] }

// merge overrides the configuration with the entries of a layer.
func (r *Resolved) merge(entries []entry, layer int) []error {
	m := merging{resolved: r, layer: layer}
	for _, e := range entries {
		if !grow(&r.Config, e.path) {
			return []error{&Fault{e.name, tooManyNames(joinKey(e.path))}}
		}
	}
	m.all = shapeOf(&r.Config)
	m.known = m.all.keys()
	for _, e := range entries {
		m.entry(e)
	}
	m.leave()
	return m.faults
}

// merging is the state of a merge.
type merging struct {
	resolved *Resolved
	layer    int
	all      *shape
	known    []string // keys
	faults   []error
	rejected string // last table reported as wrong; its keys are not reported
	strange  *Fault // about the last unknown table; nil if there is none or its keys say more
	table    string // its key
	near     bool   // it resembles a known one
}

// entry merges one entry.
func (m *merging) entry(e entry) {
	key := joinKey(e.path)
	if m.rejected != "" && strings.HasPrefix(key, m.rejected+".") {
		return
	}
	at := slices.Index(m.known, key)
	switch {
	case e.table && at >= 0 || !e.table && slices.Contains(m.all.tables, key):
		m.faults = append(m.faults, &Fault{e.name, wrongShape(e)})
		m.rejected = key
	case e.table:
		m.header(e, key)
	case at < 0:
		m.unknown(e, key)
	default:
		m.value(e, key, m.all.fields[at].value)
	}
}

// header merges the header of a table.
func (m *merging) header(e entry, key string) {
	if m.strange != nil && strings.HasPrefix(key, m.table+".") {
		m.strange = nil // its tables are reported instead
	}
	m.leave()
	if slices.Contains(m.all.tables, key) {
		m.resolved.origins[key] = e.origin
		return
	}
	message, near := unknownSection(key, m.all)
	m.strange, m.table, m.near = &Fault{e.name, message}, key, near
}

// leave reports the last unknown table, unless messages about its keys say more.
func (m *merging) leave() {
	if m.strange != nil {
		m.faults = append(m.faults, m.strange)
		m.strange = nil
	}
}

// unknown reports a key that does not exist.
func (m *merging) unknown(e entry, key string) {
	if gone, fault := checkRemoved(e); gone {
		if fault != nil {
			m.faults = append(m.faults, fault)
		}
		return
	}
	if m.table != "" && strings.HasPrefix(key, m.table+".") {
		_, theirs := foreign.Lookup(key)
		_, similar := nearKey(key, m.known)
		if !theirs && (m.near || !similar) {
			return // the message about the table is enough
		}
		m.strange = nil
	}
	m.faults = append(m.faults, &Fault{e.name, unknownKey(key, m.all)})
}

// value stores the value of a key.
func (m *merging) value(e entry, key string, place reflect.Value) {
	if err := assign(place, e.value); err != nil {
		m.faults = append(m.faults, &Fault{e.origin, key + ": " + err.Error()})
		return
	}
	e.origin.layer = m.layer
	e.origin.again = m.resolved.origins[key].layer > 0
	m.resolved.origins[key] = e.origin
}

func tooManyNames(key string) string {
	return fmt.Sprintf("%s exceeds the limit of %d named tables", key, mostNames)
}

func wrongShape(e entry) string {
	key := joinKey(e.path)
	if e.table {
		return fmt.Sprintf("%s is a value, expected %s = …", key, key)
	}
	return fmt.Sprintf("%s is a section, expected %s.<key> = …", key, key)
}

// parseSetting parses section.key=value. The value is TOML, or bare text if the key is a
// string.
func (r *Resolved) parseSetting(setting string) ([]entry, error) {
	name, text, ok := cutSetting(setting)
	name, text = strings.TrimSpace(name), strings.TrimSpace(text)
	origin := Origin{File: setOrigin}
	if !ok || name == "" || !utf8.ValidString(setting) || strings.ContainsFunc(name, unicode.IsControl) {
		return nil, &Fault{origin, fmt.Sprintf("setting is %q, expected section.key=value", setting)}
	}
	var document map[string]any
	err := toml.Unmarshal([]byte("value = "+text), &document)
	value := document["value"]
	if len(document) > 1 {
		value, err = nil, errors.New("more than a value")
	}
	path := pathOf(name)
	if !grow(&r.Config, path) {
		return nil, &Fault{origin, tooManyNames(name)}
	}
	all := shapeOf(&r.Config)
	key := joinKey(path)
	at := slices.Index(all.keys(), key)
	if at < 0 {
		if err != nil { // report the key, not the value
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

// cutSetting cuts key=value at the first equals sign outside of quotes.
func cutSetting(setting string) (key, value string, ok bool) {
	var open rune // unclosed quotation mark
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

// pathOf returns the parts of a TOML key.
func pathOf(key string) []string {
	var document map[string]any
	if toml.Unmarshal([]byte(key+" = true"), &document) != nil {
		return strings.Split(key, ".") // invalid, so it will be reported as unknown
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
