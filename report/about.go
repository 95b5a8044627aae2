package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/easyrl/easyrl/internal/filetype"
)

// aboutFile is the name of the file in a run's folder that holds its About.
const aboutFile = "about.json"

// About describes a run for its report.
type About struct {
	Name       string `json:"name"`             // run.name
	Task       string `json:"task"`             // train or sft
	Mode       string `json:"mode,omitempty"`   // run.mode of a train run
	Model      string `json:"model"`            // path of the model folder, or of the config.json of random weights
	Parameters int64  `json:"parameters"`       // number of parameters of the model
	Tokenizer  string `json:"tokenizer"`        // folder with the tokenizer
	Objective  string `json:"objective"`        // in words
	Reward     string `json:"reward,omitempty"` // in words; empty for sft
}

// Write writes a to a run's folder.
func (a About) Write(dir string) error { return writeJSON(filepath.Join(dir, aboutFile), a) }

// ReadAbout reads the About in a run's folder. It returns the zero value if there is none or if a
// crash has damaged it.
func ReadAbout(dir string) (a About, err error) {
	_, err = readJSON(filepath.Join(dir, aboutFile), &a)
	return a, err
}

// writeJSON replaces the content of a file with v, atomically.
func writeJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err == nil {
		err = ReplaceFile(path, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// readJSON reads a file into v. If there is no file, or it is not JSON because a crash has damaged it, found
// is false and v is unchanged.
func readJSON(path string, v any) (found bool, err error) {
	text, err := filetype.Read(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !json.Valid(text) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	return true, nil
}

// Parameters formats a number of parameters with three digits and a unit, such as "596 M".
func Parameters(n int64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, " B"}, {1e6, " M"}, {1e3, " K"}} {
		if float64(n) >= unit.size {
			return fmt.Sprintf("%.3g%s", float64(n)/unit.size, unit.name)
		}
	}
	return fmt.Sprint(n)
}
