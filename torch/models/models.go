// Package models implements backend.Models with a session of PyTorch ranks: it publishes the
// ranks' weights and writes their checkpoints.
package models

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/canary"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/report/trace"
	"github.com/easyrl/easyrl/torch"
	"github.com/easyrl/easyrl/torch/wire"
)

// Models holds policy and reference on PyTorch ranks. Only one goroutine may use it at a time.
type Models struct {
	*torch.Session

	dir      string          // folder shared with the ranks
	files    bool            // whether published versions are files, and not in memory
	adapters bool            // whether these files are adapters
	versions *model.Versions // published versions; the one in slot i also has the folder published-i
	current  int64           // number of the last published version; 0 for none
	reader   checkpoint.Files
	canary   *canary.Recorded // nil without NewCanary
}

// New takes ownership of a session. dir is a folder that this process and the ranks share. versions is the
// number of published versions to keep (see model.NewVersions). New also takes ownership of w and uses its
// memory, not its values, for published weights on dev. w and dev are nil if package model does not know the
// decoder. Then versions are files, which only servers that read weights from files can receive.
func New(s *torch.Session, dir string, versions int, dev npu.Device, w *model.Weights) *Models {
	return &Models{Session: s, dir: dir, files: w == nil,
		versions: model.NewVersions(versions, w, func() (*model.Weights, error) {
			return model.NewWeights(dev, w.Config, npu.Weights)
		})}
}

// NewAdapters is New for ranks that train LoRA adapters. Publish then publishes only the adapter, for
// servers that hold the starting weights.
func NewAdapters(s *torch.Session, dir string, versions int) *Models {
	m := New(s, dir, versions, nil, nil)
	m.adapters = true
	return m
}

// LeafRows returns 0: ranks sum gradients in floating point, a micro-batch at a time.
func (m *Models) LeafRows(int) int { return 0 }

// SetTrack does nothing: each rank has its own row of the trace.
func (m *Models) SetTrack(trace.Track) {}

// Pass implements backend.Models. Ranks hold no published version, so the sampler and the old policy have
// log-probabilities only while the policy equals the version that sampled the micro-batch.
func (m *Models) Pass(ctx context.Context, l *attention.Layout, sampler int64, derive backend.Derive) error {
	if sampler == m.current {
		return m.Session.Pass(ctx, l, derive)
	}
	return m.Session.Pass(ctx, l, func(out backend.Outputs) (backend.Values, error) {
		delete(out.Values, backend.OldPolicy)
		delete(out.Values, backend.Sampler)
		return derive(out)
	})
}

// Publish makes the ranks write the policy, or its adapter, to a file. If package model knows the decoder,
// it loads the file, and the result is a model.Snapshot; otherwise it is the file.
func (m *Models) Publish(ctx context.Context, version int64) (inference.Weights, error) {
	dir := filepath.Join(m.dir, fmt.Sprintf("published-%d", m.versions.Slot()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("publish version %d: %w", version, err)
	}
	what := wire.Weights
	if m.adapters {
		what = wire.Adapter
	}
	if err := m.Write(ctx, what, dir); err != nil {
		return nil, fmt.Errorf("publish version %d: %w", version, err)
	}
	if m.canary != nil {
		if err := m.recordVersion(ctx, version); err != nil {
			return nil, fmt.Errorf("publish version %d: %w", version, err)
		}
	}
	m.current = version
	path := filepath.Join(dir, "model.safetensors")
	if m.files {
		w, err := m.open(dir, path, version)
		if err == nil {
			m.versions.Hold(nil)
		}
		return w, err
	}
	w, err := m.versions.Next()
	if err == nil {
		_, err = w.ReadFile(&m.reader, path)
	}
	if err != nil {
		return nil, fmt.Errorf("publish version %d: %w", version, err)
	}
	s := model.NewSnapshot(w, version)
	m.versions.Hold(s)
	return s, nil
}

// open returns the file that the ranks have written as a version.
func (m *Models) open(dir, path string, version int64) (inference.Weights, error) {
	if m.adapters {
		return openAdapter(dir, version)
	}
	return openFile(path, version)
}

// Recompute always fails: ranks cannot reproduce an exact instance's results bit for bit.
func (m *Models) Recompute(context.Context, *attention.Layout, int64) ([]float32, error) {
	return nil, errors.New("recompute: PyTorch ranks do not compute an instance's bits")
}

// Capture implements backend.Models.
func (m *Models) Capture(ctx context.Context, _ int) (write func(dir string) error, err error) {
	return m.Session.Capture(ctx)
}

// Restore makes the ranks load a checkpoint, unless they started from it.
func (m *Models) Restore(ctx context.Context, dir string, _, updates int) error {
	return m.Session.Restore(ctx, dir, updates)
}

// Close ends the session and frees the published weights.
func (m *Models) Close() {
	m.Session.Close()
	m.versions.Free()
}
