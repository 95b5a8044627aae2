package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/porttest"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/arch"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/run"
	"github.com/easyrl/easyrl/torch/fake"
	torchwire "github.com/easyrl/easyrl/torch/wire"
)

// checksum returns the checksum of the weights in a step's checkpoint.
func checksum(t *testing.T, runDir string, step int) string {
	t.Helper()
	dir := filepath.Join(runDir, "checkpoints", fmt.Sprintf("step-%06d", step))
	shape, err := arch.ReadConfig(dir)
	require.NoError(t, err)
	dev, err := run.OpenCPU(1)
	require.NoError(t, err)
	defer dev.Close()
	w, err := model.NewWeights(dev, shape, npu.Weights)
	require.NoError(t, err)
	require.NoError(t, w.Load(dir))
	return w.Checksum()
}

// startFakes starts ranks that compute with easyrl's own kernels. It returns the settings of a
// run that trains on them.
func startFakes(t *testing.T, world int, fault func(at fake.Moment) fake.Fault) []string {
	t.Helper()
	settings, _ := startEndingFakes(t, world, fault)
	return settings
}

// tinyFormat returns the format in which a tiny run sums gradients: its updates have 24 responses
// of up to 12 tokens.
func tinyFormat() npu.FixedPoint { return optim.FixedPoint(24*12, 24) }

// startEndingFakes is startFakes with a channel that is closed when a run has ended the ranks.
func startEndingFakes(t *testing.T, world int, fault func(at fake.Moment) fake.Fault) (
	settings []string, ended <-chan struct{}) {
	t.Helper()
	return startEnding(t, &fake.Ranks{World: world, Fault: fault})
}

// startFakesAs is startFakes for ranks that the caller has described.
func startFakesAs(t *testing.T, ranks *fake.Ranks) []string {
	t.Helper()
	settings, _ := startEnding(t, ranks)
	return settings
}

// startEnding starts ranks.
func startEnding(t *testing.T, ranks *fake.Ranks) (settings []string, ended <-chan struct{}) {
	t.Helper()
	address := porttest.Address(t)
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("secret\n"), 0o600))
	ranks.Format, ranks.Token = tinyFormat(), "secret"
	ranks.Dial = func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ranks.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return []string{"train.backend=torch", fmt.Sprintf("torch.listen=%q", address),
		fmt.Sprintf("torch.token_file=%q", token),
		fmt.Sprintf("parallel.dp=%d", ranks.World)}, done
}

// A run that stops leaves its ranks to the run that resumes. The end of that one ends them.
func TestRanksOutliveStop(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	settings, ended := startEndingFakes(t, 1, func(at fake.Moment) fake.Fault {
		if at.Kind == "backward" && at.ID >= 2 { // a step may have one micro-batch, and a step without signal none
			stop()
		}
		return fake.None
	})
	settings = append(settings, fmt.Sprintf("run.dir=%q", filepath.Join(dir, "out")))
	resolved, err := run.Load(configs.TrainTask, []string{filepath.Join(dir, "run.toml")}, settings)
	require.NoError(t, err)
	var stopped run.StoppedError
	require.ErrorAs(t, run.Train(ctx, resolved, run.Options{Out: io.Discard, Log: io.Discard}), &stopped)
	require.NoError(t, run.Train(t.Context(), resolved, run.Options{Out: io.Discard, Log: io.Discard, Resume: true}))
	<-ended
}

// mustResume continues a run of trainTiny in its folder out.
func mustResume(t *testing.T, dir, out string, settings ...string) {
	t.Helper()
	code, errs := resumeTiny(t, dir, out, settings...)
	require.Zero(t, code, errs)
}

