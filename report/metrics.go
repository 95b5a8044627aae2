package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// MetricsFile is the name of the metrics in a run's folder.
const MetricsFile = "metrics.jsonl"

// maxLine bounds a line of a file that is read back.
const maxLine = 64 << 20

// Values are the numbers of one step by name, such as "reward/mean".
type Values map[string]float64

// groupOrder is the order of the names in a line: by the part before the first
// slash, groups that are not listed last, and by name within a group.
func groupOrder() []string {
	return []string{"step", "version", "time", "reward", "eval", "response_length", "prompt_length", "actor",
		"mismatch", "staleness", "timing_s", "idle", "perf", "tokens", "fleet", "groups", "memory"}
}

// Names are v's names in the order of a line.
func (v Values) Names() []string {
	order := groupOrder()
	rank := func(name string) int {
		group, _, _ := strings.Cut(name, "/")
		if i := slices.Index(order, group); i >= 0 {
			return i
		}
		return len(order)
	}
	names := make([]string, 0, len(v))
	for name := range v {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return names
}

// Line is v as one flat JSON object with the names in order. A value that is
// not finite becomes null.
func (v Values) Line() []byte {
	b := []byte{'{'}
	for i, name := range v.Names() {
		if i > 0 {
			b = append(b, ',')
		}
		key, _ := json.Marshal(name) // a string always marshals
		b = append(append(b, key...), ':')
		b = appendNumber(b, v[name])
	}
	return append(b, '}', '\n')
}

func appendNumber(b []byte, x float64) []byte {
	switch {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return append(b, "null"...)
	case x == math.Trunc(x) && math.Abs(x) < 1<<53:
		return strconv.AppendInt(b, int64(x), 10)
	case math.Abs(x) >= 1e-4 && math.Abs(x) < 1e15:
		return strconv.AppendFloat(b, x, 'f', -1, 64)
	}
	return strconv.AppendFloat(b, x, 'g', -1, 64)
}

// Metrics appends one line a step to a file. It is safe for concurrent use.
type Metrics struct {
	mu   sync.Mutex
	file *os.File
}

// OpenMetrics opens path for the steps from on. Lines of those steps that the
// file already has are dropped, and so is a last line that was cut short: a
// resumed run writes them anew.
func OpenMetrics(path string, from int) (*Metrics, error) {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open metrics: %w", err)
	}
	kept := make([]byte, 0, len(old))
	for line := range bytes.Lines(old) {
		var head struct {
			Step *float64 `json:"step"`
		}
		if line[len(line)-1] == '\n' && json.Unmarshal(line, &head) == nil && head.Step != nil && *head.Step < float64(from) {
			kept = append(kept, line...)
		}
	}
	if !bytes.Equal(kept, old) {
		if err := ReplaceFile(path, kept); err != nil {
			return nil, fmt.Errorf("open metrics: %w", err)
		}
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open metrics: %w", err)
	}
	return &Metrics{file: file}, nil
}

// Write appends the line of one step: values, which must name their step.
func (m *Metrics) Write(values Values) error {
	if _, ok := values["step"]; !ok {
		return errors.New("write metrics: the values lack \"step\"")
	}
	line := values.Line()
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.file.Write(line); err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	return nil
}

// Close closes the file.
func (m *Metrics) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.file.Close()
}

// ReadMetrics reads a metrics file, one Values a line. Nulls are left out; a
// last line that was cut short is skipped.
func ReadMetrics(path string) ([]Values, error) {
	var all []Values
	err := EachStep(path, func(values Values) error {
		all = append(all, values)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// EachStep visits the lines of a metrics file as ReadMetrics reads them, one at
// a time, until visit returns an error, which it returns.
func EachStep(path string, visit func(Values) error) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	defer file.Close() //nolint:errcheck // nothing was written
	var fault error
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		if fault != nil {
			return fault
		}
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		values, err := ParseLine(lines.Bytes())
		if err != nil {
			fault = fmt.Errorf("read metrics %s:%d: %w", path, n, err)
			continue // tolerated where it is the last line
		}
		if err := visit(values); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read metrics %s: %w", path, err)
	}
	return nil
}

// ParseLine is the Values of one line; nulls are left out.
func ParseLine(line []byte) (Values, error) {
	var row map[string]*float64
	if err := json.Unmarshal(line, &row); err != nil {
		return nil, err
	}
	values := make(Values, len(row))
	for name, x := range row {
		if x != nil {
			values[name] = *x
		}
	}
	return values, nil
}

// ReplaceFile puts data in place of path's content at once: a reader or a crash
// sees the old content or the new.
func ReplaceFile(path string, data []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name()) //nolint:errcheck // gone after the rename
	_, err = temp.Write(data)
	err = errors.Join(err, temp.Chmod(0o644), temp.Close())
	if err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}
