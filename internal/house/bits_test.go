package house

import (
	"bufio"
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// inexact lists the folders whose floating-point results may differ between machines, with the reason
// for each. The results of all others reach weights, checkpoints, prompts, rewards or metrics, or could.
func inexact() map[string]string {
	return map[string]string{
		"bench":                 "measures and draws",
		"inference/simulate":    "draws lengths of simulated responses, which nothing trains on",
		"internal/reference":    "tests compare with it within tolerances",
		"npu/nputest":           "compares with tolerances; its exact checks have no fused terms",
		"parallel/paralleltest": "tests ranks with random data",
		"report/advice":         "words advice from rounded numbers",
		"report/chart":          "draws",
		"report/page":           "draws",
		"report/steptime":       "fits times",
		"run/compare":           "compares times",
		"torch/fake":            "stands in for PyTorch ranks in tests, within tolerances",
	}
}

func isExact(pkg string) bool { return !under(pkg, slices.Collect(maps.Keys(inexact()))...) }

// target is a machine on which the compiler may fuse x*y + z.
type target struct {
	name string
	env  []string
}

func fusingTargets() []target {
	return []target{
		{"arm64", []string{"GOARCH=arm64"}},
		{"amd64 v3", []string{"GOARCH=amd64", "GOAMD64=v3"}},
	}
}

// fusedLine matches a line of the compiler's assembly output with a fused instruction, or with a call
// of the runtime's complex division, which is fused itself.
var fusedLine = regexp.MustCompile(`\((\S+\.go):(\d+)\)\t(V?FN?M(?:ADD|SUB)\w*|\w+\truntime\.complex128div)`)

// compile returns the command that compiles packages of the module in root for a target, with flags
// of the compiler for the module's own packages.
func compile(t *testing.T, root, module string, to target, flags string, packages ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go",
		append([]string{"list", "-export", "-gcflags=" + module + "/...=" + flags}, packages...)...)
	cmd.Dir = root
	cmd.Env = append(append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0", "GOFLAGS="), to.env...)
	return cmd
}

// suspects returns the packages in which the compiler fuses a product, as it says itself, which is
// quicker than to read its assembly output. It does not say where, nor whether the runtime's complex
// division is called, so packages with complex numbers are suspects too.
func suspects(t *testing.T, root, module string, to target, packages ...string) []string {
	t.Helper()
	if len(packages) == 0 {
		return nil
	}
	cmd := compile(t, root, module, to, "-dwarf=false -d=fmahash=y", packages...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: go list -export for %s: %s", root, to.name, out)
	var found []string
	pkg := ""
	for line := range strings.Lines(string(out)) {
		if name, ok := strings.CutPrefix(line, "# "); ok {
			pkg = strings.TrimSpace(name)
		} else if strings.HasPrefix(line, "fmahash triggered") && slices.Contains(packages, pkg) {
			found = append(found, pkg)
		}
	}
	for _, pkg := range packages {
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(strings.TrimPrefix(pkg, module)), "*.go"))
		require.NoError(t, err)
		require.NotEmpty(t, files, pkg)
		for _, path := range files {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			if complexNumbers.Match(text) {
				found = append(found, pkg)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// complexNumbers matches Go code that makes complex numbers. No package exports any.
var complexNumbers = regexp.MustCompile(`\bcomplex(64|128)?\b|"math/cmplx"`)

// fused compiles packages of the module in root for a target and returns its fused instructions by
// source line, "path:line". Lines that call math.FMA are left out: it is exact on every machine.
func fused(t *testing.T, root, module string, to target, packages ...string) map[string]string {
	t.Helper()
	if len(packages) == 0 {
		return nil
	}
	cmd := compile(t, root, module, to, "-S", packages...)
	out, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	found := map[string]string{}
	sources := map[string][]string{}
	var failed []string
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		line := lines.Bytes()
		if bytes.HasPrefix(line, []byte("go: ")) || bytes.Contains(line, []byte(".go:")) && line[0] != '\t' &&
			len(failed) < 20 {
			failed = append(failed, string(line))
		}
		if !bytes.Contains(line, []byte("MADD")) && !bytes.Contains(line, []byte("MSUB")) &&
			!bytes.Contains(line, []byte("complex128div")) {
			continue
		}
		m := fusedLine.FindSubmatch(line)
		if m == nil {
			continue
		}
		path := string(m[1])
		if relative, err := filepath.Rel(root, path); err == nil && filepath.IsLocal(relative) {
			path = filepath.ToSlash(relative)
		}
		if !callsFMA(t, sources, string(m[1]), string(m[2])) {
			found[path+":"+string(m[2])] = strings.ReplaceAll(string(m[3]), "\t", " ")
		}
	}
	require.NoError(t, lines.Err())
	_, _ = io.Copy(io.Discard, out)
	require.NoError(t, cmd.Wait(), "%s: go list -export for %s: %s", root, to.name, strings.Join(failed, "\n"))
	return found
}

// callsFMA reports whether a source line calls math.FMA.
func callsFMA(t *testing.T, sources map[string][]string, path, line string) bool {
	t.Helper()
	if sources[path] == nil {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		sources[path] = strings.Split(string(text), "\n")
	}
	n, err := strconv.Atoi(line)
	require.NoError(t, err)
	return n <= len(sources[path]) && strings.Contains(sources[path][n-1], "math.FMA(")
}

// requireGo skips a test that compiles, which takes minutes if the standard library has not been
// compiled for the targets.
func requireGo(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("compiles all packages for two machines; run without -short")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("go is not on the PATH: ", err)
	}
}

// exactPackages returns the import paths of packages that are compiled for a target and whose bits matter.
func exactPackages(t *testing.T, root string, to target) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "./...")
	cmd.Dir, cmd.Env = root, append(append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0", "GOFLAGS="), to.env...)
	out, err := cmd.Output()
	require.NoError(t, err)
	exact := func(path string) bool { return isExact(strings.TrimPrefix(path, module+"/")) }
	packages := slices.DeleteFunc(strings.Fields(string(out)), func(path string) bool { return !exact(path) })
	require.NotEmpty(t, packages)
	return packages
}

// The compiler fuses no product with a sum: x*y + z would have other bits on machines with fused
// multiply-add than on others. The conversion float64(x*y) + z prevents it.
func TestNoFusedProducts(t *testing.T) {
	t.Parallel()
	requireGo(t)
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	for _, to := range fusingTargets() {
		packages := exactPackages(t, root, to)
		found := fused(t, root, module, to, suspects(t, root, module, to, packages...)...)
		for _, at := range slices.Sorted(maps.Keys(found)) {
			if isExact(filepath.ToSlash(filepath.Dir(at))) {
				t.Errorf("%s: on %s this compiles to %s, expected float64(x*y) around each product that a sum takes",
					at, to.name, found[at])
			}
		}
	}
}

// TestFusedProductsAreFound checks the check itself, with one function a package.
func TestFusedProductsAreFound(t *testing.T) {
	t.Parallel()
	requireGo(t)
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	bodies := map[string]string{
		"deviation": `func Deviation(values []float64, mean float64) float64 {
	squares := 0.0
	for _, v := range values {
		squares += (v - mean) * (v - mean) // fused
	}
	return squares
}`,
		"inlined": `func product(a, b float64) float64 { return a * b }

func Inlined(a, b, c float64) float64 { return product(a, b) + c } // fused`,
		"statements": `func Statements(a, b, c float32) float32 {
	p := a * b
	return p + c // fused
}`,
		"complexes": `func Complex(a, b complex128) complex128 { return a * b } // fused`,
		"quotient":  `func Quotient(a, b complex128) complex128 { return a / b } // fused`,
		"rounded":   `func Rounded(a, b, c float64) float64 { return float64(a*b) + c }`,
		"wanted": `import "math"

func Wanted(a, b, c float64) float64 { return math.FMA(a, b, c) }`,
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "go.mod"), []byte("module fixture\n\ngo 1.26\n"), 0o600))
	var packages, wantPackages, want []string
	for name, body := range bodies {
		path, code := name+"/fixture.go", "package "+name+"\n\n"+body+"\n"
		require.NoError(t, os.Mkdir(filepath.Join(root, name), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, path), []byte(code), 0o600))
		packages = append(packages, "fixture/"+name)
		for i, line := range strings.Split(code, "\n") {
			if strings.HasSuffix(line, "// fused") {
				wantPackages, want = append(wantPackages, "fixture/"+name), append(want, path+":"+strconv.Itoa(i+1))
			}
		}
	}
	for _, to := range fusingTargets() {
		require.ElementsMatch(t, wantPackages, suspects(t, root, "fixture", to, packages...), to.name)
		require.ElementsMatch(t, want, slices.Collect(maps.Keys(fused(t, root, "fixture", to, packages...))), to.name)
	}
}

