package house

import (
	"bytes"
	"cmp"
	"go/ast"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
)

// TestSizes logs the ten longest packages, files and functions in lines, and the ten types with
// the most methods, tests not counted. It never fails: whether one of them has a seam to cut at
// is for a reader to judge.
func TestSizes(t *testing.T) {
	t.Parallel()
	tr := parse(t)
	packages, files, functions, methods := map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	for _, s := range tr.files {
		if s.test || under(s.pkg, forTests()...) {
			continue
		}
		files[s.path] = tr.lines(s.ast)
		packages[s.pkg] += files[s.path]
		for _, decl := range s.ast.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name := s.pkg + "." + f.Name.Name
			if f.Recv != nil {
				methods[s.pkg+"."+receiver(f)]++
				name = s.pkg + "." + receiver(f) + "." + f.Name.Name
			}
			functions[name] = tr.lines(f)
		}
	}
	logLargest(t, "packages, lines", packages)
	logLargest(t, "files, lines", files)
	logLargest(t, "functions, lines", functions)
	logLargest(t, "types, methods", methods)
}

// logLargest logs the ten largest entries of sizes.
func logLargest(t *testing.T, title string, sizes map[string]int) {
	t.Helper()
	names := slices.SortedFunc(maps.Keys(sizes), func(a, b string) int {
		return cmp.Or(cmp.Compare(sizes[b], sizes[a]), cmp.Compare(a, b))
	})
	t.Logf("the largest %s:", title)
	for _, name := range names[:min(10, len(names))] {
		t.Logf("%6d %s", sizes[name], name)
	}
}

// receiver returns the name of a method's type.
func receiver(f *ast.FuncDecl) string {
	name := ""
	ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return true
	})
	return name
}

// calls visits every call of a package's function, such as "time.Sleep".
func calls(file *ast.File, visit func(call *ast.CallExpr, name string)) {
	ast.Inspect(file, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if f, ok := call.Fun.(*ast.SelectorExpr); ok {
				if pkg, ok := f.X.(*ast.Ident); ok {
					visit(call, pkg.Name+"."+f.Sel.Name)
				}
			}
		}
		return true
	})
}

func TestCalls(t *testing.T) {
	t.Parallel()
	tr := parse(t)
	for _, s := range tr.files {
		calls(s.ast, func(call *ast.CallExpr, name string) {
			switch {
			case name == "time.Sleep" && s.test:
				t.Errorf("%s: test sleeps, expected a channel or testing/synctest", tr.line(s, call))
			case (name == "os.Getenv" || name == "os.LookupEnv") && !s.test &&
				!under(s.pkg, "parallel", "reward/program", "internal/soak"):
				t.Errorf("%s: reads the environment, expected a configuration key or a flag", tr.line(s, call))
			case name == "os.Exit" && !s.test && !under(s.pkg, "cmd", "examples", "bench"):
				t.Errorf("%s: package exits the process, expected an error", tr.line(s, call))
			}
		})
	}
}

// opensItself lists the files that may open what is no regular file, with the reason.
func opensItself() map[string]string {
	return map[string]string{
		"checkpoint/files_unix.go":       "syncs folders",
		"inference/server/exposition.go": "reads /proc",
		"internal/filetype/regular.go":   "opens files for all others",
		"npu/far/build_cgo.go":           "reads its own sources",
		"report/machine.go":              "reads /proc",
		"reward/program/guard_linux.go":  "reads /proc",
		"reward/program/proc_linux.go":   "reads /proc",
	}
}

// A folder from a stranger may have a pipe in place of any file, and reading that blocks for good.
func TestFilesAreRegular(t *testing.T) {
	t.Parallel()
	tr := parse(t)
	for _, s := range tr.files {
		if s.test || opensItself()[s.path] != "" || under(s.pkg, "bench", "examples") {
			continue
		}
		calls(s.ast, func(call *ast.CallExpr, name string) {
			if name == "os.Open" || name == "os.ReadFile" {
				t.Errorf("%s: calls %s, expected filetype.Open or filetype.Read, which refuse pipes and devices",
					tr.line(s, call), name)
			}
		})
	}
}

