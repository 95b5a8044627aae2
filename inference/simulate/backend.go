package simulate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/server"
	"github.com/easyrl/easyrl/model"
)

var _ server.Backend = (*Backend)(nil)

// Model describes the model that an instance pretends to serve.
type Model struct {
	Dir       string                   // the model's folder
	Vocab     int                      // number of token IDs
	Positions int                      // maximum number of positions of prompt and response
	Decode    func(ids []int32) string // returns the text of ids; nil without a tokenizer
}

// Backend serves an Instance through package server. It keeps no weights, only their version and
// checksum.
type Backend struct {
	*Instance
	decode func(ids []int32) string
	info   server.Info
}

// NewBackend returns a backend with the settings of spec, as in Parse, whose instance is called
// name. If m is not nil, it provides the vocabulary and the context unless spec sets them. The
// instance serves version 0 from the start.
func NewBackend(spec, name string, m *Model) (*Backend, error) {
	b := &Backend{info: server.Info{Created: time.Now().Unix(), Layout: model.PanelLayout, Simulated: true}}
	if m != nil {
		spec = fmt.Sprintf("vocab=%d,context=%d,%s", m.Vocab, m.Positions, spec)
		b.info.Root, b.decode = m.Dir, m.Decode
	}
	cfg, err := Parse(spec)
	if err != nil {
		return nil, err
	}
	cfg.ID, cfg.Checksum = name, "simulated"
	b.info.Context, b.info.Vocab = cfg.Context, cfg.Vocab
	b.Instance, err = New(cfg, NewClock())
	return b, err
}

// Info implements server.Backend.
func (b *Backend) Info() server.Info { return b.info }

// Load implements server.Backend.
func (b *Backend) Load() server.Load {
	st := b.Stats()
	return server.Load{Running: st.Running, Waiting: st.Waiting, PromptTokens: st.PromptTokens, Tokens: st.Tokens}
}

// Generate implements server.Backend.
func (b *Backend) Generate(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
	req.Sampling.Stop = nil // lengths are drawn beforehand, independent of the text
	if ended := req.Ended; ended != nil && b.decode != nil {
		req.Ended = func(index int, c inference.Completion) {
			c.Text = b.decode(c.IDs)
			ended(index, c)
		}
	}
	return b.spell(b.Instance.Generate(ctx, req))
}

// Stream implements server.Backend. It emits tokens as they grow, and returns the text only at the
// end.
func (b *Backend) Stream(
	ctx context.Context, req inference.Request, emit func(inference.Delta),
) ([]inference.Completion, error) {
	req.Sampling.Stop = nil // as in Generate
	return b.spell(b.Instance.Stream(ctx, req, emit))
}

// spell sets the text of completions if there is a tokenizer. It passes err through.
func (b *Backend) spell(out []inference.Completion, err error) ([]inference.Completion, error) {
	if b.decode != nil {
		for i := range out {
			out[i].Text = b.decode(out[i].IDs)
		}
	}
	return out, err
}

// Update implements server.Backend: it reads the weights and discards them.
func (b *Backend) Update(ctx context.Context, version int64, r io.Reader, size int64) (string, error) {
	sum, err := checksum(r, size)
	if err != nil {
		return "", fmt.Errorf("%w: %w", inference.ErrInvalid, err)
	}
	return b.Publish(ctx, named{version, sum})
}

// UpdateFile implements server.Backend: it reads the weights and discards them.
func (b *Backend) UpdateFile(ctx context.Context, version int64, path string) (string, error) {
	var files checkpoint.Files
	defer files.Close() //nolint:errcheck // only read
	var sum string
	err := files.Read(path, func(st *checkpoint.Stream) (err error) {
		sum, err = model.SumStream(st)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("%w: %w", inference.ErrInvalid, err)
	}
	return b.Publish(ctx, named{version, sum})
}

// checksum reads a safetensors stream to its end and returns the same value as
// model.Weights.Checksum.
func checksum(r io.Reader, size int64) (string, error) {
	s, err := checkpoint.NewStream(r, size)
	if err != nil {
		return "", err
	}
	return model.SumStream(s)
}

// named is a version of weights that has a checksum but no values.
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
	return errors.New("a simulated instance has no weights to write")
}
