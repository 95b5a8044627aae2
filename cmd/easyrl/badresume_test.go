package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/trainer"
)

func corrupt(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	b[len(b)/2] ^= 1
	require.NoError(t, os.WriteFile(path, b, 0o644))
}

// resumeTiny resumes a tiny run.
func resumeTiny(t *testing.T, dir, run string, settings ...string) (code int, errs string) {
	t.Helper()
	args := []string{"train", filepath.Join(dir, "run.toml"), "-resume", "-set", fmt.Sprintf("run.dir=%q", run), "-set",
		"checkpoint.keep=0"}
	for _, s := range settings {
		args = append(args, "-set", s)
	}
	code, _, errs = command(t, args...)
	return code, errs
}

// A run resumes from the newest valid checkpoint, names the invalid ones, and ends in the
// weights of an uninterrupted run.
func TestResumeSkipsBadCheckpoints(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	whole := trainTiny(t, dir, "whole", "checkpoint.keep=0")
	want := weightsHash(t, whole, 5)
	for name, test := range map[string]struct {
		spoil func(t *testing.T, checkpoints string)
		said  []string
	}{
		"half written": {func(t *testing.T, c string) {
			require.NoError(t, os.Rename(filepath.Join(c, "step-000005"),
				filepath.Join(c, ".tmp-step-000005-00c0ffee")))
		}, []string{"resuming after step 4 from "}},
		"no manifest": {func(t *testing.T, c string) {
			require.NoError(t, os.Remove(filepath.Join(c, "step-000005", "trainer", "manifest.json")))
		}, []string{"step-000005: no trainer/manifest.json: the checkpoint is incomplete",
			"resuming after step 4 from "}},
		"one flipped bit": {func(t *testing.T, c string) {
			corrupt(t, filepath.Join(c, "step-000005", "model.safetensors"))
		}, []string{"step-000005: model.safetensors: sha256 ", "resuming after step 4 from "}},
		"two damaged checkpoints": {func(t *testing.T, c string) {
			require.NoError(t, os.Truncate(filepath.Join(c, "step-000005", "trainer", optimizerFile), 100))
			require.NoError(t, os.Remove(filepath.Join(c, "step-000004", "config.json")))
		}, []string{"step-000005: trainer/optimizer.safetensors: 100 bytes, expected ",
			"step-000004: config.json: missing", "resuming after step 3 from "}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := copyDir(t, whole, t.TempDir(), "run")
			test.spoil(t, filepath.Join(run, "checkpoints"))
			code, errs := resumeTiny(t, dir, run)
			require.Zero(t, code, errs)
			for _, said := range test.said {
				require.Contains(t, errs, said)
			}
			require.Equal(t, want, weightsHash(t, run, 5))
			require.NoError(t, checkpoint.Verify(filepath.Join(run, "checkpoints", "step-000005")))
			steps, err := report.ReadMetrics(filepath.Join(run, report.MetricsFile))
			require.NoError(t, err)
			require.Len(t, steps, 5)
		})
	}
}

// setState replaces text, by as much or less, in the state of a checkpoint and updates its checksum. The size stays.
func setState(t *testing.T, folder, before, after string) {
	t.Helper()
	path, list := filepath.Join(folder, "trainer", "state.json"), filepath.Join(folder, "trainer", "manifest.json")
	state, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(state), before)
	other := []byte(strings.Replace(string(state), before, fmt.Sprintf("%-*s", len(before), after), 1))
	require.NoError(t, os.WriteFile(path, other, 0o644))
	manifest, err := os.ReadFile(list)
	require.NoError(t, err)
	sum := func(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }
	require.Contains(t, string(manifest), sum(state))
	require.NoError(t, os.WriteFile(list, []byte(strings.Replace(string(manifest), sum(state), sum(other), 1)), 0o644))
}