// Pure packages start no goroutines. No package has an init function or a mutable
// package variable, except errors and compile-time checks.
func TestNoHiddenState(t *testing.T) {
	t.Parallel()
	tr := parse(t)
	for _, s := range tr.files {
		if s.test {
			continue
		}
		if under(s.pkg, "loss", "attention", "model", "optim") {
			ast.Inspect(s.ast, func(n ast.Node) bool {
				if _, ok := n.(*ast.GoStmt); ok {
					t.Errorf("%s: package %s starts a goroutine", tr.line(s, n), s.pkg)
				}
				return true
			})
		}
		for _, decl := range s.ast.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				// a program that forgot an explicit call would start itself again
				supervises := s.path == "reward/program/supervisor_linux.go"
				if d.Name.Name == "init" && d.Recv == nil && !supervises {
					t.Errorf("%s: init function, expected an explicit call", tr.line(s, d))
				}
			case *ast.GenDecl:
				if d.Tok == token.VAR {
					checkVariables(t, tr, s, d)
				}
			}
		}
	}
}

// variables are the exceptions to TestNoHiddenState, with the reason for each.
func variables() map[string]string {
	return map[string]string{
		"loss.building":              "Gorgonia has package variables, which this lock guards",
		"npu.Host":                   "an identity that never changes",
		"run/cores.goMaxProcs":       "GOMAXPROCS belongs to the process; this lock guards its changes",
		"internal/rounded.tables":    "constants, computed once",
		"internal/rounded.commonLn2": "a constant, computed once",
		"internal/rounded.commonPi":  "a constant, computed once",
	}
}

func checkVariables(t *testing.T, tr tree, s source, d *ast.GenDecl) {
	t.Helper()
	embedded := d.Doc != nil && slices.ContainsFunc(d.Doc.List,
		func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") })
	for _, spec := range d.Specs {
		for _, name := range spec.(*ast.ValueSpec).Names {
			isError := strings.HasPrefix(name.Name, "Err") || strings.HasPrefix(name.Name, "err")
			if name.Name != "_" && !isError && !embedded && variables()[s.pkg+"."+name.Name] == "" {
				t.Errorf("%s: variable %s of package %s, expected a constant or a function", tr.line(s, name),
					name.Name, s.pkg)
			}
		}
	}
}

func TestNoUnfinishedCode(t *testing.T) {
	t.Parallel()
	later := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b`)
	kinds := []string{".go", ".c", ".h", ".cu", ".cc", ".cpp", ".md", ".toml", ".yml", ".yaml", ".sh",
		".tmpl", ".mod", ""}
	walk(t, func(path string) {
		if !slices.Contains(kinds, filepath.Ext(path)) {
			return
		}
		data := read(t, path)
		if at := later.FindIndex(data); at != nil && !bytes.ContainsRune(data, 0) {
			t.Errorf("%s:%d: %s", path, 1+bytes.Count(data[:at[0]], []byte("\n")), data[at[0]:at[1]])
		}
	})
}

// Every shipped TOML file loads strictly and is valid; an overlay, of an objective, an
// example or a deployment, is loaded over its base. No two overlays have the same effect.
func TestShippedTOML(t *testing.T) {
	t.Parallel()
	const base = "configs/gsm8k-qwen3.toml"
	load := func(paths ...string) configs.Config {
		for i := range paths {
			paths[i] = filepath.Join("..", "..", filepath.FromSlash(paths[i]))
		}
		r, err := configs.Load(paths, nil)
		if err == nil {
			err = r.Validate(configs.AnyTask)
		}
		require.NoError(t, err)
		return r.Config
	}
	seen := map[string]configs.Config{base: load(base)}
	found := 0
	walk(t, func(path string) {
		if filepath.Ext(path) != ".toml" {
			return
		}
		found++
		if under(filepath.ToSlash(filepath.Dir(path)), "deploy/kubernetes/torch") {
			load("deploy/kubernetes/base/run.toml", path)
			return
		}
		if !under(filepath.ToSlash(filepath.Dir(path)), "configs/objectives", "configs/torch", "examples") {
			load(path)
			return
		}
		c := load(base, path)
		for other, same := range seen {
			require.NotEqual(t, same, c, "%s has the same effect as %s", path, other)
		}
		seen[path] = c
	})
	require.Positive(t, found)
	require.Greater(t, len(seen), 1)
}
