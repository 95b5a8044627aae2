package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/rollout"
)

// contents returns the hash of each file of a folder by its path.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			var text []byte
			text, err = os.ReadFile(path)
			all[path] = fmt.Sprintf("%x", sha256.Sum256(text))
		}
		return err
	}))
	return all
}

// requireAudits requires that an audit confirms a step of a run and changes no file of it. It returns the messages.
func requireAudits(t *testing.T, run string, step int, more ...string) string {
	t.Helper()
	before := contents(t, run)
	code, out, errs := command(t, append([]string{"audit", run, fmt.Sprint(step)}, more...)...)
	require.Zero(t, code, errs)
	require.Equal(t, fmt.Sprintf("step %d: same weights, checksum %s\n", step, checksums(t, run)[step]), out)
	expected := `warning: loss.advantage = "batch" needs all groups`
	require.NotContains(t, strings.ReplaceAll(errs, expected, ""), "warning")
	require.Equal(t, before, contents(t, run))
	return errs
}

// An audit confirms every step of a run, whatever its objective, its instances and its mesh, from whatever checkpoints
// are left.
func TestAudit(t *testing.T) {
	t.Parallel()
	eight := mesh(parallel.Mesh{DP: 2, TP: 2, PP: 2})
	for name, r := range map[string]struct {
		wide     bool // the decoder can be divided among tensor ranks
		served   bool
		settings []string
	}{
		"defaults":      {},
		"no checkpoint": {settings: []string{"checkpoint.every=0"}},
		"one of two":    {settings: []string{"checkpoint.every=2", "loss.beta=0.1"}},
		"no update":     {settings: []string{"reward.kind=regex", "reward.pattern='never'"}},
		"several updates": {settings: []string{"loss.old_policy=previous-step", "train.minibatches=3", "loss.beta=0.2",
			"train.schedule=cosine", "train.warmup=2"}},
		"whole batch": {settings: []string{"loss.kind=reinforce", "loss.advantage=batch", "checkpoint.every=2"}},
		"filtered":    {settings: []string{"rollout.dynamic_sampling=3", "loss.keep=2", "rollout.temperature=0.8"}},
		"truncated":   {settings: []string{"rollout.top_p=0.9", "rollout.top_k=7", "loss.correction=mask"}},
		"evaluated":   {settings: []string{"eval.every=2", "checkpoint.every=0", "run.seed=4", "checkpoint.keep=1"}},
		"mesh":        {wide: true, settings: []string{eight, "train.minibatches=2", "checkpoint.every=2"}},
		"zero": {wide: true, settings: []string{meshWith(parallel.Mesh{DP: 2, TP: 2, PP: 1}, 5),
			"loss.old_policy=previous-step", "checkpoint.every=2"}},
		"sums of tensor ranks": {wide: true, settings: []string{"parallel.tp=2", "parallel.dp=2", "parallel.reduce=sum",
			"checkpoint.every=2"}},
		"served": {served: true, settings: []string{"checkpoint.every=2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := ""
			if r.wide {
				dir = meshRun(t, "qwen3")
			} else {
				dir = tinyRun(t)
			}
			settings := append([]string{"run.steps=4", "checkpoint.keep=0"}, r.settings...)
			if r.served {
				root, _, _ := serveFolder(t, "-model", initTiny(t, dir, "other", 7))
				settings = append(settings, "inference.kind=easyrl", fmt.Sprintf("inference.endpoints=[%q]", root))
			}
			run := trainTiny(t, dir, "run", settings...)
			for step := 1; step <= 4; step++ {
				requireAudits(t, run, step)
			}
		})
	}
}

// A run that was resumed with other settings is audited with those of each step, also if no checkpoint is left
// between them.
func TestAuditAfterChangedSettings(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	run := trainTiny(t, dir, "run", "run.steps=2", "checkpoint.keep=0", "loss.old_policy=previous-step")
	code, errs := resumeTiny(t, dir, run, "run.steps=4", "train.lr=1e-3", "loss.beta=0.1", "train.minibatches=2",
		"loss.old_policy=previous-step")
	require.Zero(t, code, errs)
	for step := 1; step <= 4; step++ {
		requireAudits(t, run, step)
	}
	for step := 1; step <= 3; step++ {
		require.NoError(t, os.RemoveAll(filepath.Join(run, "checkpoints", checkpoint.StepName(step))))
	}
	said := requireAudits(t, run, 4)
	require.Contains(t, said, "settings of "+filepath.Join(run, "run-step-000002.toml")+"\n")
	require.Contains(t, said, "settings of "+filepath.Join(run, "run.toml")+"\n")
}

