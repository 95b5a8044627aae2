package configs

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/reward"
)

// field is one key of a configuration and its value, which can be set.
type field struct {
	key   string // section.name
	value reflect.Value
	term  *reward.Term // the reward term it belongs to; nil for none
	idle  bool         // the kind of the term does not use the key
}

// shape lists the keys and tables of a configuration, in the order of the struct.
type shape struct {
	fields []field
	tables []string // keys of all tables, nested ones included
}

// shapeOf returns the shape of c, including the named tables that exist.
func shapeOf(c *Config) *shape {
	s := &shape{}
	s.add(nil, reflect.ValueOf(c).Elem(), nil)
	return s
}

// add adds the fields of the struct v at path. They belong to term, or to v itself if v is a reward.Term.
func (s *shape) add(path []string, v reflect.Value, term *reward.Term) {
	if t, ok := v.Addr().Interface().(*reward.Term); ok {
		term = t
	}
	for i := range v.NumField() {
		info := v.Type().Field(i)
		name, _, _ := strings.Cut(info.Tag.Get("toml"), ",")
		if info.Anonymous && name == "" {
			s.add(path, v.Field(i), term)
			continue
		}
		if name == "" || name == "-" {
			continue
		}
		inner := append(slices.Clone(path), name)
		switch info.Type.Kind() {
		case reflect.Struct:
			s.tables = append(s.tables, joinKey(inner))
			s.add(inner, v.Field(i), nil)
		case reflect.Map:
			s.tables = append(s.tables, joinKey(inner))
			for _, k := range sortedNames(v.Field(i)) {
				element := append(slices.Clone(inner), k)
				s.tables = append(s.tables, joinKey(element))
				s.add(element, v.Field(i).MapIndex(reflect.ValueOf(k)).Elem(), nil)
			}
		default:
			s.fields = append(s.fields, field{joinKey(inner), v.Field(i), term, term != nil && !term.Takes(name)})
		}
	}
}

// sortedNames returns the sorted keys of a map of named tables.
func sortedNames(table reflect.Value) []string {
	var names []string
	for _, k := range table.MapKeys() {
		names = append(names, k.String())
	}
	slices.Sort(names)
	return names
}

// maxNames is the maximum number of named tables in one table.
const maxNames = 256

// addTables creates the named tables on a path. It returns false if there are too many.
func addTables(c *Config, path []string) bool {
	v := reflect.ValueOf(c).Elem()
	for i := 0; i < len(path) && v.Kind() == reflect.Struct; i++ {
		v = place(v, path[i])
		if v.Kind() != reflect.Map || i+1 == len(path) {
			continue
		}
		i++ // the next part is the name of a table in the map
		name := reflect.ValueOf(path[i])
		if !v.MapIndex(name).IsValid() {
			if v.Len() >= maxNames {
				return false
			}
			if v.IsNil() {
				v.Set(reflect.MakeMap(v.Type()))
			}
			v.SetMapIndex(name, element(v.Type().Elem()))
		}
		v = v.MapIndex(name).Elem()
	}
	return true
}

// place returns the field of a struct, or of a struct embedded in it, with the given name.
func place(v reflect.Value, name string) reflect.Value {
	for i := range v.NumField() {
		info := v.Type().Field(i)
		tag, _, _ := strings.Cut(info.Tag.Get("toml"), ",")
		if info.Anonymous && tag == "" {
			if found := place(v.Field(i), name); found.IsValid() {
				return found
			}
		} else if tag == name {
			return v.Field(i)
		}
	}
	return reflect.Value{}
}

// element returns a new named table of the given type.
func element(t reflect.Type) reflect.Value {
	switch t {
	case reflect.TypeFor[*reward.Part]():
		part := reward.DefaultPart()
		return reflect.ValueOf(&part)
	case reflect.TypeFor[*reward.Rule]():
		rule := reward.DefaultRule()
		return reflect.ValueOf(&rule)
	}
	panic(fmt.Sprintf("configs: unknown table type %s", t))
}

// keys returns the keys of all fields.
func (s *shape) keys() []string {
	var keys []string
	for _, f := range s.fields {
		keys = append(keys, f.key)
	}
	return keys
}

// Keys returns all keys that a run can set, in the order of a resolved run, except for
// those in named tables.
func Keys() []string {
	var c Config
	return shapeOf(&c).keys()
}

// joinKey returns a TOML key, with parts quoted if necessary.
func joinKey(path []string) string {
	var out strings.Builder
	for i, part := range path {
		if i > 0 {
			out.WriteByte('.')
		}
		if part == "" || strings.ContainsFunc(part, func(r rune) bool { return !isBare(r) }) {
			part = quote(part)
		}
		out.WriteString(part)
	}
	return out.String()
}

// isBare reports whether a TOML key with r needs no quotes.
func isBare(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-'
}

// lastDot returns the index of the dot before a key's last part, or -1 if it has one part.
func lastDot(key string) int {
	dot, quoted := -1, false
	for i := 0; i < len(key); i++ {
		switch key[i] {
		case '\\':
			if quoted {
				i++
			}
		case '"':
			quoted = !quoted
		case '.':
			if !quoted {
				dot = i
			}
		}
	}
	return dot
}

// parent returns the table of a key.
func parent(key string) string { return key[:max(0, lastDot(key))] }
