package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// StepPrefix is the prefix of the names of a run's checkpoints. The number of the step
// follows.
const StepPrefix = "step-"

// StepName returns the name of a step's checkpoint, such as step-000050.
func StepName(step int) string { return fmt.Sprintf("%s%06d", StepPrefix, step) }

// candidate is a folder that has the name of a run's checkpoint. It is a valid checkpoint if
// Verify accepts it.
type candidate struct {
	folder string // name of the folder in the root
	name   string // name of the checkpoint; differs from folder while Save replaces the checkpoint
	step   int
}

// Latest returns the newest valid checkpoint of a run under root: the one with the
// highest step among the folders named StepPrefix plus a number that Verify accepts. skipped
// has an error for each newer folder, which Verify rejects. The error wraps ErrNotFound if
// there is no valid checkpoint.
func Latest(root string) (dir string, step int, skipped []error, err error) {
	found, err := candidates(root)
	if err != nil {
		return "", 0, nil, fmt.Errorf("find checkpoint in %s: %w", root, err)
	}
	for _, c := range found {
		dir := filepath.Join(root, c.folder)
		if err := Verify(dir); err != nil {
			skipped = append(skipped, err)
			continue
		}
		return dir, c.step, skipped, nil
	}
	return "", 0, skipped, fmt.Errorf("find checkpoint in %s: %w: none of the %d named %sN is complete",
		root, ErrNotFound, len(found), StepPrefix)
}

// Before returns the newest checkpoint of a run under root that holds fewer completed steps than step. It does not
// verify it. dir is empty if there is none.
func Before(root string, step int) (dir string, at int, err error) {
	found, err := candidates(root)
	if err != nil {
		return "", 0, fmt.Errorf("find checkpoint in %s: %w", root, err)
	}
	for _, c := range found {
		if c.step < step {
			return filepath.Join(root, c.folder), c.step, nil
		}
	}
	return "", 0, nil
}

// candidates returns the candidates in root, newest first, or none if root does not exist.
// While Save replaces a checkpoint, the old folder has the prefix replacedPrefix; it is a
// candidate until the new one is in place.
func candidates(root string) ([]candidate, error) {
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	names := make(map[string]bool, len(entries))
	for _, e := range entries {
		names[e.Name()] = true
	}
	var found []candidate
	for _, e := range entries {
		name, replaced := strings.CutPrefix(e.Name(), replacedPrefix)
		number, ok := strings.CutPrefix(name, StepPrefix)
		step, err := strconv.ParseUint(number, 10, 31)
		superseded := replaced && names[name]
		if ok && err == nil && e.IsDir() && !superseded {
			found = append(found, candidate{e.Name(), name, int(step)})
		}
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.step, a.step), strings.Compare(a.name, b.name))
	})
	return found, nil
}

// Prune removes the checkpoints of a run under root except the newest keep, which must be at
// least 1, and those named in always. It counts invalid checkpoints too, but never removes
// the newest valid one. It also removes leftovers of interrupted saves. No Save may run in
// root at the same time.
func Prune(root string, keep int, always ...string) error {
	if err := prune(root, keep, always); err != nil {
		return fmt.Errorf("prune checkpoints in %s: %w", root, err)
	}
	return nil
}

func prune(root string, keep int, always []string) error {
	if keep < 1 {
		return fmt.Errorf("keep is %d, expected at least 1", keep)
	}
	if err := sweep(root); err != nil {
		return err
	}
	found, err := candidates(root)
	if err != nil || len(found) <= keep {
		return err
	}
	foundValid := false
	var errs []error
	for i, c := range found {
		newestValid := !foundValid && verify(filepath.Join(root, c.folder)) == nil
		foundValid = foundValid || newestValid
		if i >= keep && !newestValid && !slices.Contains(always, c.name) {
			errs = append(errs, discard(root, c.folder))
		}
	}
	return errors.Join(append(errs, syncDir(root))...)
}

// sweep removes the folders that interrupted saves left, except a replaced checkpoint whose
// replacement is missing.
func sweep(root string) error {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		name, replaced := strings.CutPrefix(e.Name(), replacedPrefix)
		if replaced {
			if _, err := os.Lstat(filepath.Join(root, name)); err != nil {
				continue // the replacement is missing
			}
		}
		if replaced || strings.HasPrefix(e.Name(), tempPrefix) {
			errs = append(errs, discard(root, e.Name()))
		}
	}
	return errors.Join(errs...)
}
