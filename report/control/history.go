package control

import (
	"errors"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/easyrl/easyrl/report"
)

// history are a run's steps: those that its file had before the first that was
// told, which are read when somebody looks, and those that were told. It keeps a
// few kilobytes a step.
type history struct {
	mu    sync.Mutex
	read  bool
	steps []report.Values // appended to alone: what all returns does not change
	told  int             // steps
}

// add takes a step; those from that step on are done anew.
func (h *history) add(values report.Values) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told++
	kept := before(h.steps, values["step"])
	if len(kept) < len(h.steps) {
		kept = kept[:len(kept):len(kept)]
	}
	h.steps = append(kept, values)
}

// all are the steps so far, and how many were told.
func (h *history) all(dir string) ([]report.Values, int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.read {
		return h.steps, h.told, nil
	}
	h.mu.Unlock() // a run does not wait until a long file is read
	old, err := report.ReadMetrics(filepath.Join(dir, report.MetricsFile))
	h.mu.Lock()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, 0, err
	}
	if !h.read {
		h.read = true
		if len(h.steps) > 0 {
			old = before(old, h.steps[0]["step"])
		}
		h.steps = append(old, h.steps...)
	}
	return h.steps, h.told, nil
}

// before are the steps before one.
func before(steps []report.Values, step float64) []report.Values {
	for len(steps) > 0 && steps[len(steps)-1]["step"] >= step {
		steps = steps[:len(steps)-1]
	}
	return steps
}