// Ranks that compute with easyrl's kernels end in the weights of training without ranks: the
// trainer asks both for the same. That holds if one of them dies and if the run is resumed.
func TestRanksEndInSameWeights(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	settings := []string{"loss.beta=0.01", "checkpoint.every=2"}
	want := checksum(t, trainTiny(t, dir, "alone", settings...), 5)
	require.Equal(t, want, checksum(t, trainTiny(t, dir, "ranks", append(startFakes(t, 1, nil), settings...)...), 5))

	var died atomic.Bool
	dies := func(at fake.Moment) fake.Fault {
		if at.Kind == "backward" && at.ID == 3 && died.CompareAndSwap(false, true) {
			return fake.Die
		}
		return fake.None
	}
	require.Equal(t, want, checksum(t, trainTiny(t, dir, "dies", append(startFakes(t, 1, dies), settings...)...), 5))
	require.True(t, died.Load())

	out := trainTiny(t, dir, "parts", append(startFakes(t, 1, nil), append(settings, "run.steps=2")...)...)
	mustResume(t, dir, out, append(startFakes(t, 1, nil), settings...)...)
	require.Equal(t, want, checksum(t, out, 5), "a resumed run")

	replayed := filepath.Join(dir, "replayed")
	args := []string{"replay", "-model", filepath.Join(out, "checkpoints", "step-000004"),
		"-rollouts", filepath.Join(out, "rollouts", "step-000005.jsonl"), "-out",
		filepath.Join(replayed, "checkpoints", "step-000005")}
	for _, s := range startFakes(t, 1, nil) {
		args = append(args, "-set", s)
	}
	status, _, errs := command(t, args...)
	require.Zero(t, status, errs)
	require.Equal(t, want, checksum(t, replayed, 5), "a replayed step")
}

// Two replicas share the groups of a step. A run on ranks can continue one without, and the
// other way round.
func TestReplicas(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	out := trainTiny(t, dir, "two", append(startFakes(t, 2, nil), "run.steps=2")...)
	lines, err := report.ReadMetrics(filepath.Join(out, report.MetricsFile))
	require.NoError(t, err)
	require.Len(t, lines, 2)
	for _, values := range lines {
		require.Equal(t, 6.0, values["groups/trained"])
		require.Less(t, values["mismatch/logprob_abs_max"], 1e-6)
		require.Positive(t, values["memory/optimizer_bytes"])
	}
	for i, backend := range [][]string{nil, startFakes(t, 1, nil)} {
		mustResume(t, dir, out, append(backend, fmt.Sprintf("run.steps=%d", 3+i))...)
	}
}

func TestTorchSettings(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	base := []string{"train", filepath.Join(dir, "run.toml"), "-set",
		fmt.Sprintf("run.dir=%q", filepath.Join(dir, "out")), "-set", "train.backend=torch"}
	for setting, want := range map[string]string{
		"parallel.pp=2": `parallel.pp is 2, expected 1 with train.backend = "torch"`,
		"loss.old_policy=previous-step": `loss.old_policy is "previous-step", expected "behaviour" with ` +
			`train.backend = "torch"`,
		"torch.python=/no/such/python": `/no/such/python`,
		"torch.mode=loose":             `torch.mode is "loose", expected "auto", "free" or "lockstep"`,
		"torch.listen=\"127.0.0.1:0\"": `torch.token_file is "", expected a file if listen is set`,
	} {
		status, _, errs := command(t, append(base, "-set", setting)...)
		require.NotZero(t, status, setting)
		require.Contains(t, errs, want)
		require.Equal(t, 1, strings.Count(errs, "error:"), errs)
	}
}

