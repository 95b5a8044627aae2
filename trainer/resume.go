package trainer

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/report"
)

// ErrLocked reports that another process is using a run's folder.
var ErrLocked = errors.New("in use by another process")

// Claim checks that a run may write to the folder dir, and changes nothing. If the folder holds a run's
// checkpoints or metrics, Claim fails unless resume is true. Otherwise from is the newest intact checkpoint,
// and Claim warns of each newer one that is damaged. from is empty if there is no checkpoint. If checkpoints
// exist but none is intact, Claim fails, because a run from the beginning would replace them.
func Claim(dir string, resume bool, warn func(format string, args ...any)) (from string, err error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return "", fmt.Errorf("run.dir %q is a file, expected a folder", dir)
	}
	from, _, skipped, err := checkpoint.Latest(CheckpointRoot(dir))
	if err != nil && !errors.Is(err, checkpoint.ErrNotFound) {
		return "", fmt.Errorf("run.dir %q: %w", dir, err)
	}
	metrics, statErr := os.Stat(filepath.Join(dir, report.MetricsFile))
	if !resume {
		if err == nil || len(skipped) > 0 || statErr == nil && metrics.Size() > 0 {
			return "", fmt.Errorf("%s already contains a run. Continue it with -resume, or set another run.dir", dir)
		}
		return "", nil
	}
	for _, bad := range skipped {
		warn("skipped a checkpoint: %v", bad)
	}
	if err == nil {
		return from, nil
	}
	if len(skipped) > 0 {
		return "", fmt.Errorf(
			"resume: none of the %d checkpoints in %s is intact. Remove them to start over, or set another run.dir",
			len(skipped), CheckpointRoot(dir))
	}
	warn("no checkpoint in %s; starting from the beginning", dir)
	return "", nil
}

// CheckResume returns an error if the checkpoint in the folder from cannot continue run: its task or seed
// differs, or one of files, which come from the model folder named source. It reads no weights.
func CheckResume(from string, run State, files map[string][]byte, source string) error {
	state, err := ReadState(from)
	switch {
	case err != nil:
		return err
	case state.Task != "" && state.Task != run.Task:
		return fmt.Errorf("resume: %s was written by easyrl %s, expected a checkpoint of easyrl %s", from,
			state.Task, run.Task)
	case state.Seed != run.Seed:
		return fmt.Errorf("resume: run.seed is %d, expected the run's original %d", run.Seed, state.Seed)
	}
	for name, content := range files {
		if saved, err := filetype.Read(filepath.Join(from, name)); err != nil || !bytes.Equal(saved, content) {
			return fmt.Errorf("resume: %s in %s differs from the one in %s: different model", name, source, from)
		}
	}
	return nil
}
