package run

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
)

// The folder of a run has the settings of all its steps, however often it was resumed.
func TestSettingsOfEveryStep(t *testing.T) {
	t.Parallel()
	// process is a process of the run: it starts after some steps, at its own learning rate.
	type process struct{ done, rate int }
	for _, c := range []struct {
		name      string
		processes []process
		want      []int    // rate of each step from 1; the last is that of all that follow
		files     []string // besides run.toml
	}{
		{"one process", []process{{0, 1}}, []int{1}, nil},
		{"resumed", []process{{0, 1}, {3, 1}}, []int{1}, nil},
		{"changed", []process{{0, 1}, {3, 2}}, []int{1, 1, 1, 2}, []string{"run-step-000003.toml"}},
		{"changed twice", []process{{0, 1}, {3, 2}, {4, 3}}, []int{1, 1, 1, 2, 3},
			[]string{"run-step-000003.toml", "run-step-000004.toml"}},
		{"changed before a step", []process{{0, 1}, {3, 2}, {3, 3}}, []int{1, 1, 1, 3},
			[]string{"run-step-000003.toml"}},
		{"changed back before a step", []process{{0, 1}, {3, 2}, {3, 1}}, []int{1}, []string{"run-step-000003.toml"}},
		{"lost checkpoints", []process{{0, 1}, {3, 2}, {6, 3}, {2, 4}}, []int{1, 1, 4},
			[]string{"run-step-000002.toml"}},
		{"lost checkpoints within a change", []process{{0, 1}, {3, 2}, {6, 3}, {5, 3}}, []int{1, 1, 1, 2, 2, 3},
			[]string{"run-step-000003.toml", "run-step-000005.toml"}},
		{"lost all checkpoints", []process{{0, 1}, {3, 2}, {0, 3}}, []int{3}, nil},
		{"the rate of the step lost", []process{{0, 1}, {3, 2}, {2, 1}}, []int{1}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, p := range c.processes {
				r, err := configs.Load(nil, []string{fmt.Sprintf("train.lr=%d", p.rate)})
				require.NoError(t, err)
				require.NoError(t, writeSettings(r, dir, p.done))
			}
			for step := 1; step <= len(c.want)+2; step++ {
				path, err := settingsOf(dir, step)
				require.NoError(t, err)
				r, err := configs.Load([]string{path}, nil)
				require.NoError(t, err)
				require.EqualValues(t, c.want[min(step, len(c.want))-1], r.Train.LR, "step %d", step)
			}
			all, err := filepath.Glob(filepath.Join(dir, "*"))
			require.NoError(t, err)
			var files []string
			for _, path := range all {
				if name := filepath.Base(path); name != configs.RunFile {
					files = append(files, name)
				}
			}
			require.Equal(t, c.files, files)
		})
	}
}

// Files with similar names are not settings of a run.
func TestSettingsOfOtherNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"run-step-3.toml", "run-step-000000.toml", "run-step-00000x.toml",
		"run-step-000009.toml.old", "my-step-000009.toml"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
	}
	path, err := settingsOf(dir, 1)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, configs.RunFile), path)
	path, err = settingsOf(filepath.Join(dir, "none"), 1)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.Equal(t, filepath.Join(dir, "none", configs.RunFile), path)
}
