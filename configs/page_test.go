package configs

import (
	"bytes"
	"flag"
	"fmt"
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
	"github.com/easyrl/easyrl/reward"
)

var writePage = flag.Bool("write", false, "write docs/configuration.md")

// docs/configuration.md matches the structs, their comments and their checks.
func TestConfigurationPage(t *testing.T) {
	t.Parallel()
	path := filepath.Join("..", "docs", "configuration.md")
	page := configurationPage(t)
	if *writePage {
		require.NoError(t, os.WriteFile(path, page, 0o644))
	}
	held, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(held), string(page), "docs/configuration.md is out of date, run make docs")
}

// row is a key on the page.
type row struct {
	section, key string // the key without its section
	owner        reflect.Type
	field        reflect.StructField
	value        reflect.Value // default; invalid for named tables
}

// allRows returns the rows of all keys and named tables of c.
func allRows(c *Config) []row {
	var all []row
	var add func(section string, v reflect.Value)
	add = func(section string, v reflect.Value) {
		for i := range v.NumField() {
			info := v.Type().Field(i)
			name := info.Tag.Get("toml")
			inner := strings.TrimPrefix(section+"."+name, ".")
			switch {
			case name == "-":
			case info.Anonymous:
				add(section, v.Field(i))
			case info.Type.Kind() == reflect.Struct:
				add(inner, v.Field(i))
			case info.Type.Kind() == reflect.Map:
				all = append(all, row{section: section, key: name + ".NAME", owner: v.Type(), field: info})
			default:
				all = append(all, row{section, name, v.Type(), info, v.Field(i)})
			}
		}
	}
	add("", reflect.ValueOf(c).Elem())
	return all
}

func configurationPage(t *testing.T) []byte {
	t.Helper()
	c := Default()
	sources := map[string]*words{}
	wordsOf := func(of reflect.Type) *words {
		path := strings.TrimPrefix(of.PkgPath(), "github.com/easyrl/easyrl/")
		if sources[path] == nil {
			sources[path] = readWords(t, filepath.Join("..", path))
			if path == "reward" {
				sources[path].values = append(sources[path].values, rewardKinds())
			}
			sources[path].addServers()
		}
		return sources[path]
	}
	var page bytes.Buffer
	page.WriteString(pageHead)
	rows := allRows(&c)
	var keys []string
	for from := 0; from < len(rows); {
		to := from
		for to < len(rows) && rows[to].section == rows[from].section {
			to++
		}
		part := rows[from:to]
		from = to
		section := part[0].section
		fmt.Fprintf(&page,
			"\n## %s\n\n%s\n\n| key | type | default | unit | allowed | meaning |\n|---|---|---|---|---|---|\n",
			section, wordsOf(sectionType(section)).table(t, sectionType(section), section))
		var below bytes.Buffer
		for _, r := range part {
			w := wordsOf(r.owner)
			meaning, allowed := strings.ReplaceAll(w.meaning(t, r), "[Kinds]", rewardNames()), ""
			if r.value.IsValid() {
				keys = append(keys, r.section+"."+r.key)
				allowed = allowedValues(t, r.section+"."+r.key)
				if r.value.CanUint() {
					allowed = "0 or more"
				}
			}
			fmt.Fprintf(&page, "| `%s` | %s | %s | %s | %s | %s |\n", r.key, typeName(r), defaultOf(t, r, meaning),
				r.field.Tag.Get("unit"), cell(allowed), cell(meaning))
			below.WriteString(w.listOf(r, allowed))
		}
		page.Write(below.Bytes())
		if section == "reward" {
			page.WriteString(rewardTables)
		}
	}
	require.Equal(t, Keys(), keys, "the page's keys")
	return page.Bytes()
}

// rewardKinds returns the kinds of reward and what they do.
func rewardKinds() (b block) {
	for _, k := range reward.Kinds() {
		b = append(b, [2]string{k.Name, "`\"" + k.Name + "\"` " + k.About})
	}
	return b
}

