package evaluate

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// NamedFiles holds the files of one set.
type NamedFiles struct {
	Name  string
	Files []int // indices into the list
}

// Names groups files into sets and names them. A name is a file's base without the
// extension, preceded by as many folders as make the name unique, as in "gsm8k-test" and
// "math-test". Numbered parts in one folder, such as test-00000-of-00002.parquet, form one
// set.
func Names(files []string) []NamedFiles {
	var sets []NamedFiles
	var paths []string // path of each set, without part numbers
	part := regexp.MustCompile(`-\d{5}-of-\d{5}(\.[^./]*)?$`)
	for i, file := range files {
		path := part.ReplaceAllString(filepath.ToSlash(filepath.Clean(file)), "$1")
		set := slices.Index(paths, path)
		if set < 0 || path == filepath.ToSlash(filepath.Clean(file)) { // a new set, or a file without part numbers
			set = len(sets)
			sets = append(sets, NamedFiles{})
			paths = append(paths, path)
		}
		sets[set].Files = append(sets[set].Files, i)
	}
	for i, name := range distinct(paths) {
		sets[i].Name = name
	}
	return sets
}

// distinct returns unique names for paths. It adds folders to names that others have too, and then numbers. With
// several sets, no name is Average.
func distinct(paths []string) []string {
	depths, names := make([]int, len(paths)), make([]string, len(paths))
	for {
		deeper := false
		for i, path := range paths {
			names[i] = nameOf(path, depths[i])
		}
		for i := range names {
			taken := slices.Contains(names[:i], names[i]) || slices.Contains(names[i+1:], names[i]) ||
				names[i] == Average && len(names) > 1
			if taken && nameOf(paths[i], depths[i]+1) != names[i] {
				depths[i]++
				deeper = true
			}
		}
		if !deeper {
			break
		}
	}
	for i, name := range names {
		for n := 2; slices.Contains(names[:i], names[i]) || names[i] == Average && len(names) > 1; n++ {
			names[i] = fmt.Sprintf("%s-%d", name, n)
		}
	}
	return names
}

// nameOf returns a path's base, preceded by this many of its folders. If the path has fewer
// folders, nameOf adds the extension.
func nameOf(path string, folders int) string {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	last := len(parts) - 1
	if stem := strings.TrimSuffix(parts[last], filepath.Ext(parts[last])); folders <= last && stem != "" {
		parts[last] = stem
	}
	return strings.Join(parts[max(0, last-folders):], "-")
}
