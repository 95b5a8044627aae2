package sink

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
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
	run     *Run
	file    *os.File
	columns report.Values // its names are the columns; its values are unused
}

// openCSV writes a new CSV file with the steps in the run's metrics.
func openCSV(run *Run) (*table, error) {
	t := &table{run: run, columns: report.Values{"step": 0}}
	err := report.EachStep(run.metrics(), func(values report.Values) error {
		t.widen(values)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := t.rewrite(nil); err != nil {
		return nil, err
	}
	return t, nil
}

// widen adds columns for the names of values. It reports whether there are any new ones.
func (t *table) widen(values report.Values) bool {
	before := len(t.columns)
	for name := range values {
		t.columns[name] = 0
	}
	return len(t.columns) > before
}

// rewrite replaces the file with the steps in the run's metrics or, if next is not nil, with those before
// the step next.
func (t *table) rewrite(next report.Values) error {
	path := filepath.Join(t.run.Dir, CSVFile)
	err := report.Replace(path, func(w io.Writer) error {
		lines := csv.NewWriter(w)
		columns := t.columns.Names()
		_ = lines.Write(columns) // lines keeps the error
		err := report.EachStep(t.run.metrics(), func(values report.Values) error {
			if next != nil && values["step"] >= next["step"] {
				return nil
			}
			return lines.Write(cells(columns, values))
		})
		lines.Flush()
		return cmp.Or(err, lines.Error())
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", CSVFile, err)
	}
	if t.file != nil {
		_ = t.file.Close() // the replaced file
	}
	t.file, err = os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o644)
	return err
}

// cells returns the cells of a step's line. Missing and non-finite values have empty cells.
func cells(columns []string, values report.Values) []string {
	line := make([]string, len(columns))
	for i, name := range columns {
		if x, ok := values[name]; ok && report.Finite(x) {
			line[i] = strconv.FormatFloat(x, 'f', -1, 64)
		}
	}
	return line
}

// Step implements sink.
func (t *table) Step(values report.Values) error {
	if t.widen(values) {
		if err := t.rewrite(values); err != nil {
			return err
		}
	}
	lines := csv.NewWriter(t.file)
	_ = lines.Write(cells(t.columns.Names(), values)) // lines keeps the error
	lines.Flush()
	if err := lines.Error(); err != nil {
		return fmt.Errorf("write %s: %w", CSVFile, err)
	}
	return nil
}

// Close implements sink.
func (t *table) Close(End) error { return t.file.Close() }
