package control

import (
	"errors"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/easyrl/easyrl/report"
)

// history are a run's steps: those that its file had before the first that was
// told, which are read when somebody looks, and those that were told.
type history struct {
	mu    sync.Mutex
	read  bool
	steps report.Steps
	told  int // steps
}

// add takes a step; those from that step on are done anew.
func (h *history) add(values report.Values) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told++
	h.steps.Cut(values["step"])
	h.steps.Add(values)
}

// all are the steps so far, and how many were told.
func (h *history) all(dir string) (*report.Steps, int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.read {
		return h.steps.Copy(), h.told, nil
	}
	h.mu.Unlock() // a run does not wait until a long file is read
	old, err := report.ReadSteps(filepath.Join(dir, report.MetricsFile))
	h.mu.Lock()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		old = &report.Steps{}
	case err != nil:
		return nil, 0, err
	}
	if !h.read {
		h.read = true
		if h.steps.Len() > 0 {
			old.Cut(h.steps.Values(0)["step"])
		}
		for i := range h.steps.Len() {
			old.Add(h.steps.Values(i))
		}
		h.steps = *old
	}
	return h.steps.Copy(), h.told, nil
}
