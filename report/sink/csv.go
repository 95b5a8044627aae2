package sink

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/easyrl/easyrl/report"
)

// CSVFile is the name of the CSV file in a run's folder.
const CSVFile = "metrics.csv"

// table writes a CSV file with a line per step and a column per metric, in the
// order of report.Values. A new name rewrites the file with its column in place
// and empty cells above, so that all lines always have the same columns.
type table struct {
	run    *Run
	file   *os.File
	column map[string]int
	names  []string
}

func openCSV(run *Run) (*table, error) {
	t := &table{run: run}
	all := report.Values{"step": 0}
	err := report.EachStep(run.metrics(), func(values report.Values) error {
		for name := range values {
			all[name] = 0
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := t.rewrite(all, nil); err != nil {
		return nil, err
	}
	return t, nil
}

// rewrite replaces the file with the steps in the run's metrics, with a column for
// each name of all. If next is not nil, it writes only the steps before next.
func (t *table) rewrite(all, next report.Values) error {
	t.names, t.column = all.Names(), map[string]int{}
	for i, name := range t.names {
		t.column[name] = i
	}
	var b bytes.Buffer
	lines := csv.NewWriter(&b)
	_ = lines.Write(t.names) // memory writes do not fail
	err := report.EachStep(t.run.metrics(), func(values report.Values) error {
		if next != nil && values["step"] >= next["step"] {
			return nil
		}
		return lines.Write(t.cells(values))
	})
	lines.Flush()
	path := filepath.Join(t.run.Dir, CSVFile)
	if err == nil {
		err = report.ReplaceFile(path, b.Bytes())
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", CSVFile, err)
	}
	if t.file != nil {
		_ = t.file.Close() // the replaced file
	}
	t.file, err = os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o644)
	return err
}

// cells returns the line of values. Missing and non-finite values are empty.
func (t *table) cells(values report.Values) []string {
	cells := make([]string, len(t.names))
	for name, x := range values {
		if i, ok := t.column[name]; ok && report.Finite(x) {
			cells[i] = strconv.FormatFloat(x, 'f', -1, 64)
		}
	}
	return cells
}

// Step implements sink.
func (t *table) Step(values report.Values) error {
	all := report.Values{}
	for _, name := range t.names {
		all[name] = 0
	}
	for name := range values {
		all[name] = 0
	}
	if len(all) > len(t.names) {
		if err := t.rewrite(all, values); err != nil {
			return err
		}
	}
	var b bytes.Buffer
	line := csv.NewWriter(&b)
	_ = line.Write(t.cells(values)) // memory writes do not fail
	line.Flush()
	if _, err := t.file.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write %s: %w", CSVFile, err)
	}
	return nil
}

// Close implements sink.
func (t *table) Close(End) error { return t.file.Close() }