// exactFunctions lists the functions of math, math/cmplx and math/rand whose results are equal on
// every machine: they are exact, rounded once, or work on bits.
func exactFunctions() map[string][]string {
	return map[string][]string{
		"math": {
			"Abs", "Ceil", "Copysign", "FMA", "Float32bits", "Float32frombits", "Float64bits", "Float64frombits",
			"Floor", "Frexp", "Inf",
			"IsInf", "IsNaN", "Ldexp", "Max", "Min", "Mod", "Modf", "NaN", "Nextafter", "Nextafter32", "Pow10", "Round",
			"RoundToEven",
			"Signbit", "Sqrt", "Trunc",
		},
		"math/cmplx": {"Conj", "Inf", "IsInf", "IsNaN", "NaN"},
		"math/rand/v2": {"New", "NewPCG", "NewChaCha8", "Float32", "Float64", "Int64N", "IntN", "N", "Perm", "Rand",
			"Shuffle", "Uint32", "Uint64", "Uint64N"},
	}
}

// constants matches the names of the constants of package math.
var constants = regexp.MustCompile(`^((Max|Min|Smallest)[A-Z]\w+|Pi|E|Phi|Sqrt(2|E|Pi|Phi)|Ln(2|10)|Log(2|10)E)$`)

// checkFunctions calls report for each use of a function of math whose results may differ between
// machines. Constants are exact.
func checkFunctions(file *ast.File, report func(node ast.Node, name string)) {
	names := map[string]string{} // of the packages in this file
	for _, spec := range file.Imports {
		path, _ := strconv.Unquote(spec.Path.Value) // already parsed
		if exactFunctions()[path] != nil {
			name := strings.TrimSuffix(path, "/v2")
			name = name[strings.LastIndexByte(name, '/')+1:]
			if spec.Name != nil {
				name = spec.Name.Name
			}
			names[name] = path
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if s.Sel.Name == "NormFloat64" || s.Sel.Name == "ExpFloat64" { // also as methods of a generator
			report(s, s.Sel.Name)
			return true
		}
		if id, ok := s.X.(*ast.Ident); ok && names[id.Name] != "" {
			path := names[id.Name]
			if !slices.Contains(exactFunctions()[path], s.Sel.Name) && !constants.MatchString(s.Sel.Name) {
				report(s, path+"."+s.Sel.Name)
			}
		}
		return true
	})
}

