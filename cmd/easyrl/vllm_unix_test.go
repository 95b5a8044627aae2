//go:build unix

package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report"
)

// A real vLLM samples as the trainer computes after every update, with tied and untied
// embeddings, and with a trainer whose weights are divided among ranks. A worker that leaves one tensor behind gets
// no work.
func TestVLLM(t *testing.T) {
	venv, dir := vllmAndData(t)
	for _, c := range []struct {
		name, worker string
		tied         bool
		settings     []string
	}{
		{"tied", "easyrl_worker.EasyRL", true, nil},
		{"untied", "easyrl_worker.EasyRL", false, nil},
		{"divided", "easyrl_worker.EasyRL", true, []string{"parallel.tp=2", "parallel.pp=2"}},
		{"stale", "stale_worker.Stale", true, nil},
		{"stale and divided", "stale_worker.Stale", true, []string{"parallel.tp=2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			model := additionModel(t, dir, c.name, c.tied)
			url := startVLLM(t, venv, model, c.worker)
			for _, lr := range []string{"3e-4", "1e-6"} {
				if c.worker == "stale_worker.Stale" {
					code, errs := runAddition(t, dir, filepath.Join(dir, "run-"+c.name+lr), model, url, lr,
						c.settings...)
					require.Equal(t, exitFailed, code, errs)
					require.Contains(t, errs, "Update the worker deploy/vllm/easyrl_worker.py")
					require.NotContains(t, errs, "step 1/5", "no step is trained")
					continue
				}
				requireMatchingSteps(t, trainAddition(t, dir, model, url, lr, c.settings...))
			}
		})
	}
}

// expertsScript writes a mixture of experts with the tokenizer of a folder.
const expertsScript = `
import glob, json, shutil, sys
from transformers import AutoConfig, AutoModelForCausalLM
source, out = sys.argv[1:]
shape = {k: v for k, v in json.load(open(source + "/config.json")).items() if k in ("vocab_size", ` +
	`"eos_token_id", "max_position_embeddings")}
AutoModelForCausalLM.from_config(AutoConfig.for_model(
    "qwen3_moe", hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, ` +
	`num_key_value_heads=2, head_dim=32,
    num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True, pad_token_id=0, ` +
	`**shape)).save_pretrained(out)
for path in glob.glob(source + "/tokenizer*"):
    shutil.copy(path, out)
`

// PyTorch ranks train what a real vLLM samples, also a mixture of experts, which our kernels
// do not compute.
func TestVLLMTorch(t *testing.T) {
	interpreter := python(t)
	venv, dir := vllmAndData(t)
	dense, experts := additionModel(t, dir, "dense", true), filepath.Join(dir, "experts")
	out, err := exec.CommandContext(t.Context(), interpreter, "-c", expertsScript, dense,
		experts).CombinedOutput() //nolint:gosec // of this test
	require.NoError(t, err, "%s", out)
	for _, model := range []string{dense, experts} {
		t.Run(filepath.Base(model), func(t *testing.T) {
			url := startVLLM(t, venv, model, "easyrl_worker.EasyRL")
			requireMatchingSteps(t, trainAddition(t, dir, model, url, "3e-4", "train.backend=torch",
				"torch.python="+interpreter))
		})
	}
}

// A real vLLM samples with the adapter of each version, also in a resumed run. One that leaves
// out one kind of layer gets no work, nor does one that takes no adapters.
func TestVLLMAdapters(t *testing.T) {
	interpreter := python(t)
	venv, dir := vllmAndData(t)
	model := additionModel(t, dir, "dense", true)
	settings := []string{"train.backend=torch", "torch.python=" + interpreter, "torch.lora_rank=4",
		"torch.publish=adapter"}
	lora := []string{"--enable-lora", "--max-lora-rank", "8"}
	for _, c := range []struct {
		name, want string
		flags      []string
	}{
		{"whole", "", lora},
		{"partial", "an update does not reach every tensor",
			append(lora, "--lora-target-modules", "qkv_proj", "gate_up_proj", "down_proj")},
		{"none", "Run vLLM with --enable-lora", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			url := startVLLM(t, venv, model, "easyrl_worker.EasyRL", c.flags...)
			if c.want != "" {
				code, errs := runAddition(t, dir, filepath.Join(dir, c.name), model, url, "3e-3", settings...)
				require.Equal(t, exitFailed, code, errs)
				require.Contains(t, errs, c.want)
				require.NotContains(t, errs, "step 1/5", "no step is trained")
				return
			}
			run := trainAddition(t, dir, model, url, "3e-3", append(settings, "run.steps=3")...)
			args := []string{"train", filepath.Join(run, "run.toml"), "-resume", "-set", "run.steps=5"}
			code, _, errs := command(t, args...)
			require.Equal(t, exitDone, code, errs)
			requireMatchingSteps(t, run)
		})
	}
}

