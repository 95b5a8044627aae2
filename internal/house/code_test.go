package house

import (
	"bytes"
	"go/ast"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
)

// Size limits in lines. Tests do not count.
const (
	maxPackage  = 2000
	maxFile     = 400
	maxFunction = 60
	maxMethods  = 20 // of one type, those of embedded types not counted
)

// exceptions lists individual limits: of a file by path, of a function as
// folder.Name, of a package by folder.
func exceptions() map[string]int {
	return map[string]int{
		"cmd/easyrl": 1200, // only flags and printing
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	allowed := func(name string, limit int) int {
		if own, ok := exceptions()[name]; ok {
			return own
		}
		return limit
	}
	tr := parse(t)
	packages := map[string]int{}
	for _, s := range tr.files {
		if s.test {
			continue
		}
		lines := tr.lines(s.ast)
		packages[s.pkg] += lines
		if lines > allowed(s.path, maxFile) {
			t.Errorf("%s has %d lines, expected %d at most", s.path, lines, maxFile)
		}
		for _, decl := range s.ast.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name := s.pkg + "." + f.Name.Name
			if n := tr.lines(f); n > allowed(name, maxFunction) {
				t.Errorf("%s: %s has %d lines, expected %d at most", tr.line(s, f), name, n, maxFunction)
			}
		}
	}
	for pkg, lines := range packages {
		if limit := allowed(pkg, maxPackage); !under(pkg, forTests()...) && lines > limit {
			t.Errorf("package %s has %d lines, expected %d at most", pkg, lines, limit)
		}
	}
}

func TestMethods(t *testing.T) {
	t.Parallel()
	tr := parse(t)
	methods := map[string]int{}
	for _, s := range tr.files {
		for _, decl := range s.ast.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv != nil && !s.test {
				methods[s.pkg+"."+receiver(f)]++
			}
		}
	}
	for name, n := range methods {
		if n > maxMethods {
			t.Errorf("type %s has %d methods, expected %d at most", name, n, maxMethods)
		}
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
			case (name == "os.Getenv" || name == "os.LookupEnv") && !s.test && !under(s.pkg, "parallel"):
				t.Errorf("%s: reads the environment, expected a configuration key or a flag", tr.line(s, call))
			case name == "os.Exit" && !s.test && !under(s.pkg, "cmd", "examples", "bench"):
				t.Errorf("%s: package exits the process, expected an error", tr.line(s, call))
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
				supervises := s.path == "reward/program/supervisor_linux.go" // a program that forgot an explicit call would start itself again
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
		"loss.building": "Gorgonia has package variables, which this lock guards",
		"npu.Host":      "an identity that never changes",
	}
}

func checkVariables(t *testing.T, tr tree, s source, d *ast.GenDecl) {
	t.Helper()
	embedded := d.Doc != nil && slices.ContainsFunc(d.Doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") })
	for _, spec := range d.Specs {
		for _, name := range spec.(*ast.ValueSpec).Names {
			isError := strings.HasPrefix(name.Name, "Err") || strings.HasPrefix(name.Name, "err")
			if name.Name != "_" && !isError && !embedded && variables()[s.pkg+"."+name.Name] == "" {
				t.Errorf("%s: variable %s of package %s, expected a constant or a function", tr.line(s, name), name.Name, s.pkg)
			}
		}
	}
}

func TestNoUnfinishedCode(t *testing.T) {
	t.Parallel()
	later := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b`)
	kinds := []string{".go", ".c", ".h", ".cu", ".cc", ".cpp", ".md", ".toml", ".yml", ".yaml", ".sh", ".tmpl", ".mod", ""}
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
