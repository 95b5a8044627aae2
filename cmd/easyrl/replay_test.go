package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/trainer"
)

// stepFiles returns the checkpoint that step of a run begins with, the starting model for step 1, and
// the step's groups.
func stepFiles(run, start string, step int) (model, rollouts string) {
	model = filepath.Join(run, "checkpoints", checkpoint.StepName(step-1))
	if step == 1 {
		model = start
	}
	return model, filepath.Join(run, "rollouts", checkpoint.StepName(step)+".jsonl")
}

// requireRepeats requires that replay, with more arguments, repeats a step of a run: it ends in the same
// weights and moments. It returns the messages.
func requireRepeats(t *testing.T, run, start string, step int, more ...string) string {
	t.Helper()
	model, rollouts := stepFiles(run, start, step)
	root := t.TempDir()
	out := filepath.Join(root, "checkpoints", checkpoint.StepName(step))
	args := append([]string{"replay", "-model", model, "-rollouts", rollouts, "-out", out}, more...)
	code, _, errs := command(t, args...)
	require.Zero(t, code, errs)
	require.Equal(t, checkpointHash(t, run, step), checkpointHash(t, root, step), "step %d\n%s", step, errs)
	require.NotContains(t, errs, "warning: "+rollouts)
	return errs
}

// Replay repeats every recorded step of a run without any setting: whatever the objective, the mesh, the
// number of mini-batches and the schedule.
func TestReplayRepeatsEveryStep(t *testing.T) {
	t.Parallel()
	type run struct {
		name     string
		settings []string
		overlay  string
		wide     bool // the decoder can be divided among tensor ranks
	}
	runs := []run{
		{name: "defaults"},
		{name: "reference and previous step", settings: []string{"loss.beta=0.2", "loss.kl=k2",
			"loss.old_policy=previous-step", "train.minibatches=2", "train.schedule=cosine"}},
		{name: "gspo on tensor ranks", settings: []string{"loss.kind=gspo", "loss.aggregation=sequence-mean",
			"train.minibatches=3", "train.warmup=2", "parallel.tp=2", "parallel.sequence=true"}, wide: true},
		{name: "cispo on replicas", settings: []string{"loss.kind=cispo", "loss.epsilon_low=1.0", "train.minibatches=2",
			"train.weight_decay=0.1", "parallel.dp=2", "parallel.zero=2"}},
		{name: "whole batch in a pipeline",
			settings: []string{"loss.kind=reinforce", "loss.advantage=batch", "loss.beta=0.1",
				"rollout.group_size=3", "parallel.pp=2"}},
		{name: "constant divisor", settings: []string{"loss.aggregation=constant", "loss.advantage=group-mean",
			"rollout.max_tokens=40", "train.beta2=0.95", "loss.dual_clip=3.0"}},
		{name: "sums of tensor ranks", settings: []string{"loss.beta=0.1", "train.minibatches=2", "parallel.tp=2",
			"parallel.dp=2", "parallel.sequence=true", "parallel.reduce=sum"}, wide: true},
		{name: "resampled and filtered", settings: []string{"rollout.dynamic_sampling=3", "loss.keep=2",
			"train.schedule=linear", "train.min_lr=0.1", "rollout.temperature=0.8"}},
		{name: "corrected", settings: []string{"loss.correction=mask", "rollout.top_p=0.9", "rollout.top_k=7",
			"train.clip_grad=0.01"}},
		{name: "other seed", settings: []string{"run.seed=5", "run.mode=colocated", "loss.beta=0.1",
			"inference.instances=2",
			"train.recompute=true"}},
	}
	for name, overlay := range objectives(t) {
		small := []string{"rollout.prompts_per_step=16", "rollout.group_size=4"}
		runs = append(runs, run{name: name, overlay: overlay, settings: small})
	}
	for _, r := range runs {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			dir := ""
			if r.wide {
				dir = meshRun(t, "qwen3")
			} else {
				dir = tinyRun(t)
			}
			out, seed := filepath.Join(dir, "run"), "1"
			args := []string{"train", filepath.Join(dir, "run.toml")}
			if r.overlay != "" {
				args = append(args, r.overlay)
			}
			for _, s := range append(r.settings, fmt.Sprintf("run.dir=%q", out), "run.steps=3", "checkpoint.keep=0") {
				args = append(args, "-set", s)
				if value, ok := strings.CutPrefix(s, "run.seed="); ok {
					seed = value
				}
			}
			code, _, errs := command(t, args...)
			require.Zero(t, code, errs)
			start := filepath.Join(dir, "start")
			code, _, errs = command(t, "init", "-config", filepath.Join(dir, "config.json"), "-out", start,
				"-seed", seed)
			require.Zero(t, code, errs)
			for step := 1; step <= 3; step++ {
				errs := requireRepeats(t, out, start, step)
				require.Contains(t, errs, "settings of "+filepath.Join(out, "run.toml")+"\n")
			}
		})
	}
}

