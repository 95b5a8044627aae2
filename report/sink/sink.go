// Package sink hands a run's steps to other programs: TensorBoard, spreadsheets
// and MLflow.
//
// metrics.jsonl in the run's folder is what they are told from: a sink that is
// opened first writes the steps that are there, so that a resumed run has each
// step once, and one that is added later has all of them.
package sink

import (
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/easyrl/easyrl/report"
)

// Sink is told a run's steps. It is used by one goroutine.
type Sink interface {
	// Step takes the values of a step that is in the run's metrics already. Steps
	// come in order, each once. It never waits for another machine.
	Step(values report.Values) error
	// Close says how the run ended. It may wait some seconds.
	Close(end End) error
}

// End is how a run ended.
type End int

// The ends.
const (
	// Finished took all its steps.
	Finished End = iota
	// Stopped was asked to stop, and can be resumed.
	Stopped
	// Failed ended with an error.
	Failed
)

// Run is what sinks need to know of a run.
type Run struct {
	Name     string
	Dir      string            // its folder, with the metrics of the steps before
	Settings map[string]string // by key, as TOML has them
	// Warn prints a note. It is called by other goroutines too.
	Warn func(format string, args ...any)
}

func (r *Run) metrics() string { return filepath.Join(r.Dir, report.MetricsFile) }

// The names of sinks.
const (
	tensorBoard = "tensorboard"
	spreadsheet = "csv"
	mlflow      = "mlflow="
)

// Check refuses what names no sink.
func Check(name string) error {
	switch {
	case name == tensorBoard, name == spreadsheet:
		return nil
	case strings.HasPrefix(name, mlflow):
		u, err := url.Parse(strings.TrimPrefix(name, mlflow))
		if err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.RawQuery == "" && u.Fragment == "" {
			return nil
		}
	}
	return fmt.Errorf("%q, expected %q, %q or \"mlflow=http://host:5000\"", name, tensorBoard, spreadsheet)
}

// Sinks are a run's. A sink that fails is named once and left out from then on: a
// run does not end for it. All methods of a nil *Sinks do nothing.
type Sinks struct {
	warn func(format string, args ...any)
	all  []named
}

type named struct {
	name string
	Sink
}

// Open opens the sinks of the names that Check takes.
func Open(names []string, run Run) *Sinks {
	s := &Sinks{warn: run.Warn}
	for _, name := range names {
		var opened Sink
		var err error
		switch {
		case name == tensorBoard:
			opened, err = openEvents(&run)
		case name == spreadsheet:
			opened, err = openCSV(&run)
		default:
			opened, err = openMLflow(strings.TrimPrefix(name, mlflow), &run, &http.Transport{Proxy: http.ProxyFromEnvironment})
			name = strings.TrimSuffix(mlflow, "=")
		}
		if err != nil {
			s.warn("%s is left out: %v", name, err)
			continue
		}
		s.all = append(s.all, named{name, opened})
	}
	return s
}

// Step tells all sinks of a step.
func (s *Sinks) Step(values report.Values) {
	if s == nil {
		return
	}
	kept := s.all[:0]
	for _, one := range s.all {
		if err := one.Step(values); err != nil {
			s.warn("%s is left out from step %.0f on: %v", one.name, values["step"], err)
			_ = one.Close(Failed) // has nothing to add
			continue
		}
		kept = append(kept, one)
	}
	s.all = kept
}

// Close says how the run ended.
func (s *Sinks) Close(end End) {
	if s == nil {
		return
	}
	for _, one := range s.all {
		if err := one.Close(end); err != nil {
			s.warn("%s: %v", one.name, err)
		}
	}
	s.all = nil
}

// finite reports whether x is a number.
func finite(x float64) bool { return x-x == 0 }
