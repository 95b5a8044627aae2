// Package paths explains in errors how the program understands a path.
package paths

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Absolute returns path as an absolute path, or unchanged if the working directory is unknown.
func Absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// IsFile reports whether path is an existing file, not a folder.
func IsFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}

// Missing returns a message that path does not exist, with a Hint.
func Missing(path string) string { return path + " does not exist" + Hint(path) }

// Hint returns advice on a path that does not exist, to append to a message, or "" if there is
// none. besides lists files, such as run files, in whose folders path may exist.
func Hint(path string, besides ...string) string {
	switch {
	case path == "" || filepath.IsAbs(path):
		return ""
	case strings.HasPrefix(path, "~"):
		return "; ~ is not expanded: write the whole path"
	case strings.HasPrefix(path, "$"):
		return "; variables are not expanded: write the whole path"
	}
	for _, file := range besides {
		beside := filepath.Join(filepath.Dir(file), path)
		if _, err := os.Stat(beside); err == nil {
			return fmt.Sprintf("; paths are relative to the working directory, so write %s", beside)
		}
	}
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	return "; paths are relative to the working directory " + dir
}

// Explain adds Hint to an error about a file that does not exist. It returns other errors
// unchanged.
func Explain(err error, besides ...string) error {
	var failed *fs.PathError
	if !errors.As(err, &failed) || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if hint := Hint(failed.Path, besides...); hint != "" {
		return fmt.Errorf("%w%s", err, hint)
	}
	return err
}