// A step is repeated with the settings that it was taken with, even if the run was resumed with others later, or
// from an earlier step because newer checkpoints were lost.
func TestReplayAfterChangedSettings(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	start := initTiny(t, dir, "start", 1)
	run := trainTiny(t, dir, "run", "run.steps=2", "checkpoint.keep=0", "train.schedule=cosine")
	resume := func(settings ...string) {
		t.Helper()
		code, errs := resumeTiny(t, dir, run, settings...)
		require.Zero(t, code, errs)
	}
	requireFiles := func(names ...string) {
		t.Helper()
		found, err := filepath.Glob(filepath.Join(run, "run*"))
		require.NoError(t, err)
		for i := range found {
			found[i] = filepath.Base(found[i])
		}
		require.Equal(t, append(names, "run.toml"), found)
	}
	requireFiles()
	resume("run.steps=3", "train.lr=1e-3", "rollout.group_size=3", "loss.beta=0.1")
	requireFiles("run-step-000002.toml")
	resume("run.steps=3", "train.lr=1e-3", "rollout.group_size=3", "loss.beta=0.1")
	requireFiles("run-step-000002.toml")
	resume("run.steps=5", "loss.kind=cispo", "train.minibatches=2")
	requireFiles("run-step-000002.toml", "run-step-000003.toml")
	second, third, last := "run-step-000002.toml", "run-step-000003.toml", "run.toml"
	for i, file := range []string{second, second, third, last, last} {
		require.Contains(t, requireRepeats(t, run, start, i+1), "settings of "+filepath.Join(run, file)+"\n")
	}
	for _, step := range []int{2, 3, 4, 5} {
		require.NoError(t, os.RemoveAll(filepath.Join(run, "checkpoints", checkpoint.StepName(step))))
	}
	resume("run.steps=4", "train.lr=3e-3")
	requireFiles("run-step-000001.toml")
	for step := 1; step <= 4; step++ {
		requireRepeats(t, run, start, step)
	}
}

// Groups outside of their run's folder are replayed with -run, or with all settings that matter.
func TestReplayNamesSettings(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	run := trainTiny(t, dir, "run", "run.steps=2", "checkpoint.keep=0", "loss.aggregation=constant",
		"train.schedule=linear")
	start := initTiny(t, dir, "start", 1)
	want := checkpointHash(t, run, 2)
	text, err := os.ReadFile(filepath.Join(run, "rollouts", "step-000002.jsonl"))
	require.NoError(t, err)
	elsewhere := t.TempDir()
	groups := write(t, elsewhere, "groups.jsonl", string(text))
	model := copyDir(t, filepath.Join(run, "checkpoints", "step-000001"), elsewhere, "model")
	replay := func(more ...string) (code int, errs string) {
		t.Helper()
		root := t.TempDir()
		out := filepath.Join(root, "checkpoints", "step-000002")
		code, _, errs = command(t, append([]string{"replay", "-model", model, "-rollouts", groups, "-out", out},
			more...)...)
		if code == exitDone {
			require.Equal(t, want, checkpointHash(t, root, 2), errs)
		}
		return code, errs
	}
	code, errs := replay("-run", run)
	require.Zero(t, code, errs)

	// Each demand lists the settings that matter beside those that are set.
	var set []string
	for _, want := range []struct{ missing, settings string }{
		{"rollout.temperature, rollout.max_tokens, loss.kind, loss.epsilon_low, loss.epsilon_high, loss.dual_clip, " +
			"loss.beta, loss.aggregation, loss.advantage, loss.old_policy, loss.correction, loss.keep, train.lr, " +
			"train.schedule, train.warmup, train.beta2, train.weight_decay, train.clip_grad, train.backend, " +
			"train.minibatches, parallel.reduce",
			"rollout.temperature=1 rollout.max_tokens=12 loss.kind=grpo loss.epsilon_low=0.2 loss.epsilon_high=0.2 " +
				"loss.dual_clip=0 loss.beta=0 loss.advantage=group loss.old_policy=behaviour loss.correction=none " +
				"loss.keep=0 " +
				"train.lr=1e-2 train.schedule=linear"},
		{"loss.aggregation, train.warmup, train.min_lr, train.beta2, train.weight_decay, train.clip_grad, " +
			"train.backend, " +
			"train.minibatches, parallel.reduce",
			"loss.aggregation=constant train.warmup=0 train.min_lr=0 train.beta2=0.999 train.weight_decay=0 " +
				"train.clip_grad=1 " +
				"train.backend=easyrl train.minibatches=1"},
		{"parallel.reduce", "parallel.reduce=exact"},
	} {
		code, errs := replay(set...)
		require.Equal(t, exitUsage, code, errs)
		requireOneLine(t, errs, "the settings of the step are unknown: "+groups+
			" is not in the folder of a run with a run.toml. Name the run's folder with -run DIR, or add -set for "+
			"each of "+
			want.missing+"\n")
		for s := range strings.FieldsSeq(want.settings) {
			set = append(set, "-set", s)
		}
	}
	code, errs = replay(set...)
	require.Zero(t, code, errs)
	model, want = start, checkpointHash(t, run, 1) // no checkpoint says how long the run is
	text, err = os.ReadFile(filepath.Join(run, "rollouts", "step-000001.jsonl"))
	require.NoError(t, err)
	write(t, elsewhere, "groups.jsonl", string(text))
	code, errs = replay(set...)
	require.Equal(t, exitUsage, code, errs)
	requireOneLine(t, errs, "add -set for each of run.steps\n")
	code, errs = replay(append(set, "-set", "run.steps=2")...)
	require.Zero(t, code, errs)
}

