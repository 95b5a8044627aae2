package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/soak"
	"github.com/easyrl/easyrl/internal/tracetest"
	"github.com/easyrl/easyrl/model/arch"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/trace"
	"github.com/easyrl/easyrl/trainer"
)

// TestMain also lets the test binary act as the command, in a process that a test can
// kill, and as a run's reward command.
func TestMain(m *testing.M) {
	if mode := os.Getenv("EASYRL_TEST_AS_REWARD"); mode != "" {
		scoreBadly(mode)
		return
	}
	if os.Getenv("EASYRL_TEST_AS_COMMAND") != "" {
		heldMain()
		impatientMain()
		main()
	}
	soak.Parallel(4)
	os.Exit(m.Run())
}

// alone runs the rest of a test in a process of its own, beside other tests. A test that counts what belongs to
// its process, such as goroutines, or that sets environment variables, begins with it. alone returns true in that
// process.
func alone(t *testing.T) bool {
	t.Helper()
	const name = "EASYRL_TEST_ALONE"
	if os.Getenv(name) == t.Name() {
		return true
	}
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), name+"="+t.Name())
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
	return false
}

// tinyRun writes a model's config.json, a character tokenizer, prompts and a run
// configuration to a folder and returns it. The run starts from random weights.
func tinyRun(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, content string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	write("config.json",
		`{"model_type":"qwen3","hidden_size":32,"intermediate_size":48,"num_hidden_layers":2,"num_attention_heads":4,
		"num_key_value_heads":2,"head_dim":8,"vocab_size":16,"max_position_embeddings":64,"rms_norm_eps":1e-6,`+
			`"rope_theta":10000,
		"hidden_act":"silu","tie_word_embeddings":true,"eos_token_id":1,"initializer_range":0.05}`)
	write("tokenizer_config.json", `{"char_ords":[48,49,50,51,52,53,54,55,56,57,44,58],"model_max_length":64}`)
	var prompts, held strings.Builder
	for i := range 23 {
		fmt.Fprintf(&prompts, `{"prompt":"%d,%d","answer":"%d"}`+"\n", i%10, i/10, i%4)
		fmt.Fprintf(&held, `{"prompt":"%d:%d","answer":"%d"}`+"\n", i%10, i/10, i%4)
	}
	write("prompts.jsonl", prompts.String())
	require.NoError(t, os.Mkdir(filepath.Join(dir, "held"), 0o755))
	write(filepath.Join("held", "prompts.jsonl"), held.String())
	write("run.toml", fmt.Sprintf(`
[run]
steps = 5
[model.init]
config = %q
[data]
train = %q
eval = %q
max_prompt_tokens = 16
[rollout]
prompts_per_step = 6
group_size = 4
max_tokens = 12
[reward]
kind = "prefix"
[train]
lr = 1e-2
micro_batch_tokens = 64
[inference]
max_running = 7
threads = 1
[device]
threads = 1
[checkpoint]
every = 1
[eval]
every = 0
`, filepath.Join(dir, "config.json"), filepath.Join(dir, "prompts.jsonl"), filepath.Join(dir, "held", "prompts.jsonl")))
	return dir
}

// trainTiny trains the tiny run in dir into its own folder and returns that folder.
func trainTiny(t *testing.T, dir, name string, settings ...string) string {
	t.Helper()
	out, _ := trainTinyLog(t, dir, name, settings...)
	return out
}

// trainTinyLog is trainTiny with what the run prints on its standard error.
func trainTinyLog(t *testing.T, dir, name string, settings ...string) (out, log string) {
	t.Helper()
	out = filepath.Join(dir, name)
	args := []string{"train", filepath.Join(dir, "run.toml"), "-set", "run.dir=" + fmt.Sprintf("%q", out)}
	for _, s := range settings {
		args = append(args, "-set", s)
	}
	status, _, stderr := command(t, args...)
	require.Zero(t, status, stderr)
	return out, stderr
}