// A checkpoint of other numerics, or of another version of them, is refused. One that names none but has the version
// is of float32; one without either, of PyTorch ranks, is accepted with a warning.
func TestResumeWithOtherNumerics(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	run := trainTiny(t, dir, "run", "run.steps=1", "checkpoint.keep=0")
	folder := filepath.Join(run, "checkpoints", "step-000001")
	const numerics = `"numerics_name": "float32",`
	version := fmt.Sprintf(`"numerics": %d,`, npu.NumericsVersion)
	now := npu.FP32.Identity()
	refused := func(want string, settings ...string) {
		t.Helper()
		before, err := os.ReadDir(filepath.Join(run, "checkpoints"))
		require.NoError(t, err)
		code, errs := resumeTiny(t, dir, run, append(settings, "run.steps=2")...)
		require.Equal(t, exitUsage, code, errs)
		requireOneLine(t, errs, want)
		after, err := os.ReadDir(filepath.Join(run, "checkpoints"))
		require.NoError(t, err)
		require.Len(t, after, len(before))
	}

	refused(fmt.Sprintf("resume: device.numerics is %s, but %s was trained in %s, expected the same. "+
		"Set device.numerics = \"float32\", or ", npu.BF16.Identity(), folder, now), "device.numerics=bf16")

	setState(t, folder, version, `"numerics": 1,`)
	refused(fmt.Sprintf("resume: this easyrl computes in %s, but %s was trained in float32 (version 1), expected the "+
		"same. Resume with the easyrl that wrote it, or ", now, folder))
	setState(t, folder, `"numerics": 1,`, version)

	setState(t, folder, numerics, `"numerics_name": "bf16",`)
	refused(fmt.Sprintf("device.numerics is %s, but %s was trained in %s, ", now, folder, npu.BF16.Identity()))

	setState(t, folder, `"numerics_name": "bf16",`, "") // as before numerics had names
	refused("was trained in "+now.String(), "device.numerics=bf16")
	const warning = "was trained in unknown numerics (PyTorch ranks, or easyrl before version 2 of its numerics), " +
		"now in "
	code, errs := resumeTiny(t, dir, run, "run.steps=2")
	require.Zero(t, code, errs)
	require.NotContains(t, errs, warning)

	folder = filepath.Join(run, "checkpoints", "step-000002")
	setState(t, folder, numerics, "")
	setState(t, folder, version, "")
	code, errs = resumeTiny(t, dir, run, "run.steps=3")
	require.Zero(t, code, errs)
	require.Contains(t, errs, warning+now.String())
	state, err := trainer.ReadState(filepath.Join(run, "checkpoints", "step-000003"))
	require.NoError(t, err)
	require.Equal(t, now, state.Arithmetic())
}

// Changed settings are accepted and reported. Changed data is rejected, because the run's
// position in it would be meaningless.
func TestResumeWithOtherSettings(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	run := trainTiny(t, dir, "run", "run.steps=1", "checkpoint.keep=0")
	code, errs := resumeTiny(t, dir, run, "run.steps=2")
	require.Zero(t, code, errs)
	require.Contains(t, errs, "resuming with changed settings: run.steps 2 (was 1)\n")
	code, errs = resumeTiny(t, dir, run, "run.steps=3", "train.lr=1e-3", "rollout.group_size=3")
	require.Zero(t, code, errs)
	require.Contains(t, errs,
		"resuming with changed settings: run.steps 3 (was 2), "+
			"rollout.group_size 3 (was 4), train.lr 0.001 (was 0.01)\n")
	code, errs = resumeTiny(t, dir, run, "run.steps=3", "train.lr=1e-3", "rollout.group_size=3")
	require.Zero(t, code, errs)
	require.NotContains(t, errs, "changed settings")

	text, err := os.ReadFile(filepath.Join(dir, "prompts.jsonl"))
	require.NoError(t, err)
	other := write(t, dir, "other.jsonl", strings.Replace(string(text), `"0,0"`, `"0,9"`, 1))
	same := write(t, dir, "same.jsonl", string(text))
	before := files(t, run)
	code, errs = resumeTiny(t, dir, run, "run.steps=4", "data.train="+other)
	require.Equal(t, exitUsage, code, errs)
	requireOneLine(t, errs, "resume: files of data.train differ from those that ")
	code, errs = resumeTiny(t, dir, run, "run.steps=4", fmt.Sprintf("data.train=[%q,%q]", same, other))
	require.Equal(t, exitUsage, code, errs)
	longer := write(t, dir, "longer.jsonl", strings.Replace(string(text), `"0,0"`, `"0,000"`, 1))
	cut := trainTiny(t, dir, "cut", "run.steps=1", "data.train="+longer)
	code, errs = resumeTiny(t, dir, cut, "run.steps=2", "data.train="+longer, "data.max_prompt_tokens=4")
	require.Equal(t, exitUsage, code, errs)
	require.Contains(t, errs, "resume: data.train has 22 usable prompts, expected 23 as when the run started: a "+
		"changed setting drops others\n")
	require.Equal(t, before, files(t, run))
	code, errs = resumeTiny(t, dir, run, "run.steps=4", "data.train="+same)
	require.Zero(t, code, errs)
	require.Contains(t, errs, "data.train [")
}

