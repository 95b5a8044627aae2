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

// maxDocument is the maximum size of a file in bytes, 1 MiB.
const maxDocument = 1 << 20

// maxFaults is the maximum number of faults that are reported together.
const maxFaults = 20

// join returns the first faults as one error.
func join(faults []error) error {
	if len(faults) > maxFaults {
		more := fmt.Errorf("these are the first %d errors; others follow", maxFaults)
		faults = append(faults[:maxFaults:maxFaults], more)
	}
	return errors.Join(faults...)
}

// Load merges files from left to right and then settings of the form
// section.key=value. It reports the first faults together: each is a *Fault, or an error of
// reading a file. It does not check values; Validate does.
func Load(files, settings []string) (*Resolved, error) {
	r := &Resolved{Config: Default(), origins: map[string]Origin{}}
	if faults := r.load(files, settings); len(faults) > 0 {
		return nil, join(faults)
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

// load merges files and settings. It returns the faults; after more than maxFaults it stops.
func (r *Resolved) load(files, settings []string) (faults []error) {
	for i, file := range files {
		if len(faults) > maxFaults {
			return faults
		}
		document, err := filetype.ReadInput(file, maxDocument)
		if err != nil {
			if key, _, is := strings.Cut(file, "="); is && strings.Contains(key, ".") {
				err = fmt.Errorf("%w; pass a setting as -set %s", err, file)
			}
			faults = append(faults, fmt.Errorf("read configuration: %w", err))
			continue
		}
		entries, err := parse(file, document)
		m := merger{resolved: r, layer: i + 1}
		if full := m.addTables(entries); full != nil {
			faults = append(faults, full)
			continue
		}
		m.listKeys()
		m.merge(entries)
		faults = append(faults, m.faults...)
		if err != nil {
			faults = append(faults, err)
		}
	}
	if len(settings) > maxKeys {
		return append(faults, &Fault{Origin{File: setOrigin},
			fmt.Sprintf("%d settings, expected at most %d", len(settings), maxKeys)})
	}
	m := merger{resolved: r, layer: len(files) + 1, faults: faults}
	var parsed []setting
	for _, text := range settings {
		s, err := parseSetting(text)
		if err == nil {
			err = m.addTables(s.entries())
		}
		s.fault = err
		parsed = append(parsed, s)
	}
	m.listKeys()
	for _, s := range parsed {
		if len(m.faults) > maxFaults {
			break
		}
		if err := m.typed(&s); err != nil {
			m.faults = append(m.faults, err)
			continue
		}
		m.merge(s.entries())
	}
	return m.faults
}

// Origin returns where a key was set.
func (r *Resolved) Origin(key string) Origin { return r.origins[key] }

// merge overrides the configuration with entries. It stops after more than maxFaults.
func (m *merger) merge(entries []entry) {
	for _, e := range entries {
		if len(m.faults) > maxFaults {
			break
		}
		m.entry(e)
	}
	m.reportTable()
	m.rejected = ""
	m.pendingTable, m.pendingNear = "", false
}

// addTables creates the named tables on the paths of entries. It returns a fault if there are too many.
func (m *merger) addTables(entries []entry) error {
	for _, e := range entries {
		if !addTables(&m.resolved.Config, e.path) {
			return &Fault{e.name, tooManyNames(joinKey(e.path))}
		}
	}
	return nil
}

// listKeys lists the keys, which takes long if there are many named tables. Call it after addTables.
func (m *merger) listKeys() {
	m.all = shapeOf(&m.resolved.Config)
	m.known = m.all.keys()
	m.places = make(map[string]int, len(m.known))
	for i, key := range m.known {
		m.places[key] = i
	}
}

// merger merges a layer: a file, or all settings.
type merger struct {
	resolved *Resolved
	layer    int
	all      *shape
	known    []string       // keys
	places   map[string]int // index in all.fields of each key
	faults   []error
	rejected string // last table reported as wrong; faults of its keys are not reported too

	// An unknown table is reported after its keys, and only if messages about these do not say more.
	pending      *Fault // message about the last unknown table; nil if it is not to be reported
	pendingTable string // key of the last unknown table; may stay set when pending is nil
	pendingNear  bool   // the last unknown table resembles a known one
}

// entry merges one entry.
func (m *merger) entry(e entry) {
	key := joinKey(e.path)
	if m.rejected != "" && strings.HasPrefix(key, m.rejected+".") {
		return
	}
	at, known := m.places[key]
	switch {
	case e.table && known || !e.table && slices.Contains(m.all.tables, key):
		m.faults = append(m.faults, &Fault{e.name, wrongShape(e)})
		m.rejected = key
	case e.table:
		m.header(e, key)
	case !known:
		m.unknown(e, key)
	default:
		m.value(e, key, m.all.fields[at].value)
	}
}

// header merges the header of a table.
func (m *merger) header(e entry, key string) {
	if m.pending != nil && strings.HasPrefix(key, m.pendingTable+".") {
		m.pending = nil // its inner tables are reported instead
	}
	m.reportTable()
	if slices.Contains(m.all.tables, key) {
		m.resolved.origins[key] = e.origin
		return
	}
	message, near := unknownSection(key, m.all)
	m.pending, m.pendingTable, m.pendingNear = &Fault{e.name, message}, key, near
}

// reportTable reports the last unknown table, unless messages about its keys say more.
func (m *merger) reportTable() {
	if m.pending != nil {
		m.faults = append(m.faults, m.pending)
		m.pending = nil
	}
}

// unknown reports a key that does not exist.
func (m *merger) unknown(e entry, key string) {
	if gone, fault := checkRemoved(e); gone {
		if fault != nil {
			m.faults = append(m.faults, fault)
		}
		return
	}
	if m.pendingTable != "" && strings.HasPrefix(key, m.pendingTable+".") {
		_, theirs := foreign.Lookup(key)
		_, similar := nearKey(key, m.known)
		if !theirs && (m.pendingNear || !similar) {
			return // the message about the table is enough
		}
		m.pending = nil
	}
	m.faults = append(m.faults, &Fault{e.name, unknownKey(key, m.all)})
}

// value stores the value of a known key in place, its field.
func (m *merger) value(e entry, key string, place reflect.Value) {
	if err := assign(place, e.value); err != nil {
		m.faults = append(m.faults, &Fault{e.origin, key + ": " + err.Error()})
		return
	}
	e.origin.layer = m.layer
	e.origin.again = m.resolved.origins[key].layer > 0
	m.resolved.origins[key] = e.origin
}

// tooManyNames returns the message about a key whose named table exceeds maxNames.
func tooManyNames(key string) string {
	return fmt.Sprintf("%s exceeds the limit of %d named tables", key, maxNames)
}

// wrongShape returns the message about a table given for a value, or a value given for a table.
func wrongShape(e entry) string {
	key := joinKey(e.path)
	if e.table {
		return fmt.Sprintf("%s is a value, expected %s = …", key, key)
	}
	return fmt.Sprintf("%s is a section, expected %s.<key> = …", key, key)
}

// setting is a setting of the command line.
type setting struct {
	path  []string
	text  string // the value as written
	value any    // text parsed as TOML, or text itself if the key is a string
	err   error  // why text is not TOML
	fault error  // error of the setting that does not depend on its key's type
}

// entries returns the setting's key, or the keys of its inline table.
func (s *setting) entries() []entry {
	origin := Origin{File: setOrigin}
	return appendEntries(nil, s.path, s.value, origin, origin)
}

// parseSetting parses section.key=value.
func parseSetting(text string) (setting, error) {
	name, value, ok := cutSetting(text)
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	if !ok || name == "" || !utf8.ValidString(text) || strings.ContainsFunc(name, unicode.IsControl) {
		return setting{}, &Fault{Origin{File: setOrigin},
			fmt.Sprintf("setting is %q, expected section.key=value", text)}
	}
	var document map[string]any
	s := setting{path: pathOf(name), text: value}
	if n := len(s.path); n > maxParts {
		return s, &Fault{Origin{File: setOrigin}, fmt.Sprintf("key has %d parts, expected at most %d", n, maxParts)}
	}
	assignment := []byte("value = " + value)
	if _, err := newText(setOrigin, assignment).limit(assignment); err != nil {
		return s, err
	}
	s.err = toml.Unmarshal(assignment, &document)
	s.value = document["value"]
	if len(document) > 1 { // the text has further lines with keys
		s.value, s.err = nil, errors.New("more than a value")
	}
	return s, nil
}

// typed makes the value of a setting fit its key: TOML, or bare text if the key is a string. It
// returns the setting's fault if it has one.
func (m *merger) typed(s *setting) error {
	if s.fault != nil {
		return s.fault
	}
	key := joinKey(s.path)
	i, known := m.places[key]
	if !known {
		if s.err != nil {
			s.value = s.text // merge reports the unknown key, not the value
		}
		return nil
	}
	t := m.all.fields[i].value.Type()
	_, isText := s.value.(string)
	_, isList := s.value.([]any)
	bareString := t.Kind() == reflect.String
	bareItem := s.err != nil && t == reflect.TypeFor[[]string]() && !isList // a list of one
	if !isText && (bareString || bareItem) {
		s.value, s.err = s.text, nil
	}
	if s.err != nil {
		return &Fault{Origin{File: setOrigin}, fmt.Sprintf("%s: expected %s, found %q", key, kindName(t), s.text)}
	}
	return nil
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