// weightsHash returns the hash of the weights in a step's checkpoint.
func weightsHash(t testing.TB, runDir string, step int) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(runDir, "checkpoints", fmt.Sprintf("step-%06d", step), "model.safetensors"))
	require.NoError(t, err)
	return fmt.Sprintf("%x", sha256.Sum256(b))
}

// The paper claims that periodic asynchrony is "completely equivalent to the
// synchronization method". Here it holds to the last bit, whatever the mode, the number of
// instances, their sizes and their threads.
func TestModesEndInSameWeights(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	sync := trainTiny(t, dir, "sync", "run.mode=sync")
	want := weightsHash(t, sync, 5)
	for name, settings := range map[string][]string{
		"async-1":   {"run.mode=periodic-async", "inference.instances=1"},
		"async-2":   {"run.mode=periodic-async", "inference.instances=2", "device.threads=2"},
		"async-3":   {"run.mode=periodic-async", "inference.instances=3", "inference.max_running=64"},
		"colocated": {"run.mode=colocated", "inference.threads=2", "device.threads=2"},
		"recompute": {"train.recompute=true", "train.micro_batch_tokens=128"},
	} {
		t.Run(name, func(t *testing.T) {
			out := trainTiny(t, dir, name, settings...)
			require.Equal(t, want, weightsHash(t, out, 5))
			steps, err := report.ReadMetrics(filepath.Join(out, report.MetricsFile))
			require.NoError(t, err)
			require.Len(t, steps, 5)
			for _, values := range steps {
				require.Zero(t, values["mismatch/logprob_abs_max"])
				require.Zero(t, values["mismatch/kl"])
			}
		})
	}
	require.NotEqual(t, want, weightsHash(t, trainTiny(t, dir, "seed", "run.seed=2"), 5),
		"another seed gives other weights")
}

// The same holds with several mini-batches per step, and with the paper's old policy, which
// is one step behind.
func TestVariantsEndInSameWeights(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	for name, settings := range map[string][]string{
		"minibatches": {"train.minibatches=3"},
		"previous":    {"loss.old_policy=previous-step", "train.minibatches=2"},
		"reference":   {"loss.beta=0.1"},
		"gspo":        {"loss.kind=gspo", "loss.aggregation=sequence-mean", "train.minibatches=2"},
		"cispo":       {"loss.kind=cispo", "train.minibatches=2"},
		"whole batch": {"loss.kind=reinforce", "loss.advantage=batch"},
		"rloo":        {"loss.kind=reinforce", "loss.advantage=leave-one-out", "loss.aggregation=constant"},
		"filtered":    {"loss.keep=2"},
		"replaced":    {"rollout.dynamic_sampling=2"},
		"corrected":   {"loss.correction=mask", "rollout.top_p=0.9"},
	} {
		t.Run(name, func(t *testing.T) {
			a := trainTiny(t, dir, name+"-sync", append(settings, "run.mode=sync")...)
			b := trainTiny(t, dir, name+"-async", append(settings, "inference.instances=2")...)
			require.Equal(t, weightsHash(t, a, 5), weightsHash(t, b, 5))
		})
	}
}

// A trainer killed at any instant resumes and ends in the same bits.
func TestKilledRunResumesToSameWeights(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	for name, settings := range map[string][]string{
		"plain":    nil,
		"previous": {"loss.old_policy=previous-step", "train.minibatches=2"},
		"eval":     {"eval.every=2", "loss.beta=0.05"},
	} {
		t.Run(name, func(t *testing.T) {
			want := weightsHash(t, trainTiny(t, dir, name+"-whole", settings...), 5)
			out := filepath.Join(dir, name+"-killed")
			args := []string{"train", filepath.Join(dir, "run.toml"), "-set", "run.dir=" + fmt.Sprintf("%q", out)}
			for _, s := range settings {
				args = append(args, "-set", s)
			}
			killAfter(t, "step 2/5", args...)
			status, _, stderr := command(t, append(args, "-resume")...)
			require.Zero(t, status, stderr)
			require.Contains(t, stderr, "resum")
			require.Equal(t, want, weightsHash(t, out, 5))
			steps, err := report.ReadMetrics(filepath.Join(out, report.MetricsFile))
			require.NoError(t, err)
			seen := map[float64]int{}
			for _, values := range steps {
				seen[values["step"]]++
			}
			for step := 1.0; step <= 5; step++ {
				require.Equal(t, 1, seen[step], "step %v in metrics.jsonl", step)
			}
			trace, err := os.ReadFile(filepath.Join(out, trace.File))
			require.NoError(t, err)
			_, err = tracetest.Read(trace)
			require.NoError(t, err)
			require.Regexp(t, `"name":"(step|eval)","ph":"X",[^{}]*"args":{"step":[01]}`, string(trace),
				"span of the killed process")
			require.Regexp(t, `"name":"step","ph":"X",[^{}]*"args":{"step":5}`, string(trace),
				"span of the next process")
		})
	}
}

