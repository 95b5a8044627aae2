package sharded

import (
	"context"
	"fmt"
	"io"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/remote/publish"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
)

// Publish implements backend.Models. With Config.Whole the result is a *model.Snapshot in this process.
// Otherwise the version remains on the ranks, and WriteSafetensors of the result reads it from them tensor by
// tensor. It fails while lost ranks are being replaced.
func (m *Models) Publish(ctx context.Context, number int64) (inference.Weights, error) {
	if err := m.Flush(ctx); err != nil {
		return nil, err
	}
	if err := m.keepPoint(ctx, int(number)-1); err != nil {
		return nil, err
	}
	m.held = m.Now()
	m.publishes = true
	err := m.Do(ctx, func(_ context.Context, w *world) error { return w.hold(number) })
	if err != nil {
		return nil, err
	}
	m.fresh = true
	var out inference.Weights
	err = m.Attempt(ctx, func(w *world) (err error) {
		if m.cfg.Whole {
			out, err = m.publishWhole(w, number)
		} else {
			out, err = m.publishParts(w, number)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("publish version %d: %w", number, err)
	}
	return out, nil
}

// Step implements backend.Models.
func (m *Models) Step(ctx context.Context, u backend.Update) (norm float64, err error) {
	norm, err = m.Session.Step(ctx, u)
	if err == nil {
		m.fresh = false
	}
	if err == nil && !m.publishes { // otherwise Publish keeps points, because later updates of a step need its version
		err = m.keepPoint(ctx, 0) // nothing was sampled
	}
	return norm, err
}

// hold makes the ranks copy the policy as a version.
func (w *world) hold(number int64) error {
	if err := w.send(w.ranks, command{Action: hold, Version: number}); err != nil {
		return err
	}
	return w.barrier()
}

// publishWhole copies the version that the ranks hold to this process.
func (m *Models) publishWhole(from *world, number int64) (*model.Snapshot, error) {
	w, err := m.whole.Next()
	if err != nil {
		return nil, err
	}
	sums := m.shape.Params().Sums()
	err = from.gatherVersion(number, m.world.Load).each(func(i int, p *tensor.Param, values []float32) error {
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
func (m *Models) publishParts(w *world, number int64) (*version, error) {
	values := w.gatherVersion(number, m.world.Load)
	sums := m.shape.Params().Sums()
	err := values.each(func(_ int, p *tensor.Param, values []float32) error {
		return p.Sum(values, sums[p.Name], npu.Threads(m.dev))
	})
	if err == nil && m.canary != nil {
		err = m.recordVersion(w, number)
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
