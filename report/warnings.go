package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/internal/plain"
)

// WarningsFile is the name of the warnings file in a run's folder.
const WarningsFile = "warnings.jsonl"

// Warning is a one-time warning about a run. Text says what was seen, why it matters and what helps.
type Warning struct {
	Step int    `json:"step"` // the step after which it was seen
	Kind string `json:"kind"` // one word, such as "entropy"
	Text string `json:"text"`
}

// ReadWarnings reads a file of warnings, one per line, and skips a last line that is cut off. It returns
// nil if there is no file.
func ReadWarnings(path string) ([]Warning, error) {
	data, err := filetype.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read warnings: %w", err)
	}
	var all []Warning
	n := 0
	for line := range bytes.Lines(data) {
		n++
		var w Warning
		if err := json.Unmarshal(line, &w); err != nil {
			if line[len(line)-1] != '\n' {
				break
			}
			return nil, fmt.Errorf("read warnings %s:%d: %w", path, n, err)
		}
		all = append(all, w)
	}
	return all, nil
}

// WriteWarnings replaces the content of path with all, one per line.
func WriteWarnings(path string, all []Warning) error {
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	lines.SetEscapeHTML(false)
	for _, w := range all {
		if err := lines.Encode(w); err != nil {
			return fmt.Errorf("write warnings: %w", err)
		}
	}
	if err := ReplaceFile(path, plain.JSON(b.Bytes())); err != nil {
		return fmt.Errorf("write warnings: %w", err)
	}
	return nil
}