// A replayed step has the learning rate of the run's schedule, or of one that is set.
func TestReplayFollowsSchedule(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	run := trainTiny(t, dir, "run", "checkpoint.keep=0", "train.schedule=cosine", "run.steps=3")
	rate := func(model string, settings ...string) float64 {
		out := filepath.Join(t.TempDir(), "out")
		args := []string{"replay", "-model", model, "-rollouts",
			filepath.Join(run, "rollouts", "step-000001.jsonl"), "-out", out}
		for _, setting := range settings {
			args = append(args, "-set", setting)
		}
		status, _, stderr := command(t, args...)
		require.Zero(t, status, stderr)
		values, err := report.ReadMetrics(filepath.Join(out, report.MetricsFile))
		require.NoError(t, err)
		return values[0]["actor/lr"]
	}
	last := filepath.Join(run, "checkpoints", "step-000002")
	require.InDelta(t, 1e-2*(1+math.Cos(2*math.Pi/3))/2, rate(last), 1e-9, "the run's")
	require.InDelta(t, 1e-2*(1-2.0/8), rate(last, "train.schedule=linear", "run.steps=8"), 1e-9, "as set")
	end := filepath.Join(run, "checkpoints", "step-000003")
	require.InDelta(t, 1e-2, rate(end, "train.schedule=constant"), 1e-9, "after the last step")
	fresh := filepath.Join(dir, "fresh")
	require.NoError(t, os.CopyFS(fresh, os.DirFS(last)))
	require.NoError(t, os.RemoveAll(filepath.Join(fresh, "trainer")))
	require.InDelta(t, 1e-2, rate(fresh), 1e-9, "first step of a model without a checkpoint")
	status, _, stderr := command(t, "replay", "-model", last, "-rollouts",
		filepath.Join(run, "rollouts", "step-000003.jsonl"),
		"-out", filepath.Join(dir, "rejected"), "-set", "run.steps=2")
	require.Equal(t, 2, status)
	require.Contains(t, stderr, "-set: run.steps is 2, expected at least 3, the step to take")
}

// With the aggregation "constant", replay divides by rollout.max_tokens as the run does, even if
// all responses are shorter, and refuses a number below the longest. Its checkpoint records its arithmetic.
func TestReplayDividesByTheConstant(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	run := trainTiny(t, dir, "run", "loss.aggregation=constant", "run.steps=1")
	norm := func(most int) float64 {
		out := filepath.Join(dir, fmt.Sprint("replayed-", most))
		status, _, stderr := command(t, "replay", "-model",
			filepath.Join(run, "checkpoints", "step-000001"), "-out", out,
			"-rollouts", filepath.Join(run, "rollouts", "step-000001.jsonl"), "-set",
			fmt.Sprintf("rollout.max_tokens=%d", most))
		require.Zero(t, status, stderr)
		state, err := trainer.ReadState(out)
		require.NoError(t, err)
		require.Equal(t, npu.FP32.Identity(), state.Arithmetic())
		steps, err := report.ReadMetrics(filepath.Join(out, report.MetricsFile))
		require.NoError(t, err)
		return steps[0]["actor/grad_norm"]
	}
	require.InEpsilon(t, 2*norm(48), norm(24), 1e-5)
	status, _, stderr := command(t, "replay", "-model", filepath.Join(run, "checkpoints", "step-000001"),
		"-rollouts", filepath.Join(run, "rollouts", "step-000001.jsonl"), "-out", filepath.Join(dir, "out"),
		"-set", "rollout.max_tokens=11")
	require.Equal(t, exitUsage, status)
	requireOneLine(t, stderr, "-set: rollout.max_tokens is 11, expected 12 or more as in ")
}

