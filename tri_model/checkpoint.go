package trimodel

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
)

// Files of a checkpoint.
const (
	weightsFile   = "model.safetensors"
	optimizerFile = "trainer/optimizer.safetensors"
	sampledFile   = "trainer/sampled.safetensors"
	mastersFile   = "trainer/masters.safetensors"
)

// Stored says where a checkpoint stores Tensors: in one file, under names that begin with Prefix.
type Stored struct {
	Tensors
	File   string // path relative to the checkpoint's folder
	Prefix string // may be empty
}

// stored returns all tensors that a checkpoint may have. Only a run with loss.PreviousStep stores the old
// policy, and only one whose weights are not float32 stores masters.
func stored() []Stored {
	return []Stored{
		{Tensors{backend.Policy, Weights}, weightsFile, ""},
		{Tensors{backend.Policy, FirstMoment}, optimizerFile, "first."},
		{Tensors{backend.Policy, SecondMoment}, optimizerFile, "second."},
		{Tensors{backend.Policy, Master}, mastersFile, ""},
		{Tensors{backend.OldPolicy, Weights}, sampledFile, ""},
	}
}

// Stored returns the tensors that a checkpoint of these models has.
func (c *Config) Stored() []Stored {
	return slices.DeleteFunc(stored(), func(s Stored) bool {
		return s.File == sampledFile && c.OldPolicy != loss.PreviousStep ||
			s.File == mastersFile && c.Numerics.Type() == npu.Float32
	})
}

// StoredIn returns the tensors that the checkpoint in a folder has.
func StoredIn(dir string) []Stored {
	return slices.DeleteFunc(stored(), func(s Stored) bool {
		return slices.Contains([]string{sampledFile, mastersFile}, s.File) && !has(dir, s.File)
	})
}

// HasSampled reports whether the checkpoint in a folder has the weights that sampled its last step, which a run
// with the old policy "previous-step" writes.
func HasSampled(dir string) bool { return has(dir, sampledFile) }

func has(dir, file string) bool {
	_, err := os.Stat(filepath.Join(dir, file))
	return err == nil
}

// Capture implements backend.Models. The copies are in host memory.
func (m *Models) Capture(_ context.Context, steps int) (write func(dir string) error, err error) {
	m.Sampled(int64(steps))
	copies := map[Tensors][]checkpoint.Source{}
	for _, s := range m.cfg.Stored() {
		if copies[s.Tensors], err = hostCopy(m.Tensors(s.Tensors)); err != nil {
			return nil, err
		}
	}
	return func(dir string) error {
		return m.cfg.WriteCheckpoint(dir, func(name Tensors) []checkpoint.Source { return copies[name] })
	}, nil
}

// WriteCheckpoint writes the files of a checkpoint to a folder, which it makes if needed. sources returns the
// tensors of a name.
func (c *Config) WriteCheckpoint(dir string, sources func(Tensors) []checkpoint.Source) error {
	if err := os.MkdirAll(filepath.Join(dir, "trainer"), 0o755); err != nil {
		return err
	}
	var files []string // in the order of Stored
	content := map[string][]checkpoint.Source{}
	for _, s := range c.Stored() {
		if !slices.Contains(files, s.File) {
			files = append(files, s.File)
		}
		content[s.File] = append(content[s.File], prefixed(s.Prefix, sources(s.Tensors))...)
	}
	for _, file := range files {
		var metadata map[string]string
		if file == weightsFile {
			metadata = map[string]string{"format": "pt"} // Hugging Face's loaders expect it
		}
		if err := checkpoint.WriteFile(filepath.Join(dir, file), content[file], metadata); err != nil {
			return err
		}
	}
	return nil
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

// Restore implements backend.Models. It ignores the number of updates, because each backend.Update has its own.
func (m *Models) Restore(_ context.Context, dir string, steps, _ int) error {
	for _, s := range StoredIn(dir) {
		if s.Role == backend.OldPolicy {
			if err := m.HoldSampled(steps); err != nil {
				return err
			}
		}
		if err := load(m.Tensors(s.Tensors), filepath.Join(dir, s.File), s.Prefix); err != nil {
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
