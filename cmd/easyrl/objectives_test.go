package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every objective that is shipped trains, and does something else than the run
// that it is put on top of; the corrections for instances that are not exact do
// nothing where they are.
func TestObjectives(t *testing.T) {
	dir := tinyRun(t)
	overlays, err := filepath.Glob(filepath.Join("..", "..", "configs", "objectives", "*.toml"))
	require.NoError(t, err)
	require.NotEmpty(t, overlays)
	train := func(name string, overlay ...string) string {
		args := append([]string{"train", filepath.Join(dir, "run.toml")}, overlay...)
		for _, s := range []string{fmt.Sprintf("run.dir=%q", filepath.Join(dir, name)), "run.steps=1", "rollout.prompts_per_step=16",
			"rollout.group_size=4", "train.lr=1e-2", "train.warmup=0", "checkpoint.every=0"} {
			args = append(args, "-set", s)
		}
		if name == "dapo" {
			args = append(args, "-set", "loss.overlong=4") // of 12 tokens
		}
		code, _, errs := command(t, args...)
		require.Zero(t, code, errs)
		return weightsHash(t, filepath.Join(dir, name), 1)
	}
	seen := map[string]string{train("base"): "base"}
	for _, overlay := range overlays {
		name := strings.TrimSuffix(filepath.Base(overlay), ".toml")
		got := train(name, overlay)
		if name == "truncated-is" || name == "icepop" {
			require.Equal(t, "base", seen[got], name)
			continue
		}
		require.Empty(t, seen[got], "%s ends in the weights of it", name)
		seen[got] = name
	}
}
