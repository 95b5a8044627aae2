package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// workerScript runs the worker extension as vLLM does, as a base class, with stand-ins
// for torch, safetensors and vLLM.
const workerScript = `
import contextlib, sys, types

def module(name, **attributes):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(attributes)

class File(contextlib.nullcontext):
    def __init__(self, path, framework, device):
        super().__init__(self)
        self.tensors = dict(line.split() for line in open(path))
    def keys(self): return self.tensors.keys()
    def get_tensor(self, name): return self.tensors[name]

configured = []

@contextlib.contextmanager
def configure(config):
    configured.append(config)
    yield
    configured.pop()

module("torch", inference_mode=contextlib.nullcontext, cuda=types.SimpleNamespace(is_available=lambda: False))
module("safetensors", safe_open=File)
module("vllm")
module("vllm.config", set_current_vllm_config=configure)

class Model:
    def __init__(self): self.weights = {"a": "0", "b": "0"}
    def named_parameters(self): return self.weights.items()
    def load_weights(self, tensors):
        assert configured
        seen = dict(tensors)
        self.weights.update(seen)
        return set(seen)

class Old:
    def __init__(self): self.model = Model()
    def get_model(self): return self.model
    def reload_weights(self): raise AssertionError("the first weights again")

class New(Old):
    def reload_weights(self, weights_iterator=None, weights_path=None):
        self.model.load_weights(weights_iterator)

from easyrl_worker import EasyRL

class Worker(EasyRL):
    def __init__(self, runner, quantization):
        self.model_runner = runner
        self.vllm_config = types.SimpleNamespace(model_config=types.SimpleNamespace(quantization=quantization))

for name, worker in (("new", Worker(New(), "fp8")), ("old", Worker(Old(), None)), ("quantized", Worker(Old(), "fp8"))):
    print(name, repr(worker.easyrl_held()), sep="|")
    for folder in sys.argv[1:]:
        said = worker.easyrl_load(folder, "v1-x")
        print(name, said, repr(worker.easyrl_held()), *worker.model_runner.model.weights.values(), sep="|")
`

// The extension claims weights only once they are loaded, and reports failures.
func TestVLLMWorker(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	folder := func(tensors string) string {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors"), []byte(tensors), 0o600))
		return dir
	}
	whole, part, none := folder("a 1\nb 2\n"), folder("a 3\n"), t.TempDir()
	cmd := exec.CommandContext(t.Context(), python, "-c", workerScript, whole, none, part) //nolint:gosec // of this test
	cmd.Env = append(os.Environ(), "PYTHONPATH=vllm", "PYTHONDONTWRITEBYTECODE=1")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	file := filepath.Join(none, "model.safetensors")
	missing := "FileNotFoundError: [Errno 2] No such file or directory: '" + file + "'"
	require.Equal(t, strings.Join([]string{
		"new|''", "new|v1-x|'v1-x'|1|2", "new|" + missing + "|''|1|2", "new|v1-x|'v1-x'|3|2",
		"old|''", "old|v1-x|'v1-x'|1|2", "old|" + missing + "|''|1|2",
		"old|ValueError: " + filepath.Join(part, "model.safetensors") + " lacks 1 of the model's tensors, such as b|''|3|2",
		"quantized|''",
		"quantized|ValueError: this vLLM cannot load new weights into a quantized model|''|0|0",
		"quantized|ValueError: this vLLM cannot load new weights into a quantized model|''|0|0",
		"quantized|ValueError: this vLLM cannot load new weights into a quantized model|''|0|0",
	}, "\n"), strings.TrimSpace(string(out)))
}