// rewardNames returns the text that replaces [Kinds] in the doc of key "kind".
func rewardNames() string {
	var names []string
	for _, k := range reward.Kinds() {
		names = append(names, strconv.Quote(k.Name))
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// sectionType returns the struct of a section.
func sectionType(section string) reflect.Type {
	v := reflect.ValueOf(Config{})
	for part := range strings.SplitSeq(section, ".") {
		v = place(v, part)
	}
	return v.Type()
}

func typeName(r row) string {
	if !r.value.IsValid() {
		return "table"
	}
	name := strings.TrimPrefix(strings.TrimPrefix(kindName(r.field.Type), "a "), "list")
	switch {
	case r.field.Type.Kind() == reflect.Slice && r.field.Type.Elem().Kind() == reflect.String:
		return "list of strings"
	case r.field.Type.Kind() == reflect.Slice:
		return "list of numbers"
	}
	return strings.TrimSuffix(name, ", 0 or more")
}

func defaultOf(t *testing.T, r row, meaning string) string {
	t.Helper()
	switch {
	case !r.value.IsValid():
		return ""
	case r.value.CanInt() && r.value.IsZero() && expected(t, r.section+"."+r.key, int64(0)) != nil,
		r.value.CanFloat() && r.value.IsZero() && expected(t, r.section+"."+r.key, 0.0) != nil:
		return "none"
	case strings.Contains(meaning, "by default"):
		return "computed"
	}
	return "`" + format(r.value) + "`"
}

// cell escapes text for a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "\n", " ").Replace(text)
}

// allowedValues returns the values that validation expects of a key. It sets the key to
// odd values and reads the faults.
func allowedValues(t *testing.T, key string) string {
	t.Helper()
	text := strings.Join(expected(t, key, oddValues(key)...), "; ")
	text = regexp.MustCompile(`^(\S+) or more; (\S+) at most`).ReplaceAllString(text, "$1 to $2")
	return regexp.MustCompile(`([a-z_]) (= |of )\d+( tokens)?`).ReplaceAllString(text, "$1") // numbers of the usual run
}

// expected returns what the faults of a key expect if it is set to each of the values.
func expected(t *testing.T, key string, values ...any) (said []string) {
	t.Helper()
	task := TrainTask
	if strings.HasPrefix(key, "sft.") {
		task = SFTTask
	}
	for _, value := range values {
		r := usual(key)
		shape := shapeOf(&r.Config)
		at := slices.Index(shape.keys(), key)
		require.NoError(t, assign(shape.fields[at].value, value), key)
		for line := range strings.Lines(fmt.Sprint(r.Validate(task))) {
			if text, ok := strings.CutPrefix(line, key+" "); ok {
				said = addExpected(said, text)
			}
		}
	}
	return said
}

// addExpected adds what a fault expects, unless it is already in the list.
func addExpected(said []string, fault string) []string {
	_, text, ok := strings.Cut(strings.TrimSpace(fault), "expected ")
	text, _, _ = strings.Cut(text, ": ")
	text = strings.TrimPrefix(text, "one of ")
	if !ok || slices.Contains(said, text) {
		return said
	}
	return append(said, text)
}

// oddValues returns values of a key's type that are usually invalid.
func oddValues(key string) []any {
	c := Default()
	for _, r := range allRows(&c) {
		if r.section+"."+r.key != key {
			continue
		}
		switch r.field.Type.Kind() {
		case reflect.String:
			return []any{"?", "/"}
		case reflect.Int:
			return []any{int64(-1) << 40, int64(0), int64(1)<<40 + 1}
		case reflect.Float64:
			return []any{-1e300, 0.0, 1e300}
		case reflect.Slice:
			if r.field.Type.Elem().Kind() == reflect.String {
				return []any{"?", ""}
			}
			return []any{-1.0}
		}
	}
	return nil
}

// usual returns a valid run that uses the key.
func usual(key string) *Resolved {
	r := &Resolved{Config: Default()}
	r.Run.Name, r.Run.Dir, r.Model.Path, r.Data.Train, r.Data.Eval, r.SFT.Data = "n", "d", "m", []string{"t"},
		[]string{"e"}, []string{"s"}
	switch {
	case strings.HasPrefix(key, "model.init."):
		r.Model.Path = ""
		r.Model.Init = Init{Config: "c"}
	case strings.HasPrefix(key, "inference."):
		r.Control.Listen = "127.0.0.1:7000"
		if key == "inference.endpoints" || key == "inference.watch" {
			r.Inference.Kind = remote.EasyRL
		}
	case strings.HasPrefix(key, "reward.") && key != "reward.kind":
		for _, kind := range reward.Kinds() {
			if r.Reward.Rule = kind.Example(); r.Reward.Takes(strings.TrimPrefix(key, "reward.")) {
				break
			}
		}
	}
	return r
}
