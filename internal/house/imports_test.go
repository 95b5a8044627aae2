package house

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// floors lists the layers of packages from the bottom up. A package imports only packages
// of lower floors.
func floors() [][]string {
	return [][]string{
		{"internal/bytesize", "internal/plain", "internal/filetype", "internal/foreign", "internal/paths",
			"internal/exactsum", "internal/rounded", "internal/secret"},
		{"tokenizer/chat/internal/py", "tokenizer/internal/budget", "tokenizer/internal/spm", "tokenizer/internal/ucd",
			"internal/lossy", "reward/grade/expr", "reward/program",
			"internal/indexed", "internal/accept", "internal/guard", "internal/jsonlines", "internal/usage",
			"internal/splitmix", "internal/spelling", "internal/notice", "internal/writable", "internal/peer"},
		{"internal/cli", "reward/queue", "reward/wire", "tokenizer/chat/internal/syntax", "reward/grade/algebra",
			"reward/grade/markup", "inference/server/internal/wire",
			"tokenizer/internal/text"},
		{"reward/grade/words", "tokenizer/internal/split"},
		{"reward/grade/measure", "tokenizer/internal/bpe"},
		{"reward/grade/question"},
		{"tokenizer/chat/internal/engine", "reward/grade/answer"},
		{"tokenizer/chat/calls"},
		{"npu/bf16"},
		{"rollout", "loss", "npu", "npu/csrc", "tokenizer", "checkpoint", "report", "report/steptime",
			"reward/grade", "tokenizer/chat", "trainer/schedule"},
		{"npu/internal/check", "npu/nputest/reference", "data/parquet", "report/sink", "report/advice", "report/trace",
			"report/chart"},
		{"npu/internal/ctable", "report/page"},
		{"attention", "parallel", "parallel/pipeline", "report/control", "reward", "inference", "inference/discover",
			"data", "npu/cpu", "npu/host"},
		{"model/carry", "parallel/mpi", "parallel/paralleltest", "parallel/tcp", "inference/fleet/state",
			"inference/remote/publish", "inference/remote/internal/transport", "inference/server/internal/api",
			"backend/schedule", "torch/wire"},
		{"inference/fleet", "attention/cache", "attention/rope", "model/tensor", "npu/device", "rollout/sample"},
		{"model/layer"},
		{"attention/sublayer"},
		{"model/arch"},
		{"model/source"},
		{"model", "optim", "producer", "run/evaluate", "report/control/client", "inference/server", "inference/remote",
			"npu/nputest", "npu/far"},
		{"backend"},
		{"backend/session"},
		{"tri_model", "inference/engine", "inference/canary", "inference/fleet/membership", "inference/simulate",
			"torch", "torch/fake"},
		{"tri_model/sharded/reduce"},
		{"trainer/verify", "torch/models", "tri_model/sharded"},
		{"trainer", "bench/roofline", "model/folder"},
		{"configs"},
		{"run/compare", "run/cores", "run/dataset", "run/instances", "run/memory", "run/score"},
		{"run/findings", "run/ranks"},
		{"run"},
		{"run/serve"},
		{"cmd/easyrl"},
	}
}

// forTests lists the packages that only tests import, except for internal packages with a
// floor. Examples have no floor, nor do benchmarks that cmd/easyrl does not offer.
func forTests() []string {
	return []string{"internal", "npu/nputest", "npu/far", "parallel/paralleltest", "torch/fake"}
}

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
			t.Errorf("%s: package %s has no floor, add it to floors()", s.path, s.pkg)
			continue
		}
		for _, path := range s.imports() {
			lower := floorOf(path)
			switch {
			case lower >= 0 && lower >= floor:
				t.Errorf("%s: %s imports %s, expected only packages of lower floors", s.path, s.pkg, path)
			case lower < 0 && under(path, "examples", "bench"):
				t.Errorf("%s: %s imports %s, which has no floor", s.path, s.pkg, path)
			case under(path, forTests()...) && !under(s.pkg, forTests()...) && (lower < 0 || !under(path, "internal")):
				t.Errorf("%s: imports %s, which only tests may import", s.path, path)
			}
		}
	}
}

// Some packages may be imported only in certain folders, tests included.
func TestForbiddenImports(t *testing.T) {
	t.Parallel()
	rules := []struct {
		path    string   // with all packages below it
		allowed []string // folders
		why     string
	}{
		{"gorgonia.org", []string{"loss"}, "only objectives over tokens use autodiff"},
		{"github.com/valyala/fasthttp", []string{"inference/server", "report", "internal/guard"},
			"net/http serves everything else"},
		{"github.com/fasthttp/router", []string{"inference/server", "report"}, "net/http serves everything else"},
		{"C", []string{"npu", "parallel"}, "only devices and ranks use cgo"},
		{"github.com/pelletier/go-toml", []string{"configs"}, "configs is the only reader of TOML"},
		{"github.com/stretchr/testify/assert", nil, "use require: a test stops at its first failure"},
		{"github.com/pkg/errors", nil, "use errors and fmt.Errorf"},
		{"log", nil, "return errors and print notes on the run's console"},
		{"math/rand", nil, "use math/rand/v2, whose generators are documented"},
		{"producer", []string{"run", "bench"}, "run connects producer and trainer"},
		{"trainer", []string{"run"}, "run connects producer and trainer"},
		{"configs", []string{"cmd", "run", "deploy", "examples", "internal"},
			"run derives each package's configuration"},
	}
	inTests := []string{"producer", "trainer", "npu/cpu"} // scenarios with real parts
	for _, s := range parse(t).files {
		for _, path := range s.imports() {
			for _, rule := range rules {
				exact := rule.path == "log" || rule.path == "math/rand"
				if path != rule.path && (exact || !under(path, rule.path)) {
					continue
				}
				if !under(s.pkg, rule.allowed...) && s.pkg != rule.path &&
					!(s.test && slices.Contains(inTests, rule.path)) {
					t.Errorf("%s imports %s: %s", s.path, path, rule.why)
				}
			}
		}
	}
}

// Training, producing and evaluating depend only on the contract of inference, not on its
// implementation. Tests may use real parts.
func TestInferenceIsAContract(t *testing.T) {
	t.Parallel()
	for _, s := range parse(t).files {
		if s.test || !under(s.pkg, "producer", "trainer", "run/evaluate", "rollout") {
			continue
		}
		for _, path := range s.imports() {
			if path != "inference" && under(path, "inference") {
				t.Errorf("%s imports %s, expected only package inference", s.path, path)
			}
		}
	}
}

// The module has no vendored code and no replacements: go.mod lists everything in the
// binary.
func TestNoVendoredCode(t *testing.T) {
	t.Parallel()
	walk(t, func(path string) {
		require.False(t, strings.HasPrefix(path, "vendor/") || strings.Contains(path, "/third_party/"), path)
	})
	require.NotContains(t, string(read(t, "go.mod")), "\nreplace ")
}
