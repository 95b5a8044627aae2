package configs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/internal/secret"
	"github.com/easyrl/easyrl/report"
)

// RunFile is the name of the resolved configuration in a run's folder.
const RunFile = "run.toml"

// WriteFile writes the resolved run to RunFile in dir, with passwords hidden. Running that
// file repeats the run, if it had none.
func (r *Resolved) WriteFile(dir string) error {
	var out bytes.Buffer
	if err := r.write(&out, false); err != nil {
		return err
	}
	if err := report.ReplaceFile(filepath.Join(dir, RunFile), out.Bytes()); err != nil {
		return fmt.Errorf("write resolved run: %w", err)
	}
	return nil
}

// Same reports whether WriteFile would not change the file at path.
func (r *Resolved) Same(path string) bool {
	var out bytes.Buffer
	if r.write(&out, false) != nil {
		return false
	}
	current, err := filetype.Read(path)
	return err == nil && bytes.Equal(current, out.Bytes())
}

// Values returns a section's values as TOML, by key, without unused keys. An empty section
// selects all sections.
func (r *Resolved) Values(section string) map[string]string {
	return r.values(section, func(f field) string { return format(f.value) })
}

// Shown returns the same values with passwords hidden.
func (r *Resolved) Shown(section string) map[string]string { return r.values(section, shown) }

// values returns the text of the used keys of a section, or of all if it is empty.
func (r *Resolved) values(section string, text func(f field) string) map[string]string {
	values := map[string]string{}
	for _, f := range shapeOf(&r.Config).fields {
		if (section == "" || strings.HasPrefix(f.key, section+".")) && !r.unused(f) {
			values[f.key] = text(f)
		}
	}
	return values
}

// Tree returns all values, by section and key, without unused keys and with passwords hidden.
func (r *Resolved) Tree() map[string]any {
	tree := map[string]any{}
	for _, f := range shapeOf(&r.Config).fields {
		if r.unused(f) {
			continue
		}
		path := pathOf(f.key)
		table := tree
		for _, part := range path[:len(path)-1] {
			inner, ok := table[part].(map[string]any)
			if !ok {
				inner = map[string]any{}
				table[part] = inner
			}
			table = inner
		}
		table[path[len(path)-1]] = jsonField(f)
	}
	return tree
}

// jsonField returns a field's value as jsonValue does, with secrets hidden.
func jsonField(f field) any {
	text := shown(f)
	if text == format(f.value) {
		return jsonValue(f.value)
	}
	var value any
	if json.Unmarshal([]byte(text), &value) != nil { // strings and their lists are the same in TOML and JSON
		return "***"
	}
	return value
}

// jsonValue returns v as a value that encodes in JSON. An empty list is not null.
func jsonValue(v reflect.Value) any {
	switch v.Kind() {
	case reflect.String:
		return v.String()
	case reflect.Slice:
	default:
		return v.Interface()
	}
	items := []any{}
	for i := range v.Len() {
		items = append(items, jsonValue(v.Index(i)))
	}
	return items
}

// Origins returns where each key was set, without unused keys.
func (r *Resolved) Origins() map[string]string {
	origins := map[string]string{}
	for _, f := range shapeOf(&r.Config).fields {
		if !r.unused(f) {
			origins[f.key] = r.Origin(f.key).String()
		}
	}
	return origins
}

// Explain writes the resolved run as TOML, with passwords hidden and each value's origin in a
// comment.
func (r *Resolved) Explain(w io.Writer) error { return r.write(w, true) }

// write writes the resolved run as TOML, with passwords hidden. origins adds each value's origin in a comment.
func (r *Resolved) write(w io.Writer, origins bool) error {
	var out bytes.Buffer
	section := ""
	for _, f := range shapeOf(&r.Config).fields {
		if r.unused(f) {
			continue
		}
		table := parent(f.key)
		if table != section {
			if section != "" {
				out.WriteByte('\n')
			}
			fmt.Fprintf(&out, "[%s]\n", table)
			section = table
		}
		line := f.key[len(table)+1:] + " = " + shown(f)
		if origins {
			line = fmt.Sprintf("%-40s # %s", line, r.Origin(f.key))
		}
		out.WriteString(line + "\n")
	}
	_, err := w.Write(out.Bytes())
	return err
}

// unused reports whether f belongs to a kind of reward, or a way to get a model, that the
// run does not use.
func (r *Resolved) unused(f field) bool {
	if f.idle {
		return true
	}
	if strings.HasPrefix(f.key, "model.init.") {
		return f.value.IsZero()
	}
	return f.key == "model.path" && r.Model.Path == "" && r.Model.Init.Config != ""
}

// shown returns a field's TOML value with passwords hidden.
func shown(f field) string {
	if strings.HasSuffix(f.key, ".command") {
		return secret.Arguments(format(f.value))
	}
	return secret.Hide(format(f.value))
}

// format returns v as a TOML value.
func format(v reflect.Value) string {
	switch v.Kind() {
	case reflect.String:
		return quote(v.String())
	case reflect.Float32, reflect.Float64:
		text := strconv.FormatFloat(v.Float(), 'g', -1, 64)
		if !strings.ContainsAny(text, ".e") {
			text += ".0"
		}
		return text
	case reflect.Slice:
		var items []string
		for i := range v.Len() {
			items = append(items, format(v.Index(i)))
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	return fmt.Sprint(v.Interface())
}

// quote returns text as a TOML basic string.
func quote(text string) string {
	var out strings.Builder
	out.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			out.WriteByte('\\')
			out.WriteRune(r)
		case r == '\n':
			out.WriteString(`\n`)
		case r == '\t':
			out.WriteString(`\t`)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&out, `\u%04X`, r)
		default:
			out.WriteRune(r)
		}
	}
	out.WriteByte('"')
	return out.String()
}
