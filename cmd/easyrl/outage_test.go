package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/trainer"
)

// metricsOf returns the metrics of a run, one entry per line.
func metricsOf(t *testing.T, run string) []report.Values {
	t.Helper()
	steps, err := report.ReadMetrics(filepath.Join(run, report.MetricsFile))
	require.NoError(t, err)
	return steps
}

// A failing scorer ends the run but its finished steps remain. With a working scorer, the
// run resumes and ends in the same bits as an uninterrupted one.
func TestBrokenRewardLosesNothing(t *testing.T) {
	t.Parallel()
	needsEnv(t)
	dir := tinyRun(t)
	out, whole := filepath.Join(dir, "run"), filepath.Join(dir, "whole")
	args := func(run, mode string, more ...string) []string {
		all := append([]string{"train", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", run), "-set",
			"data.shuffle=false",
			"-set", "checkpoint.every=0"}, rewardSettings(mode)...)
		return append(all, more...)
	}
	code, _, errs := command(t, args(whole, "mended")...)
	require.Zero(t, code, errs)

	code, _, errs = command(t, args(out, "breaks")...) // step 4 has prompts 18 to 22 and 0
	require.Equal(t, exitFailed, code, errs)
	lines := strings.Split(strings.TrimSpace(errs), "\n")
	last := lines[len(lines)-1]
	require.Regexp(t, "^error: step 4: sample: produce step 4: too many groups failed: prompt or reward failed for "+
		"[23] of 6, more than the 1 allowed", last)
	require.Contains(t, last, "; saved a checkpoint after step 3, -resume continues from it")
	require.Len(t, metricsOf(t, out), 3)

	code, _, errs = command(t, args(out, "mended", "-resume")...)
	require.Zero(t, code, errs)
	require.Contains(t, errs, "resuming after step 3 from ")
	require.Equal(t, weightsHash(t, whole, 5), weightsHash(t, out, 5))
	require.Len(t, metricsOf(t, out), 5)
}

// A tenth of a step's prompts may fail.
func TestTenthOfRewardsMayFail(t *testing.T) {
	t.Parallel()
	needsEnv(t)
	dir := tinyRun(t)
	out := filepath.Join(dir, "run")
	code, _, errs := command(t,
		append([]string{"train", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", out), "-set",
			"data.shuffle=false",
			"-set", "run.steps=1", "-set", "rollout.prompts_per_step=22"}, rewardSettings("breaks")...)...)
	require.Zero(t, code, errs)
	require.Equal(t, 2, strings.Count(errs, "gave up on prompt"))
	steps := metricsOf(t, out)
	require.Equal(t, []float64{2, 20}, []float64{steps[0]["groups/failed"], steps[0]["groups/trained"]})
}

// A service that is down for longer than the retries last, from the start of step 2, only
// costs time.
func TestRewardServiceOutage(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	out := filepath.Join(dir, "run")
	const most = 32 // four tries of each of eight concurrent requests
	firstStep := regexp.MustCompile("^[0-5],0$")
	var rejected atomic.Int64
	url := httpScorer(t, func(_ int64, prompt string, w http.ResponseWriter, _ *http.Request) bool {
		away := !firstStep.MatchString(prompt) && rejected.Add(1) <= most
		if away {
			w.WriteHeader(http.StatusBadGateway)
		}
		return away
	})
	code, _, errs := command(t, "train", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", out), "-set",
		"run.steps=4",
		"-set", "data.shuffle=false", "-set", fmt.Sprintf(`reward={kind="http",url=%q}`, url))
	require.Zero(t, code, errs)
	require.NotContains(t, errs, "gave up")
	retries := 0.0
	for _, values := range metricsOf(t, out) {
		require.Equal(t, 6.0, values["groups/trained"])
		retries += values["reward/retries"]
	}
	require.EqualValues(t, most, retries)
}

