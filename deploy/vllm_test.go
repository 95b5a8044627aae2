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

class Layer:
    def __init__(self, weights, tied=None):
        self.weights = dict.fromkeys(weights, "0")
        self.own = {name: object() for name in weights} | (tied.own if tied else {})
        self.tied, self.packed, self.quant_method = tied, "0", self
    def parameters(self, recurse): return self.own.values()
    def process_weights_after_loading(self, layer): layer.packed = layer.tied.weights["a"]

class Model:
    packed_modules_mapping = {"qk": ["q", "k"]}
    def __init__(self):
        self.body = Layer(["a", "x.qk.w"])
        self.head = Layer([], self.body)
    def modules(self): return [self, self.body, self.head]
    def named_modules(self): return []
    def parameters(self, recurse): return []
    def named_parameters(self): return self.body.weights.items()
    def load_weights(self, tensors):
        assert configured
        loaded = set()
        for name, value in tensors:
            name = name.replace(".q.", ".qk.").replace(".k.", ".qk.")
            if name in self.body.weights and value != "skipped":
                self.body.weights[name] = value
                loaded.add(name)
        return loaded

class Old:
    def __init__(self): self.model = Model()
    def get_model(self): return self.model
    def reload_weights(self): raise AssertionError("the first weights again")

class New(Old):
    def reload_weights(self, weights_iterator=None, weights_path=None):
        self.model.load_weights(weights_iterator)

class Forwards(New):
    def reload_weights(self, *args, **kwargs): super().reload_weights(*args, **kwargs)

from easyrl_worker import EasyRL

class Worker(EasyRL):
    def __init__(self, runner, quantization=None, stages=1):
        self.model_runner = runner
        self.vllm_config = types.SimpleNamespace(
            model_config=types.SimpleNamespace(quantization=quantization),
            parallel_config=types.SimpleNamespace(pipeline_parallel_size=stages))

for name, worker in (("new", Worker(New())), ("stages", Worker(New(), stages=2)), ("fp8", Worker(New(), "fp8")),
                     ("forwards", Worker(Forwards())), ("forwards fp8", Worker(Forwards(), "fp8")),
                     ("old", Worker(Old())), ("old fp8", Worker(Old(), "fp8"))):
    print(name, repr(worker.easyrl_held()), sep="|")
    for path in sys.argv[1:]:
        said = worker.easyrl_load(path, "v1")
        model = worker.model_runner.model
        assert vars(model).keys() == {"body", "head"}
        print(name, path.split("/")[-1], said.replace(path, "DIR"), repr(worker.easyrl_held()),
              *model.body.weights.values(), model.head.packed, sep="|")
`

// The extension claims weights only once all are loaded and reports failures. It updates
// a head that is tied to the embedding.
func TestVLLMWorker(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	require.FileExists(t, "vllm/easyrl_worker.py") // for the test cache
	dir := t.TempDir()
	args := []string{"-c", workerScript}
	for _, f := range []struct{ name, tensors string }{
		{"whole", "a 1\nx.q.w 2\nx.k.w 3\n"}, {"none", ""}, {"part", "a 4\nx.q.w 5\n"},
		{"skipped", "a skipped\nx.q.w 6\nx.k.w 7\n"}, {"more", "a 8\nx.q.w 9\nx.k.w 10\ny 11\n"},
	} {
		path := filepath.Join(dir, f.name)
		require.NoError(t, os.Mkdir(path, 0o755))
		args = append(args, path)
		if f.tensors != "" {
			require.NoError(t, os.WriteFile(filepath.Join(path, "model.safetensors"), []byte(f.tensors), 0o600))
		}
	}
	cmd := exec.CommandContext(t.Context(), python, args...) //nolint:gosec // of this test
	cmd.Env = append(os.Environ(), "PYTHONPATH=vllm", "PYTHONDONTWRITEBYTECODE=1")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	const (
		missing = "|FileNotFoundError: [Errno 2] No such file or directory: 'DIR/model.safetensors'|''|"
		lacks   = "|ValueError: DIR/model.safetensors lacks 1 of the model's tensors, such as x.k.w|''|"
		ignored = "|ValueError: vLLM did not load 1 of the tensors in DIR/model.safetensors, such as "
		refused = "|ValueError: this vLLM cannot load new weights into a quantized model|''|0|0|0"
	)
	require.Equal(t, []string{
		"new|''", "new|whole|v1|'v1'|1|3|1", "new|none" + missing + "1|3|1", "new|part" + lacks + "4|5|4",
		"new|skipped" + ignored + "a|''|4|7|4", "new|more" + ignored + "y|''|8|10|8",
		"stages|''", "stages|whole|v1|'v1'|1|3|1", "stages|none" + missing + "1|3|1", "stages|part" + lacks + "4|5|4",
		"stages|skipped" + ignored + "a|''|4|7|4", "stages|more|v1|'v1'|8|10|8",
		"fp8|''", "fp8|whole|v1|'v1'|1|3|1", "fp8|none" + missing + "1|3|1", "fp8|part|v1|'v1'|4|5|4",
		"fp8|skipped|v1|'v1'|4|7|4", "fp8|more|v1|'v1'|8|10|8",
		"forwards|''", "forwards|whole|v1|'v1'|1|3|1", "forwards|none" + missing + "1|3|1",
		"forwards|part" + lacks + "4|5|4",
		"forwards|skipped" + ignored + "a|''|4|7|4", "forwards|more" + ignored + "y|''|8|10|8",
		"forwards fp8|''", "forwards fp8|whole|v1|'v1'|1|3|1", "forwards fp8|none" + missing + "1|3|1",
		"forwards fp8|part|v1|'v1'|4|5|4", "forwards fp8|skipped|v1|'v1'|4|7|4", "forwards fp8|more|v1|'v1'|8|10|8",
		"old|''", "old|whole|v1|'v1'|1|3|1", "old|none" + missing + "1|3|1", "old|part" + lacks + "4|5|4",
		"old|skipped" + ignored + "a|''|4|7|4", "old|more" + ignored + "y|''|8|10|8",
		"old fp8|''", "old fp8|whole" + refused, "old fp8|none" + refused, "old fp8|part" + refused,
		"old fp8|skipped" + refused, "old fp8|more" + refused,
	}, strings.Split(strings.TrimSpace(string(out)), "\n"))
}

const signaturesScript = `
import functools
import easyrl_worker

