package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// module is the import path of the repository's module.
const module = "github.com/easyrl/easyrl"

// source is one Go file.
type source struct {
	path string // slash-separated, from the repository's root
	pkg  string // folder
	test bool
	ast  *ast.File
}

// imports returns the file's import paths; paths of this module without their
// module prefix.
func (s source) imports() []string {
	var paths []string
	for _, spec := range s.ast.Imports {
		path, _ := strconv.Unquote(spec.Path.Value) // already parsed
		paths = append(paths, strings.TrimPrefix(path, module+"/"))
	}
	return paths
}

// tree is the repository's Go code.
type tree struct {
	set   *token.FileSet
	files []source
}

// line returns the position of a node as "path:line".
func (tr tree) line(s source, node ast.Node) string {
	return s.path + ":" + strconv.Itoa(tr.set.Position(node.Pos()).Line)
}

// lines returns the number of lines of a node.
func (tr tree) lines(node ast.Node) int {
	return tr.set.Position(node.End()).Line - tr.set.Position(node.Pos()).Line + 1
}

// walk calls visit for every shipped file of the repository.
func walk(t *testing.T, visit func(path string)) {
	t.Helper()
	root := filepath.Join("..", "..")
	require.FileExists(t, filepath.Join(root, "go.mod"))
	require.NoError(t, fs.WalkDir(os.DirFS(root), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && (slices.Contains([]string{"testdata", "runs", "bin", "venv", ".git"}, name)) {
			return fs.SkipDir
		}
		if entry.Type().IsRegular() {
			visit(path)
		}
		return nil
	}))
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(path)))
	require.NoError(t, err)
	return data
}

// parse parses all Go files, regardless of build tags.
func parse(t *testing.T) tree {
	t.Helper()
	tr := tree{set: token.NewFileSet()}
	walk(t, func(path string) {
		if !strings.HasSuffix(path, ".go") {
			return
		}
		file, err := parser.ParseFile(tr.set, path, read(t, path), parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		folder := filepath.ToSlash(filepath.Dir(path))
		tr.files = append(tr.files, source{path: path, pkg: folder, test: strings.HasSuffix(path, "_test.go"), ast: file})
	})
	require.NotEmpty(t, tr.files)
	return tr
}

// under reports whether pkg is one of the folders or below one.
func under(pkg string, folders ...string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		return pkg == folder || strings.HasPrefix(pkg, folder+"/")
	})
}