// An evaluation without scores for most prompts omits its means, and training continues.
// The same evaluation outside a run fails.
func TestFailedEvaluationDoesNotEndRun(t *testing.T) {
	t.Parallel()
	needsEnv(t)
	dir := tinyRun(t)
	all, err := os.ReadFile(filepath.Join(dir, "prompts.jsonl"))
	require.NoError(t, err)
	lines := strings.SplitAfter(string(all), "\n")
	train := write(t, dir, "train.jsonl", strings.Join(lines[:20], ""))
	held := write(t, dir, "held.jsonl", lines[0]+strings.Repeat(strings.Join(lines[20:23], ""), 2))
	out := filepath.Join(dir, "run")
	code, _, errs := command(t,
		append([]string{"train", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", out), "-set",
			"data.train=" + train,
			"-set", "data.eval=" + held, "-set", "eval.every=1", "-set", "run.steps=2", "-set", "checkpoint.every=0"},
			rewardSettings("breaks")...)...)
	require.Zero(t, code, errs)
	for step := range 3 {
		left := regexp.MustCompile(fmt.Sprintf("warning: evaluation after step %d is skipped: too many prompts have "+
			"no score: [4-6] of 7 in held, more than the 3 allowed", step))
		require.Len(t, left.FindAllString(errs, -1), 1, errs)
	}
	steps := metricsOf(t, out)
	require.Len(t, steps, 3)
	for i, values := range steps {
		require.Contains(t, []float64{4, 5, 6}, values["eval/held/failed"], "immediate failures count")
		for name := range values {
			require.False(t, strings.HasPrefix(name, "eval/held/mean@") ||
				strings.HasPrefix(name, "eval/held/pass@"), name)
		}
		require.True(t, i == 0 || values["groups/trained"] == 6)
	}
	last := filepath.Join(out, "checkpoints", "step-000002")
	state, err := trainer.ReadState(last)
	require.NoError(t, err)
	require.Zero(t, state.BestStep)

	code, _, errs = command(t, append([]string{"eval", filepath.Join(out, "run.toml"), "-model", last},
		rewardSettings("breaks")...)...)
	require.Equal(t, exitFailed, code, errs)
	require.Regexp(t, "too many prompts have no score: [4-6] of 7 in held, more than the 3 allowed", errs)
}

// Groups replaced by dynamic sampling are recorded, and replaying the record repeats the
// step.
func TestReplacedGroupsAreRecorded(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	run := trainTiny(t, dir, "run", "rollout.dynamic_sampling=2", "run.steps=2", "reward.kind=exact",
		"rollout.group_size=2")
	for i, values := range metricsOf(t, run) {
		path := filepath.Join(run, "rollouts", fmt.Sprintf("step-%06d.jsonl", i+1))
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		sum, n, replaced := 0.0, 0, 0.0
		var places []int
		for line := range bytes.Lines(text) {
			var g rollout.Group
			require.NoError(t, g.UnmarshalJSON(line))
			for _, r := range g.Responses {
				sum += r.Reward
				n++
			}
			if g.Replaced {
				replaced++
				require.Equal(t, g.Responses[0].Reward, g.Responses[1].Reward)
			} else {
				require.Zero(t, replaced, "the trained groups come first")
				places = append(places, g.Index)
			}
		}
		require.Equal(t, []int{0, 1, 2, 3, 4, 5}, places)
		require.Equal(t, replaced, values["groups/refilled"])
		require.Positive(t, replaced)
		require.InDelta(t, sum/float64(n), values["reward/sampled_mean"], 1e-12)
	}
	replayed := filepath.Join(dir, "replayed")
	code, _, errs := command(t, "replay", "-model", filepath.Join(run, "checkpoints", "step-000001"), "-rollouts",
		filepath.Join(run, "rollouts", "step-000002.jsonl"),
		"-out", replayed, "-set", "train.lr=1e-2", "-set", "train.micro_batch_tokens=64")
	require.Zero(t, code, errs)
	got, err := os.ReadFile(filepath.Join(replayed, "model.safetensors"))
	require.NoError(t, err)
	want, err := os.ReadFile(filepath.Join(run, "checkpoints", "step-000002", "model.safetensors"))
	require.NoError(t, err)
	require.True(t, slices.Equal(want, got))
}