// A failed resume changes nothing.
func TestBadResumes(t *testing.T) {
	t.Parallel()
	dir := badRun(t)
	run := trainTiny(t, dir, "run", "run.steps=2", "checkpoint.keep=0")
	code, _, errs := command(t, "init", "-config", filepath.Join(dir, "config.json"), "-out",
		filepath.Join(dir, "other"), "-seed", "7")
	require.Zero(t, code, errs)
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "half"), 0o755))
	half := write(t, filepath.Join(dir, "half"), "config.json",
		strings.Replace(string(config), `"hidden_size":32`, `"hidden_size":16`, 1))
	write(t, filepath.Join(dir, "half"), "tokenizer_config.json",
		`{"char_ords":[48,49,50,51,52,53,54,55,56,57,44,58],"model_max_length":64}`)
	demos := write(t, dir, "demos.jsonl", `{"prompt":"1","response":"2"}`+"\n")
	spoilt := copyDir(t, run, dir, "spoilt")
	for _, step := range []string{"step-000001", "step-000002"} {
		corrupt(t, filepath.Join(spoilt, "checkpoints", step, "config.json"))
	}
	before := files(t, dir)
	for _, test := range []struct {
		settings []string
		want     string
	}{
		{[]string{"run.seed=9"}, "resume: run.seed is 9, expected the run's original 1"},
		{[]string{"model.init.config=" + half}, "resume: config.json in " + half + " differs from the one in "},
		{[]string{"model.init.config=", "model.path=" + filepath.Join(dir, "other")},
			"resume: " + filepath.Join(dir, "other") +
				" is not the model that the run started from: its weights differ"},
		{[]string{"rollout.temperature=0"}, "expected more than 0"},
		{[]string{"data.train=" + filepath.Join(dir, "none")}, "no such file"},
	} {
		code, errs := resumeTiny(t, dir, run, test.settings...)
		require.Equal(t, exitUsage, code, errs)
		requireOneLine(t, errs, test.want)
		require.Equal(t, before, files(t, dir), test.settings)
	}
	code, _, errs = command(t, "sft", filepath.Join(dir, "run.toml"), "-resume", "-set", "sft.batch_size=1", "-set",
		"sft.data="+demos, "-set", fmt.Sprintf("run.dir=%q", run))
	require.Equal(t, exitUsage, code)
	requireOneLine(t, errs, "was written by easyrl train, expected a checkpoint of easyrl sft")

	code, errs = resumeTiny(t, dir, spoilt)
	require.Equal(t, exitUsage, code)
	require.Equal(t, 2, strings.Count(errs, "warning: skipped a checkpoint: "), errs)
	require.Contains(t, errs, "error: resume: none of the 2 checkpoints in "+filepath.Join(spoilt, "checkpoints")+
		" is intact. ")

	code, _, errs = command(t, "train", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", run))
	require.Equal(t, exitUsage, code)
	requireOneLine(t, errs, " already contains a run. Continue it with -resume, or set another run.dir")
	require.Equal(t, before, files(t, dir))
}

func TestResumeOfFinishedRun(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	run := trainTiny(t, dir, "run", "run.steps=2", "checkpoint.keep=0")
	before := files(t, filepath.Join(run, "checkpoints"))
	code, errs := resumeTiny(t, dir, run, "run.steps=2")
	require.Zero(t, code)
	require.Contains(t, errs, "the run is finished: it has taken 2 steps and run.steps is 2. ")
	require.Equal(t, before, files(t, filepath.Join(run, "checkpoints")))
}

// Training again from a resolved run.toml repeats the run.
func TestResolvedConfigRepeatsRun(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	run := trainTiny(t, dir, "run", "run.steps=2")
	want := weightsHash(t, run, 2)
	require.NoError(t, os.RemoveAll(filepath.Join(run, "checkpoints")))
	require.NoError(t, os.Remove(filepath.Join(run, report.MetricsFile)))
	code, _, errs := command(t, "train", filepath.Join(run, "run.toml"))
	require.Zero(t, code, errs)
	require.Equal(t, want, weightsHash(t, run, 2))
}

