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
// embeddings. A worker that leaves one tensor behind gets no work.
func TestVLLM(t *testing.T) {
	venv := os.Getenv("EASYRL_VLLM")
	if venv == "" {
		t.Skip("EASYRL_VLLM is not set to a folder that deploy/vllm/install-cpu has filled")
	}
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "run", "../../examples/addition", "-out", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, c := range []struct {
		name, worker string
		tied         bool
	}{
		{"tied", "easyrl_worker.EasyRL", true},
		{"untied", "easyrl_worker.EasyRL", false},
		{"stale", "stale_worker.Stale", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			model := additionModel(t, dir, c.name, c.tied)
			url := startVLLM(t, venv, model, c.worker)
			for _, lr := range []string{"3e-4", "1e-6"} {
				run := filepath.Join(dir, c.name+lr)
				code, _, errs := command(t, "train", "../../configs/quickstart.toml", "-set", "run.dir="+run, "-set", "run.steps=5",
					"-set", "model.path="+model, "-set", "data.train="+filepath.Join(dir, "train.jsonl"), "-set", "data.eval=[]",
					"-set", "rollout.prompts_per_step=4", "-set", "reward.kind=overlong", "-set", "reward.buffer=48", "-set", "reward.think=false",
					"-set", "train.lr="+lr, "-set", "train.schedule=constant", "-set", "train.warmup=0", "-set", "eval.every=0",
					"-set", "inference.kind=vllm", "-set", "inference.endpoints="+url, "-set", "inference.wait_seconds=5")
				if c.worker == "stale_worker.Stale" {
					require.Equal(t, exitFailed, code, errs)
					require.Contains(t, errs, "Update the worker deploy/vllm/easyrl_worker.py")
					require.NotContains(t, errs, "step 1/5", "no step is trained")
					continue
				}
				require.Equal(t, exitDone, code, errs)
				steps, err := report.ReadMetrics(filepath.Join(run, report.MetricsFile))
				require.NoError(t, err)
				require.Len(t, steps, 5)
				for i, values := range steps {
					require.Less(t, values["mismatch/logprob_abs_max"], 1e-3, "lr %s, step %d", lr, i+1)
					require.Positive(t, values["actor/grad_norm"], "the weights change")
				}
			}
		})
	}
}

// additionModel writes the model of examples/addition with random weights.
func additionModel(t *testing.T, dir, name string, tied bool) string {
	t.Helper()
	config := filepath.Join(dir, "model", name+".json")
	shape, err := os.ReadFile(filepath.Join(dir, "model", "config.json"))
	require.NoError(t, err)
	require.Contains(t, string(shape), `"tie_word_embeddings": true`)
	changed := strings.Replace(string(shape), `"tie_word_embeddings": true`, fmt.Sprintf(`"tie_word_embeddings": %v`, tied), 1)
	require.NoError(t, os.WriteFile(config, []byte(changed), 0o600))
	out := filepath.Join(dir, name)
	code, _, errs := command(t, "init", "-config", config, "-out", out)
	require.Zero(t, code, errs)
	return out
}

// startVLLM starts vLLM with a worker extension and returns its address when it serves.
// The worker may be one of testdata.
func startVLLM(t *testing.T, venv, model, worker string) string {
	t.Helper()
	here, err := os.Getwd()
	require.NoError(t, err)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().String()
	require.NoError(t, free.Close())
	host, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), filepath.Join(venv, "bin", "vllm"), "serve", model, "--host", host, "--port", port,
		"--worker-extension-cls", worker, "--logprobs-mode", "processed_logprobs", "--dtype", "float32", "--enforce-eager")
	cmd.Env = append(os.Environ(), "VLLM_SERVER_DEV_MODE=1", "VLLM_CPU_KVCACHE_SPACE=1", "HF_HUB_OFFLINE=1",
		"PYTHONPATH="+filepath.Join(here, "testdata")+":"+filepath.Join(here, "..", "..", "deploy", "vllm"), "PYTHONDONTWRITEBYTECODE=1")
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
