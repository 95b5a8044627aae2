package house

import (
	"go/ast"
	"slices"
	"testing"
)

// pure lists the packages of pure state machines. Events drive them; their
// callers do I/O and keep time.
func pure() []string { return []string{"inference/fleet/state", "parallel/pipeline", "torch/schedule"} }

// Pure packages use no goroutines, locks, contexts, clocks or I/O.
func TestPurePackages(t *testing.T) {
	t.Parallel()
	clocks := []string{"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Timer", "Ticker", "Tick", "Sleep"}
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
					t.Errorf("%s: pure package %s uses time.%s, expected the time as a parameter", tr.line(s, n), s.pkg, n.Sel.Name)
				}
			}
			return true
		})
	}
}