// An audit recomputes in the numerics that the run file and the checkpoint agree on.
func TestAuditFindsOtherNumerics(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	run := trainTiny(t, dir, "run", "run.steps=2", "checkpoint.keep=0")
	folder := filepath.Join(run, "checkpoints", "step-000001")
	setState(t, folder, `"numerics_name": "float32",`, `"numerics_name": "bf16",`)
	code, _, errs := command(t, "audit", run, "2")
	require.Equal(t, exitFailed, code, errs)
	require.Contains(t, errs, fmt.Sprintf("run.toml: device.numerics is %s, expected %s as in %s", npu.FP32.Identity(),
		npu.BF16.Identity(), folder))
	setState(t, folder, fmt.Sprintf(`"numerics": %d,`, npu.NumericsVersion), `"numerics": 1,`)
	code, _, errs = command(t, "audit", run, "2")
	require.Equal(t, exitUsage, code, errs)
	requireOneLine(t, errs, fmt.Sprintf("the run was trained in bf16 (version 1), and this easyrl has version %d of "+
		"the numerics: expected the same", npu.NumericsVersion))
}

// The model that the run started from may have moved. Another model is found out.
func TestAuditFindsStart(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	start, other := initTiny(t, dir, "start", 3), initTiny(t, dir, "other", 4)
	run := trainTiny(t, dir, "run", "run.steps=2", "loss.beta=0.1", "model.init.config=",
		fmt.Sprintf("model.path=%q", start), "checkpoint.keep=0")
	require.NoError(t, os.Rename(start, start+"-moved"))
	for step := 1; step <= 2; step++ {
		code, _, errs := command(t, "audit", run, fmt.Sprint(step))
		require.Equal(t, exitUsage, code)
		require.Contains(t, errs, "-reference DIR")
		requireAudits(t, run, step, "-reference", start+"-moved")
	}
	code, _, errs := command(t, "audit", run, "1", "-reference", other)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, fmt.Sprintf("error: the model is not the one that the run started from: the weights "+
		"before step 1 have checksum %s, recorded %s\n", sumOf(t, other), sumOf(t, start+"-moved")))
	code, _, errs = command(t, "audit", run, "2", "-reference", other)
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "its weights differ\n")
}

// alterGroup changes a recorded group of a step.
func alterGroup(t *testing.T, run string, step, group int, change func(g *rollout.Group)) {
	t.Helper()
	path := filepath.Join(run, "rollouts", checkpoint.StepName(step)+".jsonl")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	lines := strings.SplitAfter(string(text), "\n")
	var g rollout.Group
	require.NoError(t, json.Unmarshal([]byte(lines[group]), &g))
	change(&g)
	line, err := g.MarshalJSON()
	require.NoError(t, err)
	lines[group] = string(line) + "\n"
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "")), 0o644))
}

// long returns the tokens of a response of g that has at least 3.
func long(g *rollout.Group) *rollout.Span {
	i := slices.IndexFunc(g.Responses, func(r rollout.Response) bool { return len(r.Spans[0].IDs) >= 3 })
	return &g.Responses[i].Spans[0]
}

// replaceIn replaces the only occurrence of a text in a file.
func replaceIn(t *testing.T, path, old, now string) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), old), "%s in %s", old, path)
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(text), old, now, 1)), 0o644))
}

// flip flips a bit of a file, counted in bytes from its end.
func flip(t *testing.T, path string, fromEnd int) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	text[len(text)-fromEnd] ^= 1
	require.NoError(t, os.WriteFile(path, text, 0o644))
}

