package control

import (
	"errors"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/easyrl/easyrl/report"
)

// history holds a run's steps: those of earlier processes, read from the metrics file on first
// use, and those that this process added. It is safe for concurrent use.
type history struct {
	mu    sync.Mutex
	read  bool // whether steps has those of earlier processes
	steps report.Steps
	added int // number of steps that this process added
}

// add appends a step. It first drops steps with the same or a higher number, which a resumed run repeats.
func (h *history) add(values report.Values) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.added++
	h.steps.Cut(values["step"])
	h.steps.Add(values)
}

// all returns a copy of all steps so far and the number of steps that this process added. dir is the run's
// folder.
func (h *history) all(dir string) (*report.Steps, int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.read {
		if err := h.readEarlier(dir); err != nil {
			return nil, 0, err
		}
	}
	return h.steps.Copy(), h.added, nil
}

// readEarlier puts the steps of the metrics file before the steps added so far. It unlocks
// h.mu while it reads, because the run, which adds steps, must not wait for a long file.
func (h *history) readEarlier(dir string) error {
	h.mu.Unlock()
	all, err := report.ReadSteps(filepath.Join(dir, report.MetricsFile))
	h.mu.Lock()
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case h.read: // by another caller
		return nil
	}
	for i := range h.steps.Len() {
		values := h.steps.Values(i)
		all.Cut(values["step"]) // the file may have it already
		all.Add(values)
	}
	h.steps, h.read = *all, true
	return nil
}
