package data

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/internal/paths"
)

// dataFile is a file to read.
type dataFile struct {
	path  string
	label string // shortest suffix of path that is unique among the files
	part  int    // index of the path or pattern that named the file
}

// expand returns the files named by paths and patterns, with labels. A file named twice or a
// pattern without files is an error.
func expand(paths []string) ([]dataFile, error) {
	if len(paths) == 0 {
		return nil, errors.New("read prompts: no files given")
	}
	var files []dataFile
	taken := map[string]bool{}
	for part, path := range paths {
		names, err := matches(path)
		if err != nil {
			return nil, fmt.Errorf("read prompts: %w", err)
		}
		for _, name := range names {
			clean := filepath.Clean(name)
			if taken[clean] {
				return nil, fmt.Errorf("read prompts %s: named twice", name)
			}
			taken[clean] = true
			if err := filetype.Check(name); err != nil {
				return nil, fmt.Errorf("read prompts: %w", err)
			}
			files = append(files, dataFile{path: name, part: part})
		}
	}
	label(files)
	return files, nil
}

// Files returns the files named by paths and patterns; those of a pattern are
// sorted by name.
func Files(paths []string) ([]string, error) {
	files, err := expand(paths)
	names := make([]string, len(files))
	for i := range files {
		names[i] = files[i].path
	}
	return names, err
}

// matches returns the files named by a path or pattern. An existing file takes
// precedence over a pattern.
func matches(path string) ([]string, error) {
	if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) || !strings.ContainsAny(path, "*?[") {
		return []string{path}, nil
	}
	names, err := filepath.Glob(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: no file matches%s", path, paths.Hint(path))
	}
	return names, nil
}

// label gives each file the shortest suffix of its path that is unique. A file whose entire
// path is a suffix of another's gets its path.
func label(files []dataFile) {
	for depth, todo := 1, len(files); todo > 0; depth++ {
		count := map[string]int{}
		for i := range files {
			count[tail(files[i].path, depth)]++
		}
		for i := range files {
			end := tail(files[i].path, depth)
			if files[i].label == "" && (count[end] == 1 || end == tail(files[i].path, depth+1)) {
				files[i].label = end
				todo--
			}
		}
	}
}

// tail returns the last n elements of a path.
func tail(path string, n int) string {
	parts := strings.Split(filepath.ToSlash(filepath.Clean(path)), "/")
	return strings.Join(parts[max(0, len(parts)-n):], "/")
}