// reseal makes the manifest of a checkpoint agree with an altered file.
func reseal(t *testing.T, dir, name string) {
	t.Helper()
	path := filepath.Join(dir, "trainer", "manifest.json")
	var manifest struct {
		Version int                       `json:"version"`
		Files   map[string]map[string]any `json:"files"`
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &manifest))
	content, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	manifest.Files[name] = map[string]any{"size": len(content), "sha256": fmt.Sprintf("%x", sha256.Sum256(content))}
	text, err = json.Marshal(manifest)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o644))
}

// An audit names what was altered in a run: a token, a number, a setting, a weight.
func TestAuditNamesWhatDiffers(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	whole := trainTiny(t, dir, "whole", "run.steps=4", "checkpoint.keep=0", "checkpoint.every=2",
		"train.schedule=linear")
	checkpointOf := func(run string, step int) string {
		return filepath.Join(run, "checkpoints", checkpoint.StepName(step))
	}
	const weights, moments = "model.safetensors", "trainer/optimizer.safetensors"
	dropSettings := func(t *testing.T, run string) {
		for _, step := range []int{2, 4} {
			require.NoError(t, os.RemoveAll(checkpointOf(run, step)))
		}
	}
	for name, c := range map[string]struct {
		step  int
		alter func(t *testing.T, run string)
		code  int
		want  []string // in the error
	}{
		"token": {3, func(t *testing.T, run string) {
			alterGroup(t, run, 3, 2, func(g *rollout.Group) { long(g).IDs[2] ^= 1 })
		}, exitFailed, []string{"step 3 differs: group 2 (prompt prompts.jsonl:", "), response ", ", token 2: " +
			"recorded log-probability -", ", recomputed -", " (1 of 24 responses differ)\n"}},
		"token of an earlier step": {4, func(t *testing.T, run string) {
			alterGroup(t, run, 3, 0, func(g *rollout.Group) { g.Responses[3].Spans[0].IDs[0] ^= 1 })
		}, exitFailed, []string{"step 3 differs: group 0 (prompt prompts.jsonl:", "), response 3, token 0: "}},
		"prompt": {3, func(t *testing.T, run string) {
			alterGroup(t, run, 3, 5, func(g *rollout.Group) { g.Prompt.IDs[1] ^= 1 })
		}, exitFailed, []string{"step 3 differs: group 5 (prompt ", "response 0, token 0: ",
			" (4 of 24 responses differ)"}},
		"log-probability": {3, func(t *testing.T, run string) {
			alterGroup(t, run, 3, 2, func(g *rollout.Group) { long(g).Logprobs[2] = -0.5 })
		}, exitFailed, []string{"group 2 (prompt ", ", token 2: recorded log-probability -0.5, recomputed -"}},
		"reward": {3, func(t *testing.T, run string) {
			alterGroup(t, run, 3, 1, func(g *rollout.Group) { g.Responses[2].Reward += 0.5 })
		}, exitFailed, []string{"step 3 differs: the weights after it have checksum ", "; group 1 (prompt ",
			"), response 0: recorded advantage ", "reward/mean is recorded as "}},
		"advantage": {3, func(t *testing.T, run string) {
			alterGroup(t, run, 3, 1, func(g *rollout.Group) { *g.Responses[2].Advantage += 7 })
		}, exitFailed, []string{"step 3 differs: group 1 (prompt ", "), response 2: recorded advantage ",
			", recomputed "}},
		"group lost": {3, func(t *testing.T, run string) {
			path := filepath.Join(run, "rollouts", "step-000003.jsonl")
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			_, rest, _ := strings.Cut(string(text), "\n")
			require.NoError(t, os.WriteFile(path, []byte(rest), 0o644))
		}, exitFailed, []string{"groups/trained is recorded as 6, recomputed 5"}},
		"groups of another step": {3, func(t *testing.T, run string) {
			text, err := os.ReadFile(filepath.Join(run, "rollouts", "step-000004.jsonl"))
			require.NoError(t, err)
			write(t, run, filepath.Join("rollouts", "step-000003.jsonl"), string(text))
		}, exitFailed, []string{"step-000003.jsonl has step 4 and version 4, expected 3 of both\n"}},
		"metric": {3, func(t *testing.T, run string) {
			path := filepath.Join(run, "metrics.jsonl")
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			lines := strings.SplitAfter(string(text), "\n")
			lines[2] = strings.Replace(lines[2], `"reward/mean":`, `"reward/mean":9`, 1)
			write(t, run, "metrics.jsonl", strings.Join(lines, ""))
		}, exitFailed, []string{"step 3 differs: reward/mean is recorded as 9"}},
		"checksum": {4, func(t *testing.T, run string) {
			replaceIn(t, filepath.Join(run, "metrics.jsonl"), checksums(t, run)[4], "00000000000000ff")
		}, exitFailed, []string{"step 4 differs: the weights after it have checksum ", ", recorded " +
			"00000000000000ff; no metric differs"}},
		"setting": {3, func(t *testing.T, run string) {
			replaceIn(t, filepath.Join(run, "run.toml"), "weight_decay = 0.0", "weight_decay = 0.5")
		}, exitFailed, []string{"run.toml: train.weight_decay is 0.5, expected 0.0, as in ", "step-000004\n"}},
		"rate without a copy of the settings": {1, func(t *testing.T, run string) {
			replaceIn(t, filepath.Join(run, "run.toml"), "lr = 0.01", "lr = 0.02")
			dropSettings(t, run)
		}, exitFailed, []string{"step 1 differs: the weights after it have checksum ",
			"actor/lr is recorded as 0.01, recomputed 0.02 (train.lr, train.schedule, "}},
		"temperature without a copy": {1, func(t *testing.T, run string) {
			replaceIn(t, filepath.Join(run, "run.toml"), "group_size = 4\ntemperature = 1.0",
				"group_size = 4\ntemperature = 0.9")
			dropSettings(t, run)
		}, exitFailed, []string{"step 1 differs: all 24 responses have other log-probabilities than recorded, so a " +
			"setting such as rollout.temperature was altered; the first is group 0 "}},
		"group size": {3, func(t *testing.T, run string) {
			replaceIn(t, filepath.Join(run, "run.toml"), "group_size = 4", "group_size = 5")
			dropSettings(t, run)
		}, exitFailed, []string{"rollout.group_size is 5, expected 4 as in "}},
		"weight": {3, func(t *testing.T, run string) {
			flip(t, filepath.Join(checkpointOf(run, 2), weights), 2)
		}, exitFailed,
			[]string{"step-000002: model.safetensors: sha256 ", "; model.safetensors: model.norm.weight[31] is ",
				", recomputed "}},
		"weight and manifest": {3, func(t *testing.T, run string) {
			flip(t, filepath.Join(checkpointOf(run, 2), weights), 2)
			reseal(t, checkpointOf(run, 2), weights)
		}, exitFailed, []string{"step-000002: the weights before step 3 have checksum ",
			"; model.safetensors: model.norm.weight[31] is ", ", recomputed "}},
		"moment": {3, func(t *testing.T, run string) {
			flip(t, filepath.Join(checkpointOf(run, 2), moments), 2)
		}, exitFailed,
			[]string{"; trainer/optimizer.safetensors: second.model.norm.weight[31] is "}},
		"truncated checkpoint": {3, func(t *testing.T, run string) {
			require.NoError(t, os.Truncate(filepath.Join(checkpointOf(run, 2), weights), 1000))
		}, exitFailed, []string{"model.safetensors: 1000 bytes, expected "}},
		"no manifest": {3, func(t *testing.T, run string) {
			require.NoError(t, os.Remove(filepath.Join(checkpointOf(run, 2), "trainer", "manifest.json")))
		}, exitFailed, []string{"no trainer/manifest.json: the checkpoint is incomplete"}},
		"truncated groups": {3, func(t *testing.T, run string) {
			path := filepath.Join(run, "rollouts", "step-000003.jsonl")
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.NoError(t, os.Truncate(path, info.Size()-20))
		}, exitUsage, []string{"step-000003.jsonl: the last line is cut off, expected whole lines\n"}},
		"damaged groups": {3, func(t *testing.T, run string) {
			write(t, run, filepath.Join("rollouts", "step-000003.jsonl"), "{\n")
		}, exitUsage, []string{"step-000003.jsonl:1: "}},
		"no groups": {4, func(t *testing.T, run string) {
			require.NoError(t, os.Remove(filepath.Join(run, "rollouts", "step-000003.jsonl")))
		}, exitUsage, []string{"an audit needs the recorded groups of step 3 (log.rollouts): "}},
		"damaged metrics": {3, func(t *testing.T, run string) {
			path := filepath.Join(run, "metrics.jsonl")
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			write(t, run, "metrics.jsonl", "{\n"+string(text))
		}, exitUsage, []string{"metrics.jsonl:1: unexpected end of JSON input\n"}},
		"damaged settings": {3, func(t *testing.T, run string) {
			write(t, run, "run.toml", "[run\n")
		}, exitUsage, []string{"run.toml:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := copyDir(t, whole, t.TempDir(), "run")
			c.alter(t, run)
			before := contents(t, run)
			code, out, errs := command(t, "audit", run, fmt.Sprint(c.step))
			require.Equal(t, c.code, code, errs)
			require.Empty(t, out)
			at := strings.LastIndex(errs, "error: ")
			require.GreaterOrEqual(t, at, 0, errs)
			rest := errs[at:]
			for _, want := range c.want {
				require.Contains(t, rest, want)
				_, rest, _ = strings.Cut(rest, want)
			}
			requireOneLine(t, errs[at:], "")
			require.Equal(t, before, contents(t, run))
		})
	}
}

