package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pure lists the packages of pure state machines. Events drive them; their
// callers do I/O and keep time.
func pure() []string {
	return []string{"inference/fleet/state", "parallel/pipeline", "backend/schedule", "trainer/schedule"}
}

// Pure packages use no goroutines, locks, contexts, clocks or I/O.
func TestPurePackages(t *testing.T) {
	t.Parallel()
	clocks := []string{"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Timer", "Ticker",
		"Tick", "Sleep"}
	tr := parse(t)
	for _, pkg := range pure() {
		if !slices.ContainsFunc(tr.files, func(s source) bool { return s.pkg == pkg }) {
			t.Errorf("pure package %s has no files", pkg)
		}
	}
	for _, s := range tr.files {
		if s.test || !slices.Contains(pure(), s.pkg) {
			continue
		}
		for _, path := range s.imports() {
			if under(path, "sync", "context", "net", "os") {
				t.Errorf("%s: pure package %s imports %s", s.path, s.pkg, path)
			}
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s: pure package %s starts a goroutine", tr.line(s, n), s.pkg)
			case *ast.SelectorExpr:
				if pkg, ok := n.X.(*ast.Ident); ok && pkg.Name == "time" && slices.Contains(clocks, n.Sel.Name) {
					t.Errorf("%s: pure package %s uses time.%s, expected the time as a parameter", tr.line(s, n),
						s.pkg, n.Sel.Name)
				}
			}
			return true
		})
	}
}

// Packages that make race leaves out, listed in .ci/sequential, share nothing between goroutines: they
// start none and use no channels, locks or atomic values. Package variables are constants in all packages
// (TestNoHiddenState), and what they import has tests of its own.
func TestSequentialPackages(t *testing.T) {
	t.Parallel()
	tr := parse(t)
	listed := strings.Fields(string(read(t, ".ci/sequential")))
	require.NotEmpty(t, listed)
	require.True(t, slices.IsSorted(listed))
	for _, path := range listed {
		pkg, ok := strings.CutPrefix(path, module+"/")
		if !ok || !slices.ContainsFunc(tr.files, func(s source) bool { return s.pkg == pkg }) {
			t.Errorf(".ci/sequential: %s has no files", path)
		}
		for _, s := range tr.files {
			if s.pkg == pkg && !s.test {
				checkSequential(s, func(node ast.Node, what string) {
					t.Errorf("%s: %s, expected none in a package of .ci/sequential", tr.line(s, node), what)
				})
			}
		}
	}
}

// checkSequential calls report for each use of a goroutine, a channel, a lock or an atomic value.
func checkSequential(s source, report func(node ast.Node, what string)) {
	for i, path := range s.imports() {
		if under(path, "sync", "net/http", "golang.org/x/sync", "github.com/sourcegraph/conc") {
			report(s.ast.Imports[i], "import of "+path)
		}
	}
	ast.Inspect(s.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			report(n, "goroutine")
		case *ast.ChanType, *ast.SendStmt, *ast.SelectStmt:
			report(n, "channel")
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				report(n, "channel")
			}
		}
		return true
	})
}

// TestConcurrencyIsFound checks the check itself.
func TestConcurrencyIsFound(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{
		`import "sync/atomic"`:                   "import of sync/atomic",
		`import "net/http"`:                      "import of net/http",
		`func f() { go f() }`:                    "goroutine",
		`var c chan int`:                         "channel",
		`func f(c any) { c <- 1 }`:               "channel",
		`func f(c any) { <-c }`:                  "channel",
		`func f(c any) { select {} }`:            "channel",
		`import "os"; func f() int { return 1 }`: "",
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "fixture.go", "package fixture\n\n"+code+"\n",
			parser.SkipObjectResolution)
		require.NoError(t, err)
		found := ""
		checkSequential(source{ast: file}, func(_ ast.Node, what string) { found = what })
		require.Equal(t, want, found, code)
	}
}
