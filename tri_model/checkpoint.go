package trimodel

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/model"
)

// Files of a checkpoint.
const (
	weightsFile   = "model.safetensors"
	optimizerFile = "trainer/optimizer.safetensors"
	sampledFile   = "trainer/sampled.safetensors" // Set.Sampled, if the old policy is "previous-step"
)

// Prefixes of the names of the moments' tensors.
const (
	firstPrefix  = "first."
	secondPrefix = "second."
)

// Part is one of the sets of tensors in a checkpoint.
type Part uint8

// The parts of a checkpoint.
const (
	PolicyPart  Part = iota
	FirstPart        // AdamW's first moment
	SecondPart       // AdamW's second moment
	SampledPart      // the weights that sampled the checkpoint's last step
)

// Stored says where a checkpoint stores a part: in all tensors of a file whose names begin with Prefix.
type Stored struct {
	Part   Part
	File   string // path relative to the checkpoint's folder
	Prefix string // may be empty
}

// Places returns where the checkpoint in a folder stores its parts. The result has SampledPart only if the
// checkpoint has it (see HasSampled).
func Places(dir string) []Stored {
	all := []Stored{
		{PolicyPart, weightsFile, ""},
		{FirstPart, optimizerFile, firstPrefix},
		{SecondPart, optimizerFile, secondPrefix},
	}
	if HasSampled(dir) {
		all = append(all, Stored{SampledPart, sampledFile, ""})
	}
	return all
}

// HasSampled reports whether the checkpoint in a folder has SampledPart, which a run with the old policy
// "previous-step" writes.
func HasSampled(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, sampledFile))
	return err == nil
}

// Capture copies policy, moments and, if the old policy is "previous-step", Sampled to host
// memory. It returns a function that writes the copies to a folder. That function may run while training
// continues.
func (m *Models) Capture(context.Context) (write func(dir string) error, err error) {
	var c Checkpoint
	if c.Policy, err = hostCopy(m.Policy); err != nil {
		return nil, err
	}
	if c.First, err = hostCopy(m.First); err != nil {
		return nil, err
	}
	if c.Second, err = hostCopy(m.Second); err != nil {
		return nil, err
	}
	if m.cfg.OldPolicy == loss.PreviousStep {
		if c.Sampled, err = hostCopy(m.Sampled()); err != nil {
			return nil, err
		}
	}
	return c.Write, nil
}

// Checkpoint holds the values of a checkpoint's models, tensor by tensor.
type Checkpoint struct {
	Policy, First, Second []checkpoint.Source
	Sampled               []checkpoint.Source // empty unless the old policy is "previous-step"
}

// Write writes the files of a checkpoint to a folder, which it makes if needed.
func (c *Checkpoint) Write(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "trainer"), 0o755); err != nil {
		return err
	}
	metadata := map[string]string{"format": "pt"} // Hugging Face's loaders expect it
	if err := checkpoint.WriteFile(filepath.Join(dir, weightsFile), c.Policy, metadata); err != nil {
		return err
	}
	moments := append(prefixed(firstPrefix, c.First), prefixed(secondPrefix, c.Second)...)
	if err := checkpoint.WriteFile(filepath.Join(dir, optimizerFile), moments, nil); err != nil {
		return err
	}
	if len(c.Sampled) == 0 {
		return nil
	}
	return checkpoint.WriteFile(filepath.Join(dir, sampledFile), c.Sampled, nil)
}

// prefixed returns sources with a prefix before their names.
func prefixed(prefix string, sources []checkpoint.Source) []checkpoint.Source {
	all := slices.Clone(sources)
	for i := range all {
		all[i].Name = prefix + all[i].Name
	}
	return all
}

// hostCopy copies all values of w to host memory and returns sources that write the copies.
func hostCopy(w *model.Weights) ([]checkpoint.Source, error) {
	out := w.Sources()
	for i := range out {
		vals := make([]float32, checkpoint.Tensor{Shape: out[i].Shape}.Len())
		if err := out[i].Write(vals); err != nil {
			return nil, fmt.Errorf("read tensor %s: %w", out[i].Name, err)
		}
		out[i].Write = checkpoint.Filled(func(dst []float32) { copy(dst, vals) })
	}
	return out, nil
}

// Restore loads a checkpoint that Capture's function wrote after the given number of steps. It ignores the
// number of updates, which each Step gets with its update.
func (m *Models) Restore(_ context.Context, dir string, steps, _ int) error {
	for _, stored := range Places(dir) {
		var w *model.Weights
		switch stored.Part {
		case PolicyPart:
			w = m.Policy
		case FirstPart:
			w = m.First
		case SecondPart:
			w = m.Second
		case SampledPart:
			if err := m.HoldSampled(steps); err != nil {
				return err
			}
			w = m.Held()
		}
		if err := load(w, filepath.Join(dir, stored.File), stored.Prefix); err != nil {
			return err
		}
	}
	return nil
}

// load fills w with the tensors of a file whose names begin with prefix.
func load(w *model.Weights, path, prefix string) error {
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
