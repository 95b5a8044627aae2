package house

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// floors of the house, from the ground up: a package imports packages of lower
// floors only.
func floors() [][]string {
	return [][]string{
		{"tokenizer/chat/internal/py", "tokenizer/internal/pairs", "tokenizer/internal/scan", "tokenizer/internal/spm", "tokenizer/internal/text", "reward/grade/expr", "reward/grade/wording", "reward/program",
			"inference/remote/internal/flow", "model/rope", "inference/server/internal/exposition", "inference/server/internal/fields", "inference/server/internal/lease",
			"inference/server/internal/openai", "internal/indexed", "internal/accept", "internal/usage", "internal/splitmix", "internal/spelling"},
		{"internal/cli", "reward/queue", "reward/wire", "reward/service", "tokenizer/chat/internal/pyjson", "tokenizer/chat/internal/str", "tokenizer/chat/internal/syntax", "reward/grade/algebra", "inference/server/internal/wire",
			"tokenizer/internal/split"},
		{"tokenizer/chat/internal/format", "reward/grade/answer", "tokenizer/internal/bpe"},
		{"tokenizer/chat/internal/method"},
		{"tokenizer/chat/internal/filter"},
		{"tokenizer/chat/internal/engine"},
		{"rollout", "loss", "npu", "npu/csrc", "tokenizer", "checkpoint", "report", "report/steptime", "reward/grade",
			"data/parquet/internal/codec", "data/parquet/internal/thrift", "tokenizer/chat"},
		{"npu/internal/check", "npu/nputest/reference", "data/parquet", "data/turns", "report/sink", "report/advice", "report/trace", "report/chart"},
		{"npu/internal/ctable", "report/page"},
		{"attention", "parallel", "report/control", "reward", "inference", "inference/discover", "data", "npu/cpu", "npu/host", "npu/plugin"},
		{"inference/fleet/state", "inference/remote/publish", "inference/remote/internal/transport", "inference/server/internal/feed", "inference/server/internal/reply"},
		{"inference/remote/internal/completions", "inference/server/internal/job", "inference/fleet", "model/panels", "model/tensor", "npu/device", "rollout/sample"},
		{"inference/remote/internal/labelled", "inference/server/internal/answer"},
		{"model", "optim", "producer", "run/evaluate", "inference/join", "report/control/client", "inference/simulate", "inference/server", "inference/remote", "npu/nputest"},
		{"tri_model", "inference/engine", "inference/canary", "inference/fleet/membership", "inference/simulate/backend"},
		{"trainer", "bench/roofline", "model/folder"},
		{"configs"},
		{"run/compare", "run/dataset", "run/instances"},
		{"run"},
		{"run/serve"},
		{"cmd/easyrl"},
	}
}

// forTests are the packages that only tests import, those of internal that stand
// on a floor aside. The examples are on none, nor are the measurements of bench
// that cmd/easyrl does not offer.
func forTests() []string { return []string{"internal", "npu/nputest"} }

func floorOf(pkg string) int {
	return slices.IndexFunc(floors(), func(floor []string) bool { return slices.Contains(floor, pkg) })
}

func TestFloors(t *testing.T) {
	t.Parallel()
	for _, s := range parse(t).files {
		floor := floorOf(s.pkg)
		if s.test || floor < 0 && under(s.pkg, "internal", "examples", "bench") {
			continue
		}
		if floor < 0 {
			t.Errorf("%s: package %s is on no floor, expected it in floors()", s.path, s.pkg)
			continue
		}
		for _, path := range s.imports() {
			lower := floorOf(path)
			switch {
			case lower >= 0 && lower >= floor:
				t.Errorf("%s: %s imports %s, which is no lower floor", s.path, s.pkg, path)
			case lower < 0 && under(path, "examples", "bench"):
				t.Errorf("%s: %s imports %s, which is on no floor", s.path, s.pkg, path)
			case under(path, forTests()...) && !under(s.pkg, forTests()...) && (lower < 0 || !under(path, "internal")):
				t.Errorf("%s: imports %s, which only tests may", s.path, path)
			}
		}
	}
}

// Who may import what, tests included.
func TestForbiddenImports(t *testing.T) {
	t.Parallel()
	rules := []struct {
		path    string   // and what is below it
		allowed []string // folders
		why     string
	}{
		{"gorgonia.org", []string{"loss"}, "autodiff is for objectives over tokens"},
		{"github.com/valyala/fasthttp", []string{"inference/server", "report"}, "net/http serves everything else"},
		{"github.com/fasthttp/router", []string{"inference/server", "report"}, "net/http serves everything else"},
		{"C", []string{"npu", "parallel"}, "cgo lives where the devices are"},
		{"github.com/pelletier/go-toml", []string{"configs"}, "configs is the only reader of TOML"},
		{"github.com/stretchr/testify/assert", nil, "a test stops at its first fault: require"},
		{"github.com/pkg/errors", nil, "errors and fmt.Errorf do it"},
		{"log", nil, "errors are returned and notes go to the console of the run"},
		{"math/rand", nil, "math/rand/v2 has a documented generator"},
		{"producer", []string{"run", "bench"}, "run connects producer and trainer"},
		{"trainer", []string{"run"}, "run connects producer and trainer"},
		{"configs", []string{"cmd", "run", "deploy", "examples", "internal"}, "run turns a configuration into that of each package"},
	}
	inTests := []string{"producer", "trainer", "npu/cpu", "npu/plugin"} // a scenario of real parts
	for _, s := range parse(t).files {
		for _, path := range s.imports() {
			for _, rule := range rules {
				exact := rule.path == "log" || rule.path == "math/rand"
				if path != rule.path && (exact || !under(path, rule.path)) {
					continue
				}
				if !under(s.pkg, rule.allowed...) && s.pkg != rule.path && !(s.test && slices.Contains(inTests, rule.path)) {
					t.Errorf("%s imports %s: %s", s.path, path, rule.why)
				}
			}
		}
	}
}

// What trains, produces and evaluates knows the contract of inference alone, and
// none of its parts. Tests put real parts together.
func TestInferenceIsAContract(t *testing.T) {
	t.Parallel()
	for _, s := range parse(t).files {
		if s.test || !under(s.pkg, "producer", "trainer", "run/evaluate", "rollout") {
			continue
		}
		for _, path := range s.imports() {
			if path != "inference" && under(path, "inference") {
				t.Errorf("%s imports %s, expected nothing of inference but its contract", s.path, path)
			}
		}
	}
}

// The module's own packages have no assembly of their own and no vendored code:
// what the binary is made of is in go.mod.
func TestNoVendoredCode(t *testing.T) {
	t.Parallel()
	walk(t, func(path string) {
		require.False(t, strings.HasPrefix(path, "vendor/") || strings.Contains(path, "/third_party/"), path)
	})
	require.NotContains(t, string(read(t, "go.mod")), "\nreplace ")
}