// Ranks in bfloat16 beside instances in float32 are a warning, also of check, unless nothing samples.
func TestTorchTypeWarning(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	base := []string{"-static", filepath.Join(dir, "run.toml"),
		"-set", fmt.Sprintf("run.dir=%q", filepath.Join(dir, "out")), "-set", "train.backend=torch", "-set",
		"torch.python=none"}
	check := func(settings ...string) string {
		args := append([]string{"check"}, base...)
		for _, s := range settings {
			args = append(args, "-set", s)
		}
		_, _, errs := command(t, args...)
		return errs
	}
	const warning = `warning: PyTorch ranks compute in bfloat16 (torch.dtype = "bfloat16"), but `
	require.Equal(t, 1, strings.Count(check("torch.dtype=bfloat16"), warning+"embedded instances sample in float32: "))
	server := "inference.endpoints=[\"http://127.0.0.1:1\"]"
	served := check("torch.dtype=bfloat16", "inference.kind=easyrl", server)
	require.Contains(t, served, warning+"easyrl servers sample in float32: ")
	require.NotContains(t, check("torch.dtype=bfloat16", "inference.kind=vllm", server), "in float32")
	require.NotContains(t, check("torch.dtype=float32"), "in float32")
	require.NotContains(t, check(), "in float32", "the ranks decide")
	require.NotContains(t, check("torch.dtype=bfloat16", "train.backend=easyrl"), "in float32")

	ranks := startFakesAs(t, &fake.Ranks{World: 1, Ready: func(_ int, m *torchwire.Ready) {
		m.DType, m.Packed, m.Attention = "bfloat16", true, "easyrl_segments"
		m.Reason, m.Slowdown = "easyrl_flex: InductorError: no choices", 2.8
	}})
	_, log := trainTinyLog(t, dir, "auto", append(ranks, "run.steps=1")...)
	require.Equal(t, 1,
		strings.Count(log, `PyTorch ranks compute in bfloat16 (torch.dtype = "auto"), but embedded instances `), log)
	require.Equal(t, 1, strings.Count(log, "take 2.8 times as long as the model's own attention"), log)
}

// Ranks that run out of memory train the step in smaller micro-batches, and the run learns what
// it learns with enough memory.
func TestTorchOutOfMemory(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	settings := []string{"run.steps=3", "loss.beta=0.01"} // each response has a gradient, so that a group can be cut
	want := metricsOf(t, trainTiny(t, dir, "enough", append(startFakes(t, 1, nil), settings...)...))
	ranks := startFakesAs(t, &fake.Ranks{World: 1, Memory: func(start int) int {
		if start == 1 {
			return 1 // less than any group
		}
		return 0
	}})
	out, log := trainTinyLog(t, dir, "little", append(ranks, settings...)...)
	require.Contains(t, log, "rows, from now on at most ")
	got := metricsOf(t, out)
	require.Len(t, got, len(want))
	for i := range want {
		for _, name := range []string{"actor/loss", "actor/grad_norm", "tokens/response", "reward/mean"} {
			require.InDelta(t, want[i][name], got[i][name], 1e-5, "%s of step %d", name, i+1)
		}
	}
}

// python returns the Python that has PyTorch, or skips the test.
func python(t *testing.T) string {
	t.Helper()
	path := os.Getenv("EASYRL_TORCH")
	if path == "" {
		t.Skip("EASYRL_TORCH is not set, expected a Python with PyTorch")
	}
	return path
}

// PyTorch ranks train the tiny run like our kernels, change ranks on the way, and train an
// adapter.
func TestTorch(t *testing.T) {
	interpreter := python(t)
	dir := tinyRun(t)
	settings := []string{"run.steps=4", "train.lr=1e-3"}
	own := trainTiny(t, dir, "own", settings...)
	settings = append(settings, "train.backend=torch", "torch.python="+interpreter)
	ranks := trainTiny(t, dir, "ranks", append(settings, "run.steps=2", "parallel.dp=2")...)
	mustResume(t, dir, ranks, settings...)
	got := metricsOf(t, ranks)
	for i, want := range metricsOf(t, own) {
		require.Less(t, got[i]["mismatch/logprob_abs_max"], 1e-4, "step %d", i+1)
		for _, name := range []string{"reward/mean", "actor/grad_norm", "actor/entropy"} {
			require.InEpsilon(t, 1+want[name], 1+got[i][name], 1e-3, "%s of step %d", name, i+1)
		}
	}
	adapter := trainTiny(t, dir, "adapter", append(settings, "torch.lora_rank=2")...)
	require.FileExists(t, filepath.Join(adapter, "checkpoints", "step-000004", "adapter", "adapter_model.safetensors"))
	require.Len(t, metricsOf(t, adapter), 4)
}
