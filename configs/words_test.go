package configs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference/remote"
)

// words holds the doc comments of a package.
type words struct {
	structs map[string]string            // doc by struct
	fields  map[string]map[string]string // doc by struct and field
	keys    map[string]map[string]string // key by struct and field
	values  []block
}

// block is a group of string constants: value and doc, in order.
type block [][2]string

func readWords(t *testing.T, dir string) *words {
	t.Helper()
	w := &words{structs: map[string]string{}, fields: map[string]map[string]string{},
		keys: map[string]map[string]string{}}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, e.Name()), nil,
			parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.TYPE {
				w.addTypes(d)
			} else if ok && d.Tok == token.CONST {
				w.addValues(d)
			}
		}
	}
	return w
}

func oneLine(doc string) string { return strings.Join(strings.Fields(doc), " ") }

func (w *words) addTypes(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		s := spec.(*ast.TypeSpec)
		fields, ok := s.Type.(*ast.StructType)
		if !ok {
			continue
		}
		name := s.Name.Name
		w.structs[name], w.fields[name], w.keys[name] = oneLine(d.Doc.Text()), map[string]string{}, map[string]string{}
		for _, f := range fields.Fields.List {
			if len(f.Names) == 0 || f.Tag == nil {
				continue
			}
			tag, _ := strconv.Unquote(f.Tag.Value) // parsed already
			w.fields[name][f.Names[0].Name] = oneLine(f.Doc.Text())
			w.keys[name][f.Names[0].Name] = reflect.StructTag(tag).Get("toml")
		}
	}
}

// addValues adds string constants. It replaces a constant's name at the beginning of its
// doc with its value.
func (w *words) addValues(d *ast.GenDecl) {
	var b block
	for _, spec := range d.Specs {
		s := spec.(*ast.ValueSpec)
		if len(s.Values) != 1 {
			continue
		}
		literal, ok := s.Values[0].(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			continue
		}
		value, _ := strconv.Unquote(literal.Value) // parsed already
		doc := oneLine(s.Doc.Text())
		if rest, ok := strings.CutPrefix(doc, s.Names[0].Name+" "); ok {
			doc = "`\"" + value + "\"` " + rest
		} else if note := oneLine(s.Comment.Text()); note != "" {
			doc = "`\"" + value + "\"`: " + note + "."
		}
		b = append(b, [2]string{value, doc})
	}
	w.values = append(w.values, b)
}

// addServers adds the kinds of inference servers to the block with the embedded kind.
func (w *words) addServers() {
	for i := range w.values {
		if !slices.ContainsFunc(w.values[i], func(v [2]string) bool { return v[0] == Embedded }) {
			continue
		}
		for _, k := range remote.Kinds() {
			w.values[i] = append(w.values[i],
				[2]string{k.Name, "`\"" + k.Name + "\"` instances are " + k.Title + " servers."})
		}
	}
}

// table returns a section's doc.
func (w *words) table(t *testing.T, of reflect.Type, section string) string {
	t.Helper()
	doc, ok := strings.CutPrefix(w.structs[of.Name()], of.Name()+" ")
	require.True(t, ok, "the doc of struct %s does not begin with its name", of.Name())
	return "`[" + section + "]` " + cell(doc)
}

// meaning returns a key's doc, with the names of fields replaced by their keys.
func (w *words) meaning(t *testing.T, r row) string {
	t.Helper()
	doc := w.fields[r.owner.Name()][r.field.Name]
	require.NotEmpty(t, doc, "%s.%s: the field %s.%s has no doc", r.section, r.key, r.owner.Name(), r.field.Name)
	rest, named := strings.CutPrefix(doc, r.field.Name+" ")
	first, noun, _ := strings.Cut(rest, " ")
	switch {
	case named && (first == "is" || first == "are"):
		doc = strings.ToUpper(noun[:1]) + noun[1:]
	case named && (strings.HasSuffix(first, "s") && first != "as" || first == "must"):
		doc = "`" + r.field.Tag.Get("toml") + "` " + rest
	case named:
		doc = strings.ReplaceAll(r.field.Tag.Get("toml"), "_", " ") + " " + rest
		doc = strings.ToUpper(doc[:1]) + doc[1:]
	}
	return regexp.MustCompile(`\b[A-Z][A-Za-z0-9]*\b`).ReplaceAllStringFunc(doc, func(word string) string {
		if key := w.keys[r.owner.Name()][word]; key != "" && !strings.HasPrefix(doc, word) {
			return "`" + key + "`"
		}
		return word
	})
}

// listOf returns a list of a key's values and their meanings, empty if they have no docs.
func (w *words) listOf(r row, allowed string) string {
	var best []string
	for _, b := range w.values {
		var found []string
		for _, v := range b {
			if v[1] != "" && slices.Contains(quotedIn(allowed), v[0]) {
				found = append(found, v[1])
			}
		}
		if len(found) > len(best) {
			best = found
		}
	}
	if len(best) < 2 {
		return ""
	}
	var out strings.Builder
	fmt.Fprintf(&out, "\nValues of `%s.%s`:\n\n", r.section, r.key)
	for _, doc := range best {
		fmt.Fprintf(&out, "* %s\n", strings.ReplaceAll(doc, "<", "&lt;"))
	}
	return out.String()
}

func quotedIn(text string) (values []string) {
	for _, m := range regexp.MustCompile(`"([^"]*)"`).FindAllStringSubmatch(text, -1) {
		values = append(values, m[1])
	}
	return values
}

const pageHead = `# Configuration: every key

<!-- Generated by make docs from the structs, their comments and their checks. Do not edit. -->

A run is a TOML file: ` + "`easyrl train run.toml`" + `. Additional files override it from left to right, and ` +
	"`-set section.key=value`" + ` overrides
all files. An unknown key is an error that names a similar key; for a setting of TRL, verl, OpenRLHF, prime-rl, ` +
	`Hugging Face Trainer or
vLLM, such as ` + "`learning_rate`" + `, it names the key here. ` + "`easyrl check run.toml`" +
	` prints every value and where it was set.

Paths are relative to the working directory, also those in a run file in another folder. A list with one ` +
	`element may be written as
that element alone.

A "computed" default depends on other settings, as explained under "meaning". "Allowed" lists the valid values. ` +
	`Blank means any value
of that type.
`

const rewardTables = `
A ` + "`[reward.parts.NAME]`" + ` table takes ` + "`weight`" + `, a number (default ` + "`1.0`" +
	`) that multiplies the part's score (0 only logs the score), and
the ` + "`[reward]`" + ` keys of its kind. A ` + "`[reward.sources.NAME]`" + ` table takes the keys of ` +
	"`[reward]`" + `, including ` + "`parts`" + `.
`
