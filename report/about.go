package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// AboutFile is the name of the file in a run's folder that says what the run trains.
const AboutFile = "about.json"

// About says what a run trains and how.
type About struct {
	Name       string `json:"name"`             // run.name
	Task       string `json:"task"`             // train or sft
	Mode       string `json:"mode,omitempty"`   // run.mode of a train run
	Model      string `json:"model"`            // path of the model folder, or of the config.json of random weights
	Parameters int64  `json:"parameters"`       // of the model
	Tokenizer  string `json:"tokenizer"`        // folder with the tokenizer
	Objective  string `json:"objective"`        // in words
	Reward     string `json:"reward,omitempty"` // in words; empty for sft
}

// Write writes a to a run's folder.
func (a About) Write(dir string) error {
	text, err := json.MarshalIndent(a, "", "  ")
	if err == nil {
		err = ReplaceFile(filepath.Join(dir, AboutFile), append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write what the run trains: %w", err)
	}
	return nil
}

// ReadAbout reads the file in a run's folder. Without one it returns the zero value.
func ReadAbout(dir string) (a About, err error) {
	path := filepath.Join(dir, AboutFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if err != nil {
		return a, fmt.Errorf("read %s: %w", path, err)
	}
	return a, nil
}
