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
	sampledFile   = "trainer/sampled.safetensors" // the "previous-step" old policy
)

// Prefixes of the moments' tensors.
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
	SampledPart      // the policy that sampled the checkpoint's step
)

// Stored is a part of a checkpoint: the tensors of a file, relative to the checkpoint's folder, whose
// names begin with Prefix.
type Stored struct {
	Part         Part
	File, Prefix string
}

// Places returns where a checkpoint stores its parts. It has SampledPart if the old policy is
// "previous-step".
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

// HasSampled reports whether a checkpoint has the policy that sampled its step.
func HasSampled(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, sampledFile))
	return err == nil
}

// Capture copies policy, moments and, if the old policy is "previous-step", Sampled to host
// memory. It returns a function that writes the copies to a folder and may run while training
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

// Write writes the files of a checkpoint to a folder.
func (c *Checkpoint) Write(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "trainer"), 0o755); err != nil {
		return err
	}
	metadata := map[string]string{"format": "pt"} // as Hugging Face's loaders expect
	if err := checkpoint.WriteFile(filepath.Join(dir, weightsFile), c.Policy, metadata); err != nil {
		return err
	}
	moments := append(named(firstPrefix, c.First), named(secondPrefix, c.Second)...)
	if err := checkpoint.WriteFile(filepath.Join(dir, optimizerFile), moments, nil); err != nil {
		return err
	}
	if len(c.Sampled) == 0 {
		return nil
	}
	return checkpoint.WriteFile(filepath.Join(dir, sampledFile), c.Sampled, nil)
}

// named returns sources with a prefix before their names.
func named(prefix string, sources []checkpoint.Source) []checkpoint.Source {
	all := slices.Clone(sources)
	for i := range all {
		all[i].Name = prefix + all[i].Name
	}
	return all
}

// hostCopy copies all values to host memory.
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

// Restore loads what Capture's function wrote after this many steps. Step receives the number
// of updates from its caller.
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
		if err := read(dir, stored.File, stored.Prefix, w); err != nil {
			return err
		}
	}
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