def old(): pass
def named(weights_iterator=None, weights_path=None): pass
def required(weights_iterator, *, is_checkpoint_format=True): pass
def forwards(*args, **kwargs): pass
def keywords(**kwargs): pass
def positional(*args): pass
def by_place(weights_iterator, /): pass
def needs_more(weights_iterator, weights_path): pass

@functools.wraps(old)
def wraps_old(*args, **kwargs): pass

@functools.wraps(named)
def wraps_named(*args, **kwargs): pass

class Runner:
    def reload_weights(self, *args, **kwargs): pass

for f in (old, named, required, forwards, keywords, positional, by_place, needs_more, wraps_old, wraps_named,
          Runner().reload_weights, functools.partial(named, weights_path=None), dict.pop):
    print(getattr(f, "__qualname__", "partial"), easyrl_worker._takes_tensors(f))
`

// The extension reloads through vLLM whenever the reload takes tensors, under whatever signature.
func TestVLLMWorkerKnowsReloads(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"old False", "named True", "required True", "forwards True", "keywords True",
		"positional False",
		"by_place False", "needs_more False", "old False", "named True", "Runner.reload_weights True", "partial True",
		"dict.pop False"}, strings.Split(strings.TrimSpace(runPython(t, signaturesScript)), "\n"))
}

const expertsScript = `
import easyrl_worker

class Experts:
    def get_expert_mapping(self):
        return [(f"experts.{stack}_", f"experts.{i}.{part}.", i, "") for i in range(2)
                for stack, part in (("w13", "gate"), ("w13", "up"), ("w2", "down"))]
    def named_parameters(self, recurse): return [("w13_weight", None), ("w2_weight", None)]

class Model:
    def get_expert_mapping(self): raise AssertionError("of another form")
    def named_modules(self): return [("", self), ("m.0.experts.routed", Experts())]

for parameter, tensors in easyrl_worker._experts(Model()).items():
    print(parameter, *sorted(tensors))
`

// The extension knows the tensors that vLLM stacks into the parameters of experts.
func TestVLLMWorkerKnowsExperts(t *testing.T) {
	t.Parallel()
	out := runPython(t, expertsScript)
	require.Equal(t, "m.0.experts.routed.w13_weight m.0.experts.0.gate.weight m.0.experts.0.up.weight "+
		"m.0.experts.1.gate.weight m.0.experts.1.up.weight\n"+
		"m.0.experts.routed.w2_weight m.0.experts.0.down.weight m.0.experts.1.down.weight\n", out)
}

const packScript = `
import types
import easyrl_worker
easyrl_worker._tensors = lambda path: iter([])

class Kernel:
    def process_weights_after_loading(self, layer): layer.weights = "packed " + layer.weights

class Layer:
    def __init__(self, device):
        self.weights, self.device = "first", types.SimpleNamespace(device=types.SimpleNamespace(type=device))
        self.quant_method = types.SimpleNamespace(moe_kernel=types.SimpleNamespace(fused_experts=Kernel()))
    def parameters(self, recurse): return [self.device]

class Model:
    def __init__(self, device): self.layer = Layer(device)
    def modules(self): return [types.SimpleNamespace(), self.layer]
    def load_weights(self, tensors): self.layer.weights = "new"

def omits(model): pass
def packs(model): model.layer.quant_method.moe_kernel.fused_experts.process_weights_after_loading(model.layer)
def rebuilds(model):
    model.layer.quant_method.moe_kernel.fused_experts = Kernel()
    packs(model)

for device in ("cpu", "cuda"):
    for after in (omits, packs, rebuilds):
        model = Model(device)
        def reload(weights_iterator):
            model.load_weights(weights_iterator)
            after(model)
        for _ in range(2):
            easyrl_worker._reload(reload, model, "path")
            print(device, after.__name__, model.layer.weights)
`

// The extension packs the experts' weights once on CPUs, whether or not vLLM does.
func TestVLLMWorkerPacksExperts(t *testing.T) {
	t.Parallel()
	out := runPython(t, packScript)
	for _, want := range []string{"cpu omits packed new", "cpu packs packed new", "cpu rebuilds packed new",
		"cuda omits new", "cuda packs packed new", "cuda rebuilds packed new"} {
		require.Equal(t, 2, strings.Count(out, want+"\n"), out)
	}
}

// runPython runs a script that can import the extension and returns what it prints.
func runPython(t *testing.T, script string) string {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	cmd := exec.CommandContext(t.Context(), python, "-c", script) //nolint:gosec // of this test
	cmd.Env = append(os.Environ(), "PYTHONPATH=vllm", "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}
