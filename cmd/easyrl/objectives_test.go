package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report"
)

// objectives returns the shipped overlays by name.
func objectives(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", "..", "configs", "objectives", "*.toml"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	overlays := map[string]string{}
	for _, path := range paths {
		overlays[strings.TrimSuffix(filepath.Base(path), ".toml")] = path
	}
	return overlays
}

// trainOverlaid trains the tiny run of dir with settings and an overlay, which may be
// empty, into a folder of its own.
func trainOverlaid(t *testing.T, dir, name, overlay string, settings ...string) string {
	t.Helper()
	out := filepath.Join(dir, name)
	args := []string{"train", filepath.Join(dir, "run.toml")}
	if overlay != "" {
		args = append(args, overlay)
	}
	settings = append(settings, fmt.Sprintf("run.dir=%q", out), "rollout.prompts_per_step=16", "train.warmup=0",
		"checkpoint.every=0")
	for _, s := range settings {
		args = append(args, "-set", s)
	}
	code, _, errs := command(t, args...)
	require.Zero(t, code, errs)
	return out
}

// exact reports whether an objective only corrects inexact instances. It has no effect on
// exact ones.
func exact(name string) bool { return name == "truncated-is" || name == "icepop" }

// Every shipped objective trains and changes the result of the base run, except
// corrections of inexact instances.
func TestObjectives(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	train := func(name, overlay string) string {
		return weightsHash(t, trainOverlaid(t, dir, name, overlay, "run.steps=1", "rollout.group_size=4",
			"train.lr=1e-2"), 1)
	}
	seen := map[string]string{train("base", ""): "base"}
	for name, overlay := range objectives(t) {
		got := train(name, overlay)
		if exact(name) {
			require.Equal(t, "base", seen[got], name)
			continue
		}
		require.Empty(t, seen[got], "%s ends with the same weights", name)
		seen[got] = name
	}
}

// Every shipped objective learns a task from random weights: to repeat the prompt's first
// digit. The learning rate is high, so an objective whose steps on a batch go too far
// fails.
func TestObjectivesLearn(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	var prompts strings.Builder
	for i := range 23 {
		fmt.Fprintf(&prompts, `{"prompt":"%d,%d","answer":"%d"}`+"\n", i%10, i/10, i%10)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prompts.jsonl"), []byte(prompts.String()), 0o644))
	for name, overlay := range objectives(t) {
		if exact(name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := trainOverlaid(t, dir, name, overlay, "run.steps=60", "train.lr=5e-3", "rollout.group_size=8",
				"rollout.max_tokens=4", "log.rollouts=false")
			steps, err := report.ReadMetrics(filepath.Join(out, report.MetricsFile))
			require.NoError(t, err)
			require.Len(t, steps, 60)
			last := 0.0
			for _, step := range steps[50:] {
				last += step["reward/mean"] / 10
			}
			require.Less(t, steps[0]["reward/mean"], 0.1)
			require.Greater(t, last, 0.3)
			t.Logf("reward %.3f at first, %.3f at last", steps[0]["reward/mean"], last)
		})
	}
}
