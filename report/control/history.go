package control

import (
	"errors"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/easyrl/easyrl/report"
)

// history holds a run's steps: the earlier ones, read from the metrics file on first
// use, and the ones added since.
type history struct {
	mu    sync.Mutex
	read  bool
	steps report.Steps
	added int // steps added by this process
}

// add appends a step and replaces old steps from its number onward.
func (h *history) add(values report.Values) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.added++
	h.steps.Cut(values["step"])
	h.steps.Add(values)
}

// all returns all steps so far and the number added.
func (h *history) all(dir string) (*report.Steps, int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.read {
		return h.steps.Copy(), h.added, nil
	}
	h.mu.Unlock() // the run must not wait while a long file is read
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
	return h.steps.Copy(), h.added, nil
}