// An absurd learning rate is reported and ends the run. Earlier checkpoints still resume
// to the right weights.
func TestAbsurdLearningRate(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	want := weightsHash(t, trainTiny(t, dir, "whole"), 5)
	run := trainTiny(t, dir, "run", "run.steps=3", "checkpoint.keep=1")
	before := files(t, filepath.Join(run, "checkpoints"))
	for lr, said := range map[string]string{
		"1e30": "error: step 4: after an update at lr 1e+30: weights of model.embed_tokens.weight: ",
		"3e38": "error: step 4: after an update at lr 3e+38: weights of model.embed_tokens.weight: ",
	} {
		code, errs := resumeTiny(t, dir, run, "checkpoint.keep=1", "train.lr="+lr)
		require.Equal(t, exitFailed, code, errs)
		require.Contains(t, errs, said)
		require.Contains(t, errs, "not finite")
		require.Equal(t, before, files(t, filepath.Join(run, "checkpoints")))
	}
	code, errs := resumeTiny(t, dir, run)
	require.Zero(t, code, errs)
	require.Equal(t, want, weightsHash(t, run, 5))
}

// Finite but ruined weights give log-probabilities that are not finite, and a huge loss gradients that are
// out of range. Each is reported and ends the run.
func TestRuinedWeightsEndRun(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	code, _, errs := command(t, "train", filepath.Join(dir, "run.toml"), "-set",
		fmt.Sprintf("run.dir=%q", filepath.Join(dir, "run")),
		"-set", "run.steps=200", "-set", "train.lr=1e8")
	require.Equal(t, exitFailed, code, errs)
	require.Contains(t, errs, "logits of row 0 are not finite")
	require.Contains(t, errs, "the weights after step 1 cannot be sampled from: their log-probabilities are not finite")
	code, _, errs = command(t, "train", filepath.Join(dir, "run.toml"),
		"-set", fmt.Sprintf("run.dir=%q", filepath.Join(dir, "far")),
		"-set", "run.steps=200", "-set", "loss.beta=1e12", "-set", "train.lr=1e-2")
	require.Equal(t, exitFailed, code, errs)
	require.Regexp(t,
		`warning: step \d+: gradient of model\.[a-z_.0-9]+: a value of a leaf is [0-9.e+]+ in magnitude, `+
			`expected at most [0-9.e+]+, the bound of the fixed-point sums of gradients `+
			`\(remedy: a smaller loss\.beta or a lower train\.lr\); skipped this update\n`, errs)
}

// editState edits the state of a checkpoint and its checksum in the manifest.
func editState(t *testing.T, folder string, edit func(state map[string]any)) {
	t.Helper()
	path, list := filepath.Join(folder, "trainer", "state.json"), filepath.Join(folder, "trainer", "manifest.json")
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	var state map[string]any
	require.NoError(t, json.Unmarshal(before, &state))
	edit(state)
	after, err := json.Marshal(state)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, after, 0o644))
	text, err := os.ReadFile(list)
	require.NoError(t, err)
	var manifest struct {
		Version int `json:"version"`
		Files   map[string]struct {
			Size   int    `json:"size"`
			SHA256 string `json:"sha256"`
		} `json:"files"`
	}
	require.NoError(t, json.Unmarshal(text, &manifest))
	record := manifest.Files["trainer/state.json"]
	record.Size, record.SHA256 = len(after), fmt.Sprintf("%x", sha256.Sum256(after))
	manifest.Files["trainer/state.json"] = record
	text, err = json.Marshal(manifest)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(list, text, 0o644))
}