// The model that a run started from is found from any working directory: settings name it from the one of the run.
func TestReplayFindsStart(t *testing.T) {
	if !alone(t) {
		return
	}
	dir := tinyRun(t)
	start := initTiny(t, dir, "start", 3)
	t.Chdir(dir)
	trainTiny(t, dir, "", "run.dir=runs/here", "run.steps=2", "checkpoint.keep=0", "loss.beta=0.1",
		"model.init.config=", "model.path=start")
	run := filepath.Join(dir, "runs", "here")
	moved := filepath.Join(t.TempDir(), "moved")
	require.NoError(t, os.Rename(run, moved))
	t.Chdir(t.TempDir())
	model, rollouts := stepFiles(moved, start, 2)
	out := filepath.Join(t.TempDir(), "out")
	code, _, errs := command(t, "replay", "-model", model, "-rollouts", rollouts, "-out", out)
	require.Equal(t, exitUsage, code)
	requireOneLine(t, errs,
		"start replay where the run was started: model.path: read model folder: start does not exist")
	require.NoError(t, os.Rename(moved, run))
	for step := 1; step <= 2; step++ {
		requireRepeats(t, run, start, step)
	}
}

// A setting of the command line overrides the run's.
func TestReplayWithOtherSettings(t *testing.T) {
	t.Parallel()
	dir := meshRun(t, "qwen3")
	run := trainTiny(t, dir, "run", "run.steps=2", "checkpoint.keep=0", "parallel.dp=2", "loss.beta=0.1")
	start := initTiny(t, dir, "start", 1)
	for _, mesh := range []string{"parallel.tp=2", "parallel.pp=3", "parallel.dp=1"} {
		errs := requireRepeats(t, run, start, 2, "-set", mesh)
		require.NotContains(t, errs, "instead of")
	}
	said := requireRepeats(t, run, start, 2)
	require.Contains(t, said, "dp=1 tp=1 pp=1 instead of dp=2 tp=1 pp=1: the bits are the same\n")
	require.Contains(t, requireRepeats(t, run, start, 2, "-reference", start), "settings of ")
	model, rollouts := stepFiles(run, start, 2)
	norm := func(model string, more ...string) (norm, lr float64, errs string) {
		out := filepath.Join(t.TempDir(), "out")
		args := append([]string{"replay", "-model", model, "-rollouts", rollouts, "-out", out}, more...)
		code, _, errs := command(t, args...)
		require.Zero(t, code, errs)
		values, err := report.ReadMetrics(filepath.Join(out, report.MetricsFile))
		require.NoError(t, err)
		return values[0]["actor/grad_norm"], values[0]["actor/lr"], errs
	}
	same, lr, errs := norm(model)
	require.Equal(t, 1e-2, lr)
	require.NotContains(t, errs, "warning")
	again, lr, _ := norm(model, "-set", "train.lr=1e-4")
	require.Equal(t, []float64{same, 1e-4}, []float64{again, lr})
	_, _, errs = norm(start)
	require.Contains(t, errs, "warning: "+rollouts+" is from step 2, but the step after "+start+
		" is step 1: this repeats no step of a run\n")
}

// Groups of which some failed are replayed with the step's mini-batches, even if there are more of these
// than groups.
func TestReplayWithFailedGroups(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	run := trainTiny(t, dir, "run", "run.steps=2", "checkpoint.keep=0", "train.minibatches=6")
	path := filepath.Join(run, "rollouts", "step-000002.jsonl")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	lines := strings.SplitAfter(string(text), "\n")
	write(t, run, filepath.Join("rollouts", "step-000002.jsonl"), lines[0]+strings.Join(lines[3:], ""))
	out := filepath.Join(dir, "out")
	model := filepath.Join(run, "checkpoints", "step-000001")
	code, _, errs := command(t, "replay", "-model", model, "-rollouts", path, "-out", out)
	require.Zero(t, code, errs)
	state, err := trainer.ReadState(out)
	require.NoError(t, err)
	require.Equal(t, []int{2, 10, 12}, []int{state.Step, state.Updates, state.Position})
}
