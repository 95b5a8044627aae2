package report

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/internal/filetype"
)

// MetricsFile is the name of the metrics file in a run's folder.
const MetricsFile = "metrics.jsonl"

// maxLine bounds the length of a line read from a file, in bytes.
const maxLine = 64 << 20

// ChecksumName is the name of the only text in a line: the checksum of the policy's weights after the step.
const ChecksumName = "actor/checksum"

// Values maps the metric names of one step, such as "reward/mean", to numbers.
type Values map[string]float64

// Line is a line of a metrics file.
type Line struct {
	Values
	Checksum string // the text of ChecksumName; empty if the line has none
}

// Evaluation splits the name of an evaluation's metric, such as "eval/test/mean@4", into the
// name of the set and the kind of metric. ok is false for any other name.
func Evaluation(name string) (set, kind string, ok bool) {
	rest, evaluated := strings.CutPrefix(name, "eval/")
	set, kind, ok = strings.Cut(rest, "/")
	return set, kind, ok && evaluated
}

// groupOrder returns the order in which a line lists groups of names. A name's group is the part before
// its first slash. Unlisted groups come last. Names of one group are in alphabetical order.
func groupOrder() []string {
	return []string{"step", "version", "time", "reward", "eval", "response_length", "prompt_length", "actor",
		"mismatch", "staleness", "timing_s", "idle", "perf", "tokens", "fleet", "groups", "memory", "traffic"}
}

// Names returns v's names in the order in which a line lists them (see groupOrder).
func (v Values) Names() []string {
	order := groupOrder()
	rank := func(name string) int {
		group, _, _ := strings.Cut(name, "/")
		if i := slices.Index(order, group); i >= 0 {
			return i
		}
		return len(order)
	}
	return slices.SortedFunc(maps.Keys(v), func(a, b string) int {
		return cmp.Or(rank(a)-rank(b), strings.Compare(a, b))
	})
}

// Line encodes v as one flat JSON object with the names in order. Non-finite values
// become null.
func (v Values) Line() []byte { return append(v.open(), '}', '\n') }

// open returns Line without its end.
func (v Values) open() []byte {
	b := []byte{'{'}
	for i, name := range v.Names() {
		if i > 0 {
			b = append(b, ',')
		}
		key, _ := json.Marshal(name) // a string always marshals
		b = append(append(b, key...), ':')
		b = appendNumber(b, v[name])
	}
	return b
}

// encode returns l as Values.Line does, with the checksum at the end.
func (l *Line) encode() []byte {
	b := l.open()
	if l.Checksum != "" {
		text, _ := json.Marshal(l.Checksum) // a string always marshals
		b = append(append(b, `,"`+ChecksumName+`":`...), text...)
	}
	return append(b, '}', '\n')
}

// Finite reports whether x is neither infinite nor NaN.
func Finite(x float64) bool { return !math.IsInf(x, 0) && !math.IsNaN(x) }

func appendNumber(b []byte, x float64) []byte {
	switch {
	case !Finite(x):
		return append(b, "null"...)
	case x == math.Trunc(x) && math.Abs(x) < 1<<53:
		return strconv.AppendInt(b, int64(x), 10)
	case math.Abs(x) >= 1e-4 && math.Abs(x) < 1e15:
		return strconv.AppendFloat(b, x, 'f', -1, 64)
	}
	return strconv.AppendFloat(b, x, 'g', -1, 64)
}

// Metrics appends one line per step to a run's metrics file, which nothing else writes. It is
// safe for concurrent use, because os.File writes each line as a whole. A line outlives the
// process once Write returns. It is not synced, so a power failure may take the last lines.
type Metrics struct{ file *os.File }

// maxMetrics bounds a metrics file, in bytes.
const maxMetrics = 1 << 36

// OpenMetrics opens path to append steps numbered from or higher. It removes existing lines of those
// steps, because a run that resumes from a checkpoint repeats the steps after the checkpoint. It also
// removes an incomplete last line.
func OpenMetrics(path string, from int) (*Metrics, error) {
	old, err := filetype.ReadLimited(path, maxMetrics)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open metrics: %w", err)
	}
	kept := make([]byte, 0, len(old))
	for line := range bytes.Lines(old) {
		var head struct {
			Step *float64 `json:"step"`
		}
		if line[len(line)-1] == '\n' && json.Unmarshal(line, &head) == nil && head.Step != nil &&
			*head.Step < float64(from) {
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

// Write appends a line. A line without "step" is an error.
func (m *Metrics) Write(line Line) error {
	if _, ok := line.Values["step"]; !ok {
		return errors.New("write metrics: values have no \"step\"")
	}
	if _, err := m.file.Write(line.encode()); err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	return nil
}

// Close closes the file.
func (m *Metrics) Close() error { return m.file.Close() }

// ReadMetrics reads a metrics file, one Values per line. It omits nulls and skips an
// incomplete last line. If a line is invalid, it returns the steps before that line and an error.
func ReadMetrics(path string) (all []Values, err error) {
	err = EachStep(path, func(values Values) error {
		all = append(all, values)
		return nil
	})
	return all, err
}

// EachStep calls visit with the values of each line of a metrics file, read as ReadMetrics does.
// It stops at the first error of visit and returns it.
func EachStep(path string, visit func(Values) error) error {
	return EachLine(path, func(l Line) error { return visit(l.Values) })
}

// EachLine is EachStep with whole lines.
func EachLine(path string, visit func(Line) error) error {
	file, err := filetype.Open(path)
	if err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	defer file.Close() //nolint:errcheck // only read
	// fault is the error in the previous line. It counts only if another line follows.
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
		line, err := parseLine(lines.Bytes())
		if err != nil {
			fault = fmt.Errorf("read metrics %s:%d: %w", path, n, err)
			continue // tolerated on the last line
		}
		if err := visit(line); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read metrics %s: %w", path, err)
	}
	return nil
}

// ParseLine decodes the Values of one line, omitting nulls.
func ParseLine(line []byte) (Values, error) {
	l, err := parseLine(line)
	return l.Values, err
}

// parseLine decodes a line, omitting nulls.
func parseLine(text []byte) (Line, error) {
	var row map[string]any
	if err := json.Unmarshal(text, &row); err != nil {
		return Line{}, err
	}
	line := Line{Values: make(Values, len(row))}
	for name, x := range row {
		switch x := x.(type) {
		case float64:
			line.Values[name] = x
		case nil:
		case string:
			if name != ChecksumName {
				return Line{}, fmt.Errorf("%q is a JSON string, expected a number", name)
			}
			line.Checksum = x
		default:
			return Line{}, fmt.Errorf("%q is no number", name)
		}
	}
	return line, nil
}
