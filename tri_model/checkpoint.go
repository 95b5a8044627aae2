package trimodel

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/model"
)

// Files of a checkpoint.
const (
	weightsFile   = "model.safetensors"
	optimizerFile = "trainer/optimizer.safetensors"
	sampledFile   = "trainer/sampled.safetensors" // the "previous-step" old policy
)

// Capture copies policy, moments and, if the old policy is "previous-step", Sampled to host
// memory. It returns a function that writes the copies to a folder and may run beside
// training.
func (m *Models) Capture(context.Context) (write func(dir string) error, err error) {
	copies := make([][]checkpoint.Source, 4)
	held := []*model.Weights{m.Policy, m.First, m.Second}
	if m.cfg.OldPolicy == loss.PreviousStep {
		held = append(held, m.Sampled())
	}
	for i, w := range held {
		if copies[i], err = hostCopy([]string{"", "first.", "second.", ""}[i], w); err != nil {
			return nil, err
		}
	}
	weights, moments, sampled := copies[0], append(copies[1], copies[2]...), copies[3]
	return func(dir string) error {
		if err := os.MkdirAll(filepath.Join(dir, "trainer"), 0o755); err != nil {
			return err
		}
		if err := checkpoint.WriteFile(filepath.Join(dir, weightsFile), weights, map[string]string{"format": "pt"}); err != nil {
			return err
		}
		if err := checkpoint.WriteFile(filepath.Join(dir, optimizerFile), moments, nil); err != nil || sampled == nil {
			return err
		}
		return checkpoint.WriteFile(filepath.Join(dir, sampledFile), sampled, nil)
	}, nil
}

// hostCopy copies all values to host memory and returns them under prefixed names.
func hostCopy(prefix string, w *model.Weights) ([]checkpoint.Source, error) {
	out := w.Sources()
	for i := range out {
		vals := make([]float32, checkpoint.Tensor{Shape: out[i].Shape}.Len())
		if err := out[i].Write(vals); err != nil {
			return nil, fmt.Errorf("read tensor %s: %w", out[i].Name, err)
		}
		out[i].Name = prefix + out[i].Name
		out[i].Write = checkpoint.Filled(func(dst []float32) { copy(dst, vals) })
	}
	return out, nil
}

// Restore loads what Capture's function wrote after this many steps. Step receives the number
// of updates from its caller.
func (m *Models) Restore(_ context.Context, dir string, steps, _ int) error {
	if err := read(dir, weightsFile, "", m.Policy); err != nil {
		return err
	}
	if err := read(dir, optimizerFile, "first.", m.First); err != nil {
		return err
	}
	if err := read(dir, optimizerFile, "second.", m.Second); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, sampledFile)); err != nil {
		return nil //nolint:nilerr // the old policy needs no such file
	}
	w, err := m.slot(0)
	if err != nil {
		return err
	}
	if err := read(dir, sampledFile, "", w); err != nil {
		return err
	}
	m.current = model.NewSnapshot(w, int64(steps))
	m.sampled = m.current
	return nil
}

// read fills w from a file of a checkpoint.
func read(dir, name, prefix string, w *model.Weights) error {
	path := filepath.Join(dir, name)
	f, err := checkpoint.OpenFile(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	if err := w.LoadFrom(prefix, f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