// A run resumes only from its own checkpoints, and refuses another run's even if older ones of its
// own remain. A checkpoint that names no run is accepted with a warning.
func TestResumeFromAnotherRun(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	own := trainTiny(t, dir, "own", "run.steps=2", "checkpoint.keep=0")
	other := trainTiny(t, dir, "other", "run.steps=3", "checkpoint.keep=0")
	want := weightsHash(t, trainTiny(t, dir, "whole", "run.steps=4"), 4)
	runOf := func(folder string) string {
		state, err := trainer.ReadState(folder)
		require.NoError(t, err)
		return state.Run
	}
	last := func(run string, step int) string { return filepath.Join(run, "checkpoints", checkpoint.StepName(step)) }
	require.Equal(t, runOf(last(own, 1)), runOf(last(own, 2)))
	require.NotEqual(t, runOf(last(own, 1)), runOf(last(other, 1)))
	const unnamed = " does not say which run wrote it; "
	nameless := func(state map[string]any) { delete(state, "run") }
	for name, test := range map[string]struct {
		change  func(t *testing.T, run string)
		refused int // step of the refused checkpoint; 0 if none is
		warns   bool
	}{
		"own": {change: func(*testing.T, string) {}},
		"newer": {change: func(t *testing.T, run string) {
			copyDir(t, last(other, 3), run, "checkpoints/step-000003")
		}, refused: 3},
		"instead of its own": {change: func(t *testing.T, run string) {
			require.NoError(t, os.RemoveAll(last(run, 2)))
			copyDir(t, last(other, 2), run, "checkpoints/step-000002")
		}, refused: 2},
		"damaged": {change: func(t *testing.T, run string) {
			corrupt(t, filepath.Join(copyDir(t, last(other, 3), run, "checkpoints/step-000003"), "model.safetensors"))
		}},
		"without a name": {change: func(t *testing.T, run string) { editState(t, last(run, 2), nameless) },
			warns: true},
		"of another run without a name": {change: func(t *testing.T, run string) {
			editState(t, copyDir(t, last(other, 3), run, "checkpoints/step-000003"), nameless)
		}, warns: true},
		"without identity": {change: func(t *testing.T, run string) {
			require.NoError(t, os.Remove(filepath.Join(run, "identity.json")))
		}},
		"only checkpoints": {change: func(t *testing.T, run string) {
			for _, name := range []string{"identity.json", "metrics.jsonl", "run.toml"} {
				require.NoError(t, os.Remove(filepath.Join(run, name)))
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := copyDir(t, own, t.TempDir(), "run")
			test.change(t, run)
			before := files(t, run)
			code, errs := resumeTiny(t, dir, run, "run.steps=4")
			require.Equal(t, test.warns, strings.Contains(errs, unnamed), errs)
			if test.refused > 0 {
				require.Equal(t, exitUsage, code, errs)
				requireOneLine(t, errs,
					fmt.Sprintf("resume: %s was written by run %s, expected run %s of this folder. ",
						last(run, test.refused), runOf(last(other, 1)), runOf(last(own, 1))))
				require.Equal(t, before, files(t, run))
				code, _, errs = command(t, "check", filepath.Join(dir, "run.toml"), "-static", "-resume",
					"-set", fmt.Sprintf("run.dir=%q", run))
				require.Equal(t, exitUsage, code, errs)
				require.NoError(t, os.RemoveAll(last(run, test.refused))) // as the error says
				code, errs = resumeTiny(t, dir, run, "run.steps=4")
			}
			require.Zero(t, code, errs)
			require.Equal(t, want, weightsHash(t, run, 4))
			named := runOf(last(run, 4))
			require.Equal(t, runOf(last(own, 1)), named, "a resumed run keeps its name")
			code, errs = resumeTiny(t, dir, run, "run.steps=4")
			require.Zero(t, code, errs)
			require.NotContains(t, errs, unnamed)
			metrics, err := os.ReadFile(filepath.Join(run, report.MetricsFile))
			require.NoError(t, err)
			require.NotContains(t, string(metrics), named)
		})
	}
}

// A run whose weights are finite but cannot be sampled from leaves no checkpoint of them for -resume,
// and continues from the one that it names.
func TestUnusableWeightsEndRun(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	want := weightsHash(t, trainTiny(t, dir, "whole"), 5)
	run := trainTiny(t, dir, "run", "run.steps=2", "checkpoint.keep=0")
	code, errs := resumeTiny(t, dir, run, "train.lr=1e15", "run.steps=3")
	require.Zero(t, code, errs) // the weights of step 3 are saved and not sampled from yet
	for range 2 {
		code, errs = resumeTiny(t, dir, run, "train.lr=1e15")
		require.Equal(t, exitFailed, code, errs)
		require.Contains(t, errs, "; the weights after step 3 cannot be sampled from: "+
			"their log-probabilities are not finite, so their checkpoint is now "+
			filepath.Join(run, "checkpoints", "failed-step-000003")+
			"; -resume continues from the checkpoint of step 2\n")
		require.Equal(t, 1, strings.Count(errs, "error: "), errs)
		require.NoDirExists(t, filepath.Join(run, "checkpoints", "step-000003"))
	}
	require.Contains(t, errs, "resuming after step 2 from ")
	code, errs = resumeTiny(t, dir, run)
	require.Zero(t, code, errs)
	require.Equal(t, want, weightsHash(t, run, 5))
}

// Without a usable identity.json a folder is of the run that its checkpoints name. If they name
// several runs, a resume refuses it, whichever is the newest, and changes nothing.
func TestResumeWithoutIdentity(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	own := trainTiny(t, dir, "own", "run.steps=2", "checkpoint.keep=0")
	other := trainTiny(t, dir, "other", "run.steps=3", "checkpoint.keep=0")
	want := weightsHash(t, trainTiny(t, dir, "whole", "run.steps=4"), 4)
	runOf := func(folder string) string {
		state, err := trainer.ReadState(folder)
		require.NoError(t, err)
		return state.Run
	}
	last := func(run string, step int) string { return filepath.Join(run, "checkpoints", checkpoint.StepName(step)) }
	a, b := runOf(last(own, 1)), runOf(last(other, 1))
	nameless := func(state map[string]any) { delete(state, "run") }
	missing := func(t *testing.T, identity string) { require.NoError(t, os.Remove(identity)) }
	damaged := func(t *testing.T, identity string) { require.NoError(t, os.Truncate(identity, 20)) }
	emptied := func(t *testing.T, identity string) { require.NoError(t, os.Truncate(identity, 0)) }
	for name, test := range map[string]struct {
		identity func(t *testing.T, identity string)
		change   func(t *testing.T, run string)
		of       map[string]string // names of checkpoints that the refusal lists, by run; empty if there is none
		foreign  string            // checkpoint to move away
	}{
		"newest of another run": {missing, func(t *testing.T, run string) {
			copyDir(t, last(other, 3), run, "checkpoints/step-000003")
		}, map[string]string{a: "step-000002, step-000001", b: "step-000003"}, "step-000003"},
		"newest of another run, identity damaged": {damaged, func(t *testing.T, run string) {
			copyDir(t, last(other, 3), run, "checkpoints/step-000003")
		}, map[string]string{a: "step-000002, step-000001", b: "step-000003"}, "step-000003"},
		"oldest of another run": {missing, func(t *testing.T, run string) {
			require.NoError(t, os.RemoveAll(last(run, 1)))
			copyDir(t, last(other, 1), run, "checkpoints/step-000001")
		}, map[string]string{a: "step-000002", b: "step-000001"}, "step-000001"},
		"damaged and of another run": {emptied, func(t *testing.T, run string) {
			corrupt(t, filepath.Join(copyDir(t, last(other, 3), run, "checkpoints/step-000003"), "model.safetensors"))
		}, map[string]string{a: "step-000002, step-000001", b: "step-000003"}, "step-000003"},
		"set aside and of another run": {missing, func(t *testing.T, run string) {
			copyDir(t, last(other, 2), run, "checkpoints/failed-step-000002")
		}, map[string]string{a: "step-000002, step-000001", b: "failed-step-000002"}, "failed-step-000002"},
		"newest without a name": {missing, func(t *testing.T, run string) {
			editState(t, last(run, 2), nameless)
		}, nil, ""},
		"identity damaged": {damaged, func(*testing.T, string) {}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := copyDir(t, own, t.TempDir(), "run")
			test.identity(t, filepath.Join(run, "identity.json"))
			test.change(t, run)
			before := files(t, run)
			code, errs := resumeTiny(t, dir, run, "run.steps=4")
			if len(test.of) > 0 {
				require.Equal(t, exitUsage, code, errs)
				require.Equal(t, 1, strings.Count(errs, "error: "), errs)
				require.Contains(t, errs, "resume: "+filepath.Join(run, "identity.json")+" is missing or damaged, "+
					"and the checkpoints in "+filepath.Join(run, "checkpoints")+" are of several runs: ")
				for of, list := range test.of {
					require.Contains(t, errs, list+" of run "+of)
				}
				require.Contains(t, errs, ". Keep only those of the run that you want to continue\n")
				require.Equal(t, before, files(t, run))
				code, _, errs = command(t, "check", filepath.Join(dir, "run.toml"), "-static", "-resume",
					"-set", fmt.Sprintf("run.dir=%q", run))
				require.Equal(t, exitUsage, code, errs)
				require.NoError(t, os.RemoveAll(filepath.Join(run, "checkpoints", test.foreign))) // as the error says
				code, errs = resumeTiny(t, dir, run, "run.steps=4")
			}
			require.Zero(t, code, errs)
			require.Equal(t, want, weightsHash(t, run, 4))
			require.Equal(t, a, runOf(last(run, 4)), "a resumed run keeps its name")
		})
	}
}
