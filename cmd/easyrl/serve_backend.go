package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/easyrl/easyrl/chat"
	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/engine"
	api "github.com/easyrl/easyrl/inference/server"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/panels"
	"github.com/easyrl/easyrl/npu"
)

var _ api.Backend = (*served)(nil)

// served is an engine with room for two weights: those that serve, which nobody
// writes, and those that are read from a trainer meanwhile.
type served struct {
	*engine.Engine
	info    api.Info
	dev     npu.Device // of the weights
	opening conc.WaitGroup

	files    checkpoint.Files
	updating sync.Mutex // held to write the spare weights and to publish them
	live     *model.Weights
	spare    *model.Weights // nil while there is no memory for them

	mu       sync.Mutex
	version  int64
	checksum string
}

// loaded is a version of the weights whose checksum is known.
type loaded struct {
	*model.Snapshot
	sum string
}

// Checksum is that of the weights.
func (l loaded) Checksum() string { return l.sum }

// open begins to serve a folder's own weights as version 0.
func (s *served) open(ctx context.Context, f *folder, name string, threads, maxRunning int) (err error) {
	s.info = api.Info{Context: f.shape.MaxPositions, Vocab: f.shape.VocabSize, Created: time.Now().Unix(), Root: f.dir, Config: fingerprint(f.shape),
		Layout: panels.Layout}
	if s.dev, err = openDevice(configs.CPU, threads); err != nil {
		return err
	}
	if s.live, err = f.weights(s.dev); err != nil {
		return errors.Join(err, s.dev.Close())
	}
	if s.Engine, err = f.engine(engine.Config{ID: name, MaxRunning: maxRunning}, threads); err != nil {
		return errors.Join(err, s.dev.Close())
	}
	if s.checksum, err = s.Publish(ctx, model.NewSnapshot(s.live, 0)); err != nil {
		return errors.Join(err, s.Close())
	}
	s.opening.Go(func() {
		s.updating.Lock()
		defer s.updating.Unlock()
		_ = s.makeRoom() // the first update tries again and says what is wrong
	})
	return nil
}

// makeRoom allocates the spare weights: it takes long to be given so much memory.
// s.updating is held.
func (s *served) makeRoom() (err error) {
	if s.spare == nil {
		s.spare, err = model.NewWeights(s.dev, s.live.Config, npu.Weights)
	}
	return err
}

// Info implements api.Backend.
func (s *served) Info() api.Info { return s.info }

// Load implements api.Backend.
func (s *served) Load() api.Load {
	st := s.Stats()
	return api.Load{Running: st.Running, Waiting: st.Waiting, FreePages: st.FreePages, CachePages: st.CachePages,
		Preemptions: st.Preemptions, PromptTokens: st.PrefillRows, Tokens: st.Tokens}
}

// Held implements api.Backend.
func (s *served) Held() (version int64, checksum string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version, s.checksum
}

// Update implements api.Backend.
func (s *served) Update(ctx context.Context, version int64, r io.Reader, size int64) (string, error) {
	return s.update(ctx, version, func(w *model.Weights) (string, error) { return w.ReadStream(r, size) })
}

// UpdateFile implements api.Backend.
func (s *served) UpdateFile(ctx context.Context, version int64, path string) (string, error) {
	return s.update(ctx, version, func(w *model.Weights) (string, error) { return w.ReadFile(&s.files, path) })
}

// update reads the spare weights and lets them and those that serve change places.
func (s *served) update(ctx context.Context, version int64, read func(w *model.Weights) (string, error)) (string, error) {
	s.updating.Lock()
	defer s.updating.Unlock()
	if err := s.makeRoom(); err != nil {
		return "", err
	}
	sum, err := read(s.spare)
	if err != nil {
		return "", fmt.Errorf("%w: %w", inference.ErrInvalid, err)
	}
	if err := context.Cause(ctx); err != nil {
		return "", err
	}
	// Whether the engine has taken them must be known, or the next update would
	// write what serves: a publish that has begun is waited for.
	if sum, err = s.Publish(context.WithoutCancel(ctx), loaded{model.NewSnapshot(s.spare, version), sum}); err != nil {
		return "", err
	}
	s.live, s.spare = s.spare, s.live
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version, s.checksum = version, sum
	return sum, nil
}

// Close ends the engine and frees the weights.
func (s *served) Close() error {
	err := s.Engine.Close()
	s.opening.Wait()
	s.updating.Lock()
	defer s.updating.Unlock()
	return errors.Join(err, s.files.Close(), s.dev.Close())
}

// spoken is a folder's tokenizer and chat template, as a server needs them.
type spoken struct{ *folder }

var _ api.Text = spoken{}

// Encode implements api.Text.
func (t spoken) Encode(text string) ([]int32, error) { return t.tok.EncodePrompt(text), nil }

// Decode implements api.Text.
func (t spoken) Decode(ids []int32) string { return t.tok.Decode(ids) }

// Piece implements api.Text: after itself, since some tokenizers drop the space
// at the beginning of a text.
func (t spoken) Piece(id int32) (text string, special bool) {
	if name := t.tok.Special(id); name != "" {
		return name, true
	}
	one := t.tok.Decode([]int32{id})
	return strings.TrimPrefix(t.tok.Decode([]int32{id, id}), one), false
}

// EOS implements api.Text.
func (t spoken) EOS() []int32 { return t.stops }

// Chat implements api.Text.
func (t spoken) Chat(messages, tools json.RawMessage) ([]int32, error) {
	invalid := func(format string, args ...any) ([]int32, error) {
		return nil, fmt.Errorf("%w: %w", inference.ErrInvalid, fmt.Errorf(format, args...))
	}
	if t.chat == nil {
		return invalid("%s has no chat template, expected a prompt for completions", t.source)
	}
	in := chat.Input{AddGenerationPrompt: true}
	var list []json.RawMessage
	if err := json.Unmarshal(messages, &list); err != nil || len(list) == 0 {
		return invalid("messages: expected a list of at least one")
	}
	for i, raw := range list {
		m, err := chatMessage(raw)
		if err != nil {
			return invalid("messages[%d]: %w", i, err)
		}
		in.Messages = append(in.Messages, m)
	}
	if tools != nil {
		if err := json.Unmarshal(tools, &in.Tools); err != nil {
			return invalid("tools: expected a list")
		}
	}
	text, err := t.chat.Render(in)
	if err != nil {
		return invalid("chat template: %w", err)
	}
	return t.tok.Encode(text), nil
}

// chatMessage reads one of OpenAI's messages. Parts of text are put together: few
// templates know them.
func chatMessage(raw json.RawMessage) (m chat.Message, err error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil || fields == nil {
		return m, errors.New("expected an object")
	}
	if err := json.Unmarshal(fields["role"], &m.Role); err != nil || m.Role == "" {
		return m, errors.New("role: expected a text")
	}
	m.Raw = raw
	var parts []struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	if json.Unmarshal(fields["content"], &parts) != nil || parts == nil {
		return m, nil // a text, or none beside tool calls
	}
	for i, p := range parts {
		if p.Type != "text" || p.Text == nil {
			return m, fmt.Errorf("content[%d]: type %q, expected \"text\"", i, p.Type)
		}
		m.Content += *p.Text
	}
	if fields["content"], err = json.Marshal(m.Content); err == nil {
		m.Raw, err = json.Marshal(fields)
	}
	return m, err
}
