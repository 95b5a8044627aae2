package run

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/report"
)

// past is a file with earlier settings of a run: those of the steps up to last, after which a resumed run changed
// them. configs.RunFile has the settings after the last change.
type past struct {
	path string
	last int
}

// pastName returns the name of the file with the settings of steps up to last: run-step-000005.toml.
func pastName(last int) string { return runStem + checkpoint.StepName(last) + settingsExt }

// Parts of pastName.
const runStem, settingsExt = "run-", ".toml"

// pastSettings returns the files of past settings in a run's folder, oldest first.
func pastSettings(dir string) (all []past, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		stem, isToml := strings.CutSuffix(e.Name(), settingsExt)
		number, isPast := strings.CutPrefix(stem, runStem+checkpoint.StepPrefix)
		if last, err := strconv.Atoi(number); err == nil && isToml && isPast && last > 0 && e.Name() == pastName(last) {
			all = append(all, past{filepath.Join(dir, e.Name()), last})
		}
	}
	slices.SortFunc(all, func(a, b past) int { return a.last - b.last })
	return all, nil
}

// settingsOf returns the path of the settings with which the run in dir took the given step, or would take it.
func settingsOf(dir string, step int) (string, error) {
	all, err := pastSettings(dir)
	for _, p := range all {
		if p.last >= step {
			return p.path, nil
		}
	}
	return filepath.Join(dir, configs.RunFile), err
}

// writeSettings writes the settings of a run that has completed done steps to its folder. If the settings of the
// last completed step differ, it first copies them to a separate file, so that settingsOf is right for the
// completed steps even if the process dies in between.
func writeSettings(resolved *configs.Resolved, dir string, done int) error {
	before, err := settingsOf(dir, done)
	if err == nil && done > 0 && !resolved.Same(before) {
		err = copySettings(filepath.Join(dir, pastName(done)), before)
	}
	if err == nil {
		err = resolved.WriteFile(dir)
	}
	if err != nil {
		return err
	}
	all, err := pastSettings(dir)
	for _, p := range all {
		if p.last > done { // the run repeats these steps with the new settings
			err = errors.Join(err, os.Remove(p.path))
		}
	}
	return err
}

// copySettings copies a file of settings. It does nothing if the file does not exist or is the copy itself.
func copySettings(to, from string) error {
	text, err := filetype.Read(from)
	if errors.Is(err, fs.ErrNotExist) || to == from {
		return nil
	}
	if err != nil {
		return err
	}
	return report.ReplaceFile(to, text)
}