// The moments of supervised training are those of another loss. Replay starts from the
// model alone, and says so.
func TestReplayDropsMomentsOfSFT(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	demos := filepath.Join(dir, "demos.jsonl")
	require.NoError(t, os.WriteFile(demos, []byte(strings.Repeat(`{"prompt":"1,2","completion":"3"}`+"\n", 8)), 0o644))
	tuned := filepath.Join(dir, "tuned")
	status, _, stderr := command(t, "sft", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", tuned),
		"-set", fmt.Sprintf("sft.data=%q", demos),
		"-set", "sft.steps=3", "-set", "sft.batch_size=4", "-set", "data.train=[]", "-set", "data.eval=[]")
	require.Zero(t, status, stderr)
	run := trainTiny(t, dir, "run", "run.steps=1")
	from := filepath.Join(tuned, "checkpoints", "step-000003")
	plain := filepath.Join(dir, "plain")
	require.NoError(t, os.CopyFS(plain, os.DirFS(from)))
	require.NoError(t, os.RemoveAll(filepath.Join(plain, "trainer")))
	stepped := func(model string) (weights []byte, stderr string) {
		out := filepath.Join(t.TempDir(), "out")
		status, _, stderr := command(t, "replay", "-model", model, "-rollouts",
			filepath.Join(run, "rollouts", "step-000001.jsonl"), "-out", out, "-set", "train.lr=1e-2")
		require.Zero(t, status, stderr)
		weights, err := os.ReadFile(filepath.Join(out, "model.safetensors"))
		require.NoError(t, err)
		return weights, stderr
	}
	want, stderr := stepped(plain)
	require.NotContains(t, stderr, "sft")
	got, stderr := stepped(from)
	require.Contains(t, stderr,
		"was written by easyrl sft: replay starts from its weights, and the optimizer state from zero")
	require.Equal(t, sha256.Sum256(want), sha256.Sum256(got))
}

// A recorded log-probability equals the one from easyrl logprobs.
func TestRolloutsMatchLogprobs(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	run := trainTiny(t, dir, "run", "run.steps=2", "checkpoint.keep=0")
	shape, err := arch.ReadConfig(dir)
	require.NoError(t, err)
	path := filepath.Join(run, "rollouts", "step-000002.jsonl")
	text, err := trainer.ReadRollouts(path)
	require.NoError(t, err)
	groups, err := trainer.ParseGroups(path, text, shape)
	require.NoError(t, err)
	var in strings.Builder
	for _, g := range groups {
		for _, r := range g.Responses {
			line, err := json.Marshal(map[string]any{"ids": slices.Concat(g.Prompt.IDs, r.Spans.IDs())})
			require.NoError(t, err)
			in.Write(append(line, '\n'))
		}
	}
	var out, errs bytes.Buffer
	status := runWith(&out, &errs, in.String(), "logprobs", "-model", filepath.Join(run, "checkpoints", "step-000001"))
	require.Zero(t, status, errs.String())
	answers := json.NewDecoder(&out)
	for _, g := range groups {
		for _, r := range g.Responses {
			var row struct {
				Logprobs []float32 `json:"logprobs"`
			}
			require.NoError(t, answers.Decode(&row))
			require.Equal(t, r.Spans[0].Logprobs, row.Logprobs[len(g.Prompt.IDs)-1:])
		}
	}
}

func runWith(out, errs io.Writer, in string, args ...string) int {
	return execute(context.Background(), streams{in: strings.NewReader(in), out: out, err: errs}, args)
}
