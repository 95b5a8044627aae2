package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/inference"
	api "github.com/easyrl/easyrl/inference/server"
	"github.com/easyrl/easyrl/inference/simulate"
)

var _ api.Backend = (*simulated)(nil)

// simulated is an instance that takes a model's time and computes nothing. It
// keeps no weights, but tells which it was given.
type simulated struct {
	*simulate.Instance
	folder *folder // nil where only token ids are served
	info   api.Info
}

// newSimulated is the instance of a spec. Vocabulary and context are the
// folder's, where there is one and the spec does not say otherwise.
func newSimulated(spec string, f *folder, name string) (*simulated, error) {
	s := &simulated{folder: f, info: api.Info{Created: time.Now().Unix()}}
	if f != nil {
		spec = fmt.Sprintf("vocab=%d,context=%d,%s", f.shape.VocabSize, f.shape.MaxPositions, spec)
		s.info.Root = f.dir
	}
	cfg, err := simulate.Parse(spec)
	if err != nil {
		return nil, usageError{fmt.Errorf("-simulate: %w", oneLine(err))}
	}
	cfg.ID, cfg.Checksum = name, "simulated"
	s.info.Context, s.info.Vocab = cfg.Context, cfg.Vocab
	s.Instance, err = simulate.New(cfg, simulate.NewClock())
	return s, err
}

// Info implements api.Backend.
func (s *simulated) Info() api.Info { return s.info }

// Load implements api.Backend.
func (s *simulated) Load() api.Load {
	st := s.Stats()
	return api.Load{Running: st.Running, Waiting: st.Waiting, PromptTokens: st.PromptTokens, Tokens: st.Tokens}
}

// Generate implements api.Backend.
func (s *simulated) Generate(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
	req.Sampling.Stop = nil // how long a response is has been drawn, whatever its text
	return s.spell(s.Instance.Generate(ctx, req))
}

// Stream implements api.Backend. Tokens come as they grow, the text at the end.
func (s *simulated) Stream(ctx context.Context, req inference.Request, emit func(inference.Delta)) ([]inference.Completion, error) {
	req.Sampling.Stop = nil
	return s.spell(s.Instance.Stream(ctx, req, emit))
}

// spell fills in the text of completions, where there is a tokenizer.
func (s *simulated) spell(out []inference.Completion, err error) ([]inference.Completion, error) {
	if s.folder != nil && s.folder.tok != nil {
		for i := range out {
			out[i].Text = s.folder.tok.Decode(out[i].IDs)
		}
	}
	return out, err
}

// Update implements api.Backend: it reads the weights and forgets them.
func (s *simulated) Update(ctx context.Context, version int64, r io.Reader, size int64) (string, error) {
	sum, err := checksum(r, size)
	if err != nil {
		return "", fmt.Errorf("%w: %w", inference.ErrInvalid, err)
	}
	return s.Publish(ctx, named{version, sum})
}

// UpdateFile implements api.Backend.
func (s *simulated) UpdateFile(ctx context.Context, version int64, path string) (string, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", path)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", inference.ErrInvalid, err)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("%w: %w", inference.ErrInvalid, err)
	}
	defer f.Close() //nolint:errcheck // only read
	return s.Update(ctx, version, f, info.Size())
}

// checksum reads a safetensors stream to its end and returns what
// model.Weights.Checksum would: that of the stream's data, where it is written as
// a trainer writes it.
func checksum(r io.Reader, size int64) (string, error) {
	s, err := checkpoint.NewStream(r, size)
	if err != nil {
		return "", err
	}
	last := ""
	for _, t := range s.Tensors() {
		if t.DType != checkpoint.F32 || t.Name < last {
			return "", fmt.Errorf("tensor %s of %s after tensor %q, expected F32 in the order of the names: without a model others have no checksum",
				t.Name, t.DType, last)
		}
		last = t.Name
	}
	const most = 1 << 18 // values at a time
	err = s.Blocks(func(checkpoint.Tensor) int { return most }, func(checkpoint.Tensor, int, []float32) error { return nil })
	if err != nil {
		return "", err
	}
	return s.Sum(), nil
}

// named is a version of weights that nobody holds.
type named struct {
	version int64
	sum     string
}

// Version implements inference.Weights.
func (n named) Version() int64 { return n.version }

// Checksum implements inference.Weights.
func (n named) Checksum() string { return n.sum }

// WriteSafetensors implements inference.Weights.
func (n named) WriteSafetensors(io.Writer) error {
	return errors.New("a simulated instance keeps no weights")
}