// trainAddition trains a model for 5 steps with responses of vLLM and returns the run's folder.
func trainAddition(t *testing.T, dir, model, url, lr string, settings ...string) string {
	t.Helper()
	run := filepath.Join(dir, "run-"+filepath.Base(model)+lr)
	code, errs := runAddition(t, dir, run, model, url, lr, settings...)
	require.Equal(t, exitDone, code, errs)
	return run
}

func runAddition(t *testing.T, dir, run, model, url, lr string, settings ...string) (code int, errs string) {
	t.Helper()
	args := []string{"train", "../../configs/quickstart.toml"}
	for _, s := range append([]string{
		"run.dir=" + run, "run.steps=5", "model.path=" + model, "data.train=" + filepath.Join(dir, "train.jsonl"),
		"data.eval=[]",
		"rollout.prompts_per_step=4", "reward.kind=overlong", "reward.buffer=48", "reward.think=false",
		"train.lr=" + lr, "train.schedule=constant", "train.warmup=0", "eval.every=0",
		"inference.kind=vllm", "inference.endpoints=" + url, "inference.wait_seconds=5",
	}, settings...) {
		args = append(args, "-set", s)
	}
	code, _, errs = command(t, args...)
	return code, errs
}

// requireMatchingSteps checks that vLLM computed each step's log-probabilities as the trainer
// did.
func requireMatchingSteps(t *testing.T, run string) {
	t.Helper()
	steps, err := report.ReadMetrics(filepath.Join(run, report.MetricsFile))
	require.NoError(t, err)
	require.Len(t, steps, 5)
	for i, values := range steps {
		require.Less(t, values["mismatch/logprob_abs_max"], 1e-3, "%s, step %d", run, i+1)
		require.Positive(t, values["actor/grad_norm"], "the weights change")
	}
}

// vllmAndData returns the folder of an installed vLLM and one with the data of
// examples/addition, or skips the test.
func vllmAndData(t *testing.T) (venv, dir string) {
	t.Helper()
	venv, dir = os.Getenv("EASYRL_VLLM"), t.TempDir()
	if venv == "" {
		t.Skip("EASYRL_VLLM is not set to a folder that deploy/vllm/install-cpu has filled")
	}
	out, err := exec.CommandContext(t.Context(), "go", "run", "../../examples/addition", "-out", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return venv, dir
}

// additionModel writes the model of examples/addition with random weights.
func additionModel(t *testing.T, dir, name string, tied bool) string {
	t.Helper()
	config := filepath.Join(dir, "model", name+".json")
	shape, err := os.ReadFile(filepath.Join(dir, "model", "config.json"))
	require.NoError(t, err)
	require.Contains(t, string(shape), `"tie_word_embeddings": true`)
	changed := strings.Replace(string(shape), `"tie_word_embeddings": true`,
		fmt.Sprintf(`"tie_word_embeddings": %v`, tied), 1)
	require.NoError(t, os.WriteFile(config, []byte(changed), 0o600))
	out := filepath.Join(dir, name)
	code, _, errs := command(t, "init", "-config", config, "-out", out)
	require.Zero(t, code, errs)
	return out
}

// startVLLM starts vLLM with a worker extension and returns its address when it serves.
// The worker may be one of testdata. flags follow the others.
func startVLLM(t *testing.T, venv, model, worker string, flags ...string) string {
	t.Helper()
	here, err := os.Getwd()
	require.NoError(t, err)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().String()
	require.NoError(t, free.Close())
	host, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	args := append([]string{"serve", model, "--host", host, "--port", port,
		"--worker-extension-cls", worker, "--logprobs-mode", "processed_logprobs", "--dtype", "float32",
		"--enforce-eager"}, flags...)
	cmd := exec.CommandContext(t.Context(), filepath.Join(venv, "bin", "vllm"), args...) //nolint:gosec // of this test
	cmd.Env = append(os.Environ(), "VLLM_SERVER_DEV_MODE=1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True",
		"VLLM_CPU_KVCACHE_SPACE=1", "HF_HUB_OFFLINE=1",
		"PYTHONPATH="+filepath.Join(here, "testdata")+":"+filepath.Join(here, "..", "..", "deploy", "vllm"),
		"PYTHONDONTWRITEBYTECODE=1")
	log, err := os.Create(filepath.Join(t.TempDir(), "vllm.log"))
	require.NoError(t, err)
	defer log.Close() //nolint:errcheck // only vLLM writes it
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // vLLM starts other processes
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() { <-ended }) // t.Context is over by then
	for {
		if resp, err := http.Get("http://" + address + "/health"); err == nil {
			require.NoError(t, resp.Body.Close())
			return "http://" + address
		}
		select {
		case <-ended:
			said, _ := os.ReadFile(log.Name())
			require.FailNow(t, "vLLM ended", "%s", said)
		case <-time.After(time.Second):
		}
	}
}
