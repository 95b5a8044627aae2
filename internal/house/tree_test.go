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
	"sync"
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

// root is the repository's folder.
const root = "../.."

// visit calls see for every shipped file of the repository until it fails.
func visit(see func(path string) error) error {
	return fs.WalkDir(os.DirFS(root), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && (slices.Contains([]string{"testdata", "runs", "bin", "venv", ".git"}, name)) {
			return fs.SkipDir
		}
		if entry.Type().IsRegular() {
			return see(path)
		}
		return nil
	})
}

// walk calls see for every shipped file of the repository.
func walk(t *testing.T, see func(path string)) {
	t.Helper()
	require.FileExists(t, filepath.Join(root, "go.mod"))
	require.NoError(t, visit(func(path string) error {
		see(path)
		return nil
	}))
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
	require.NoError(t, err)
	return data
}

// parsed parses all Go files once, regardless of build tags.
var parsed = sync.OnceValues(func() (tree, error) {
	tr := tree{set: token.NewFileSet()}
	err := visit(func(path string) error {
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(tr.set, path, text, parser.ParseComments|parser.SkipObjectResolution)
		folder := filepath.ToSlash(filepath.Dir(path))
		tr.files = append(tr.files, source{path: path, pkg: folder,
			test: strings.HasSuffix(path, "_test.go"), ast: file})
		return err
	})
	return tr, err
})

// parse returns all Go files. Tests only read them.
func parse(t *testing.T) tree {
	t.Helper()
	tr, err := parsed()
	require.NoError(t, err)
	require.NotEmpty(t, tr.files)
	return tr
}

// under reports whether pkg is one of the folders or below one.
func under(pkg string, folders ...string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		return pkg == folder || strings.HasPrefix(pkg, folder+"/")
	})
}
