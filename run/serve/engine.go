package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/easyrl/easyrl/run/cores"

	"github.com/sourcegraph/conc"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/engine"
	api "github.com/easyrl/easyrl/inference/server"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/run"
)

var _ api.Backend = (*hosted)(nil)

// hosted is an engine with two sets of weights: live ones, which serve and are never
// written, and spare ones, which receive the trainer's next version.
type hosted struct {
	*engine.Engine
	info    api.Info
	dev     npu.Device // holds the weights
	opening conc.WaitGroup

	files    checkpoint.Files
	updating sync.Mutex // guards files, live and spare; held while spare is written and published
	live     *model.Weights
	spare    *model.Weights // nil until allocated

	mu       sync.Mutex // guards version and checksum, so that Held need not wait for an update
	version  int64
	checksum string
}

// loaded is a version of the weights with a known checksum.
type loaded struct {
	*model.Snapshot
	sum string
}

// Checksum returns the checksum of the weights.
func (l loaded) Checksum() string { return l.sum }

// open starts the engine with the folder's own weights as version 0.
func (s *hosted) open(ctx context.Context, f *folder.Folder, name string, c *Config) (err error) {
	s.info = api.Info{Context: f.Shape.MaxPositions, Vocab: f.Shape.VocabSize, Created: time.Now().Unix(), Root: f.Dir,
		Config: folder.Fingerprint(f.Shape),
		Layout: model.PanelLayout, Cores: cores.Busy(c.Threads)}
	if s.dev, err = run.OpenDevice(c.Device, c.Numerics, c.Threads); err != nil {
		return err
	}
	s.info.Numerics = s.dev.Info().Numerics.Identity()
	if s.live, err = f.Weights(s.dev); err != nil {
		return errors.Join(err, s.dev.Close())
	}
	ec := engine.Config{ID: name, MaxRunning: c.MaxRunning}
	if s.Engine, err = run.StartEngine(f, ec, s.dev, c.Threads); err != nil {
		return errors.Join(err, s.dev.Close())
	}
	start := model.NewSnapshot(s.live, 0)
	if _, err = start.Sum(); err == nil {
		s.checksum, err = s.Publish(ctx, start)
	}
	if err != nil {
		return errors.Join(err, s.Close())
	}
	s.opening.Go(func() {
		s.updating.Lock()
		defer s.updating.Unlock()
		_ = s.allocateSpare() // the first update retries and reports the error
	})
	return nil
}

// allocateSpare allocates the spare weights, which takes a while. The caller holds s.updating.
func (s *hosted) allocateSpare() (err error) {
	if s.spare == nil {
		s.spare, err = model.NewWeights(s.dev, s.live.Config, npu.Weights)
	}
	return err
}

// Info implements api.Backend.
func (s *hosted) Info() api.Info { return s.info }

// Load implements api.Backend.
func (s *hosted) Load() api.Load {
	st := s.Stats()
	return api.Load{Running: st.Running, Waiting: st.Waiting, FreePages: st.FreePages, CachePages: st.CachePages,
		Preemptions: st.Preemptions, PromptTokens: st.PrefillRows, Tokens: st.Tokens}
}

// Held implements api.Backend.
func (s *hosted) Held() (version int64, checksum string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version, s.checksum
}

// Update implements api.Backend.
func (s *hosted) Update(ctx context.Context, version int64, r io.Reader, size int64) (string, error) {
	return s.update(ctx, version, func(w *model.Weights) (string, error) { return w.ReadStream(r, size) })
}

// UpdateFile implements api.Backend.
func (s *hosted) UpdateFile(ctx context.Context, version int64, path string) (string, error) {
	return s.update(ctx, version, func(w *model.Weights) (string, error) { return w.ReadFile(&s.files, path) })
}

// update reads the spare weights, publishes them and swaps them with the live ones.
func (s *hosted) update(ctx context.Context, version int64, read func(w *model.Weights) (string, error)) (
	string, error) {
	s.updating.Lock()
	defer s.updating.Unlock()
	if err := s.allocateSpare(); err != nil {
		return "", err
	}
	sum, err := read(s.spare)
	if err != nil {
		return "", fmt.Errorf("%w: %w", inference.ErrInvalid, err)
	}
	if err := context.Cause(ctx); err != nil {
		return "", err
	}
	// Ignore cancellation from here on: only a finished publish shows which set the
	// engine uses, and the next update must not overwrite that one.
	if sum, err = s.Publish(context.WithoutCancel(ctx), loaded{model.NewSnapshot(s.spare, version), sum}); err != nil {
		return "", err
	}
	s.live, s.spare = s.spare, s.live
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version, s.checksum = version, sum
	return sum, nil
}

// Close stops the engine and frees the weights.
func (s *hosted) Close() error {
	err := s.Engine.Close()
	s.opening.Wait()
	s.updating.Lock()
	defer s.updating.Unlock()
	return errors.Join(err, s.files.Close(), s.dev.Close())
}
