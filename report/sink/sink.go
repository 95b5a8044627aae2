// Package sink exports a run's steps to other programs: TensorBoard, spreadsheets
// and MLflow.
//
// The source is metrics.jsonl in the run's folder. A newly opened sink first exports the steps in that
// file. A resumed run therefore exports each step once, and a sink that is added later gets all steps.
package sink

import (
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/report"
)

// sink receives a run's steps. It is not safe for concurrent use.
type sink interface {
	// Step takes the values of a step that is already in the run's metrics. Each step
	// comes once, in order. Step never waits for another machine.
	Step(values report.Values) error
	// Close ends the sink with the run's end. It may wait some seconds.
	Close(end End) error
}

// End says how a run ended.
type End int

// Ends of a run.
const (
	// Finished means that the run took all its steps.
	Finished End = iota
	// Stopped means that the run was asked to stop. It can be resumed.
	Stopped
	// Failed means that the run ended with an error.
	Failed
)

// Run describes a run to its sinks.
type Run struct {
	Name     string
	Dir      string            // run folder, with the metrics of earlier steps
	Settings map[string]string // TOML values by key
	// Warn prints a warning. Sinks call it from their own goroutines too.
	Warn func(format string, args ...any)
}

// metrics returns the path of the run's metrics file.
func (r *Run) metrics() string { return filepath.Join(r.Dir, report.MetricsFile) }

// Names of sinks.
const (
	tensorBoard = "tensorboard"
	spreadsheet = "csv"
	mlflow      = "mlflow=" // followed by the server's URL
)

// Check returns an error if name is not a sink.
func Check(name string) error {
	switch {
	case name == tensorBoard, name == spreadsheet:
		return nil
	case strings.HasPrefix(name, mlflow):
		u, err := url.Parse(strings.TrimPrefix(name, mlflow))
		if err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.RawQuery == "" &&
			u.Fragment == "" {
			return nil
		}
	}
	return fmt.Errorf("%q, expected %q, %q or \"mlflow=http://host:5000\"", name, tensorBoard, spreadsheet)
}

// Sinks holds the open sinks of a run. If a sink fails, Sinks warns once and drops
// it; the run continues. It is not safe for concurrent use. All methods of a nil *Sinks do
// nothing.
type Sinks struct {
	warn func(format string, args ...any)
	all  []named
}

type named struct {
	name string
	sink
}

// Open opens the named sinks. Check must accept every name. Open warns about a sink that fails to open,
// and continues without it.
func Open(names []string, run Run) *Sinks {
	s := &Sinks{warn: run.Warn}
	for _, name := range names {
		var opened sink
		var err error
		switch {
		case name == tensorBoard:
			opened, err = openEvents(&run)
		case name == spreadsheet:
			opened, err = openCSV(&run)
		default:
			opened, err = openMLflow(strings.TrimPrefix(name, mlflow), &run,
				&http.Transport{Proxy: http.ProxyFromEnvironment})
			name = strings.TrimSuffix(mlflow, "=")
		}
		if err != nil {
			s.warn("%s is disabled: %v", name, err)
			continue
		}
		s.all = append(s.all, named{name, opened})
	}
	return s
}

// Step passes values to all sinks.
func (s *Sinks) Step(values report.Values) {
	if s == nil {
		return
	}
	s.all = slices.DeleteFunc(s.all, func(n named) bool {
		err := n.Step(values)
		if err == nil {
			return false
		}
		s.warn("%s is disabled from step %.0f on: %v", n.name, values["step"], err)
		_ = n.Close(Failed) // the warning about err is enough
		return true
	})
}

// Close closes all sinks with the run's end.
func (s *Sinks) Close(end End) {
	if s == nil {
		return
	}
	for _, n := range s.all {
		if err := n.Close(end); err != nil {
			s.warn("%s: %v", n.name, err)
		}
	}
	s.all = nil
}