// Steps that cannot be audited are refused in one line.
func TestAuditRefuses(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	run := trainTiny(t, dir, "run", "run.steps=1", "log.rollouts=false")
	tuned := filepath.Join(dir, "tuned")
	code, _, errs := command(t, "sft", filepath.Join(dir, "run.toml"), "-set",
		"sft.data="+write(t, dir, "demos.jsonl", `{"prompt":"1,2","response":"3"}`+"\n"), "-set", "sft.steps=1", "-set",
		"sft.batch_size=1", "-set", fmt.Sprintf("run.dir=%q", tuned))
	require.Zero(t, code, errs)
	torch := copyDir(t, trainTiny(t, dir, "rollouts", "run.steps=1", "checkpoint.every=0"), t.TempDir(), "torch")
	replaceIn(t, filepath.Join(torch, "run.toml"), `backend = "easyrl"`, `backend = "torch"`)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{run}, "audit: got 1 arguments, expected RUN_DIR and STEP"},
		{[]string{run, "x"}, `audit: step is "x", expected a number from 1`},
		{[]string{run, "2"}, "step is 2, expected 1 to 1, the last step in "},
		{[]string{run, "0"}, "step is 0, expected 1 to 1, "},
		{[]string{run, "1"}, "an audit needs the recorded groups of step 1 (log.rollouts): "},
		{[]string{dir, "1"}, dir + " is not the folder of a run, expected one with metrics.jsonl"},
		{[]string{tuned, "1"}, "records no actor/checksum of step 1: easyrl sft or an older easyrl wrote it"},
		{[]string{torch, "1"}, `train.backend is "torch": PyTorch ranks do not compute the same bits everywhere`},
	} {
		code, out, errs := command(t, append([]string{"audit"}, c.args...)...)
		require.Equal(t, exitUsage, code, errs)
		require.Empty(t, out)
		requireOneLine(t, errs, c.want)
	}
}

// An audit that is interrupted leaves no temporary files.
func TestAuditInterrupted(t *testing.T) {
	if !alone(t) {
		return
	}
	dir := tinyRun(t)
	run := trainTiny(t, dir, "run", "run.steps=2", "checkpoint.every=0")
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	requireEmpty := func() {
		left, err := os.ReadDir(temp)
		require.NoError(t, err)
		require.Empty(t, left)
	}
	requireAudits(t, run, 2)
	requireEmpty()
	ctx, cancel := context.WithCancel(t.Context())
	said := &stopAt{text: "step 1: recomputing", stop: cancel}
	code := execute(ctx, streams{in: strings.NewReader(""), out: said, err: said}, []string{"audit", run, "2"})
	require.Equal(t, exitFailed, code, said.String())
	require.NotContains(t, said.String(), "same weights")
	requireEmpty()
}

// stopAt is a writer that calls stop when a text is written.
type stopAt struct {
	strings.Builder
	text string
	stop func()
}

func (s *stopAt) Write(p []byte) (int, error) {
	if strings.Contains(string(p), s.text) {
		s.stop()
	}
	return s.Builder.Write(p)
}
