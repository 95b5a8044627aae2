package report

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/easyrl/easyrl/internal/filetype"
)

// Damage returns a line for each file of a run's folder that a crash left empty or cut off.
// Readers skip what is damaged.
func Damage(dir string) []string {
	var all []string
	for _, folder := range []string{dir, filepath.Join(dir, "rollouts")} {
		entries, _ := os.ReadDir(folder) // a reader of its files reports errors
		for _, e := range entries {
			if line := Damaged(filepath.Join(folder, e.Name())); line != "" {
				all = append(all, line)
			}
		}
	}
	return all
}

// Damaged returns a line that describes the damage a crash did to a file of a run's folder. It returns
// "" if the file is whole, cannot be read or is neither JSON nor JSON lines. The metrics file and
// the warnings file may be empty.
func Damaged(path string) string {
	info, err := os.Stat(path)
	name := filepath.Base(path)
	switch ext := filepath.Ext(path); {
	case err != nil || !info.Mode().IsRegular() || ext != ".json" && ext != ".jsonl":
		return ""
	case info.Size() == 0 && (name == MetricsFile || name == WarningsFile):
		return ""
	case info.Size() == 0:
		return path + " is empty; skipped it"
	case ext == ".jsonl":
		return CutOff(path)
	}
	if text, err := filetype.Read(path); err == nil && !json.Valid(text) {
		return path + " is damaged; skipped it"
	}
	return ""
}

// CutOff returns a message if the last line of a file of JSON lines is cut off. It returns "" if that
// line is whole or cannot be read.
func CutOff(path string) string {
	file, err := filetype.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close() //nolint:errcheck // only read
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return ""
	}
	end := make([]byte, 1)
	if _, err := file.ReadAt(end, info.Size()-1); err != nil || end[0] == '\n' {
		return ""
	}
	end = make([]byte, min(info.Size(), maxLine))
	_, err = file.ReadAt(end, info.Size()-int64(len(end)))
	if err != nil || json.Valid(end[bytes.LastIndexByte(end, '\n')+1:]) {
		return ""
	}
	return path + ": the last line is cut off; skipped it"
}
