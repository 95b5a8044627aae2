package sharded

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/remote/publish"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/source"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// Publish copies the policy as the version with this number and makes it the old policy of the step that
// instances sample with it. With Config.Whole the result is a model.Snapshot in this process. Otherwise
// the version remains on the ranks, and the result's methods read it from them tensor by tensor. Both are
// valid until the second Publish after it.
func (m *Models) Publish(ctx context.Context, number int64) (inference.Weights, error) {
	if err := m.Flush(ctx); err != nil {
		return nil, err
	}
	err := m.send(ctx, m.ranks, command{Action: hold, Version: number})
	if err == nil {
		err = m.barrier(ctx)
	}
	if err != nil {
		return nil, err
	}
	var w inference.Weights
	if m.cfg.Whole {
		w, err = m.publishWhole(number)
	} else {
		w, err = m.publishParts(ctx, number)
	}
	if err != nil {
		return nil, fmt.Errorf("publish version %d: %w", number, err)
	}
	return w, nil
}

// publishWhole copies the version that the ranks hold to this process.
func (m *Models) publishWhole(number int64) (*model.Snapshot, error) {
	w, err := m.whole.Next()
	if err != nil {
		return nil, err
	}
	sums := m.shape.Params().Sums()
	err = m.gatherVersion(number).each(func(i int, p *tensor.Param, values []float32) error {
		return w.Write(i, values, sums[p.Name])
	})
	if err == nil {
		err = m.dev.Sync()
	}
	if err != nil {
		return nil, err
	}
	s := model.NewSummed(w, number, sums.Total())
	m.whole.Hold(s)
	return s, nil
}

// publishParts reads the version that the ranks hold once, for its checksum, and records its canary.
func (m *Models) publishParts(ctx context.Context, number int64) (*version, error) {
	values := m.gatherVersion(number)
	sums := m.shape.Params().Sums()
	err := values.each(func(_ int, p *tensor.Param, values []float32) error {
		return p.Sum(values, sums[p.Name], npu.Threads(m.dev))
	})
	if err == nil && m.canary != nil {
		err = m.recordVersion(ctx, number)
	}
	return &version{model.VersionFile{Config: m.shape, Number: number, Sum: sums.Total()}, values}, err
}

// version is a published version whose values are on the ranks.
type version struct {
	model.VersionFile
	values *gathered
}

var _ publish.Sized = (*version)(nil)

// Version returns the number.
func (v *version) Version() int64 { return v.Number }

// Checksum returns the checksum of the values.
func (v *version) Checksum() string { return v.Sum }

// WriteSafetensors reads the ranks tensor by tensor. It needs memory for one tensor and one
// rank's part of it. Several calls may run at once, also while the ranks train.
func (v *version) WriteSafetensors(w io.Writer) error {
	var values []float32
	return v.Write(w, func(p *tensor.Param) ([]float32, error) {
		values = resize(values, p.Shape().Values())
		return values, v.values.read(p, values)
	})
}

// Capture makes each rank copy the values that it owns of what a checkpoint stores to host memory. It returns a
// function that writes all values to a folder,
// tensor by tensor, and frees the copies. The function may run while the ranks train, but must end before
// the next Capture.
func (m *Models) Capture(ctx context.Context) (write func(dir string) error, err error) {
	if err := m.Flush(ctx); err != nil {
		return nil, err
	}
	m.saves++
	number := m.saves
	if err := m.send(ctx, m.ranks, command{Action: save, Version: number}); err != nil {
		return nil, err
	}
	if err := m.barrier(ctx); err != nil {
		return nil, err
	}
	return func(dir string) error {
		defer m.release(number)
		return m.cfg.Models.WriteCheckpoint(dir, func(name trimodel.Tensors) []checkpoint.Source {
			which := slices.IndexFunc(m.cfg.Models.Stored(), func(s trimodel.Stored) bool { return s.Tensors == name })
			return m.gatherCopies(which, number).sources()
		})
	}, nil
}

// release frees the copies for a checkpoint.
func (m *Models) release(number int64) {
	for _, r := range m.ranks {
		_ = r.snapshots.release(m.life, number) // an error means that a rank failed; the next call returns it
	}
}

// Restore distributes a checkpoint that Capture's function wrote after the given number of steps, on a
// mesh of any shape.
func (m *Models) Restore(ctx context.Context, dir string, steps, _ int) error {
	for _, s := range trimodel.StoredIn(dir) {
		if s.Role == backend.OldPolicy {
			if err := m.send(ctx, m.ranks, command{Action: sampled, Version: int64(steps)}); err != nil {
				return err
			}
		}
		if err := m.restoreFile(ctx, filepath.Join(dir, s.File), s.Prefix, s.Tensors); err != nil {
			return err
		}
	}
	return m.barrier(ctx)
}

// restoreFile distributes the tensors of a file whose names begin with prefix.
func (m *Models) restoreFile(ctx context.Context, path, prefix string, name trimodel.Tensors) error {
	f, err := checkpoint.OpenFile(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	if err := source.From(m.shape, prefix, f, m.scatter(ctx, name)); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