// Where bits matter, functions of math whose results differ between machines are those of
// internal/rounded.
func TestNoInexactFunctions(t *testing.T) {
	t.Parallel()
	tr := parse(t)
	for _, s := range tr.files {
		if s.test || !isExact(s.pkg) {
			continue
		}
		checkFunctions(s.ast, func(node ast.Node, name string) {
			t.Errorf("%s: %s has other bits on other machines, expected a function of internal/rounded",
				tr.line(s, node), name)
		})
	}
}

// TestInexactFunctionsAreFound checks the check itself.
func TestInexactFunctionsAreFound(t *testing.T) {
	t.Parallel()
	const code = `package fixture

import (
	m "math"
	"math/cmplx"
	"math/rand/v2"
)

func f(x float64, z complex128, r *rand.Rand) any {
	g := m.Exp // Exp
	_ = m.Sqrt(x) + m.MaxFloat64 + m.Sqrt2 + m.Ln10 + m.Log2E + m.Max(x, m.Pi)
	_ = m.Log2(x) // Log2
	_ = rand.NormFloat64() // NormFloat64
	_ = r.ExpFloat64() // ExpFloat64
	_ = cmplx.IsNaN(z)
	return cmplx.Abs(z) + g(x) // Abs
}
`
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "fixture.go", code, parser.SkipObjectResolution)
	require.NoError(t, err)
	found := map[int]string{}
	checkFunctions(file, func(node ast.Node, name string) {
		found[set.Position(node.Pos()).Line] = name[strings.LastIndexByte(name, '.')+1:]
	})
	want := map[int]string{}
	for i, line := range strings.Split(code, "\n") {
		if _, name, ok := strings.Cut(line, "// "); ok {
			want[i+1] = name
		}
	}
	require.Equal(t, want, found)
}
