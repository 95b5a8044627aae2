package sharded

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/remote/publish"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/source"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// Publish makes the policy the old policy of the step that instances sample with it. With Config.Whole
// the version is a model.Snapshot. Otherwise it remains on the ranks, and its methods read it
// tensor by tensor, until the second Publish after it.
func (m *Models) Publish(ctx context.Context, number int64) (inference.Weights, error) {
	if err := m.Flush(ctx); err != nil {
		return nil, err
	}
	err := m.tell(ctx, m.ranks, command{Action: hold, Version: number})
	if err == nil {
		err = m.settle(ctx)
	}
	if err != nil {
		return nil, err
	}
	var w inference.Weights
	if m.cfg.Whole {
		w, err = publishWhole(m, number)
	} else {
		w, err = publishParts(ctx, m.crew, number)
	}
	if err != nil {
		return nil, fmt.Errorf("publish version %d: %w", number, err)
	}
	return w, nil
}

// publishWhole copies a version that the ranks hold to one of two slots.
func publishWhole(m *Models, number int64) (*model.Snapshot, error) {
	slot := 0
	if m.current != nil && m.current == m.whole[0] {
		slot = 1
	}
	if m.whole[slot] == nil {
		w, err := model.NewWeights(m.dev, m.shape, npu.Weights)
		if err != nil {
			return nil, err
		}
		m.whole[slot] = w
	}
	w, sums := m.whole[slot], m.shape.Params().Sums()
	err := m.borrow(held, number).each(func(i int, p *tensor.Param, values []float32) error { return w.Write(i, values, sums[p.Name]) })
	if err == nil {
		err = m.dev.Sync()
	}
	if err != nil {
		return nil, err
	}
	m.current = w
	return model.NewSummed(w, number, sums.Total()), nil
}

// publishParts reads a version that the ranks hold once, for its checksum.
func publishParts(ctx context.Context, c *crew, number int64) (*version, error) {
	lent, sums := c.borrow(held, number), c.shape.Params().Sums()
	err := lent.each(func(_ int, p *tensor.Param, values []float32) error {
		return p.Sum(values, sums[p.Name], npu.Threads(c.dev))
	})
	if err == nil && c.canary != nil {
		err = look(ctx, c, number)
	}
	return &version{model.VersionFile{Config: c.shape, Number: number, Sum: sums.Total()}, lent}, err
}

// version is a published version whose values are on the ranks.
type version struct {
	model.VersionFile
	lent *loan
}

var _ publish.Sized = (*version)(nil)

// Version returns the number.
func (v *version) Version() int64 { return v.Number }

// Checksum returns the checksum of the values.
func (v *version) Checksum() string { return v.Sum }

// WriteSafetensors reads the ranks tensor by tensor. It needs memory for one tensor and one
// rank's part of it. Several calls may run at once, also beside training.
func (v *version) WriteSafetensors(w io.Writer) error {
	var values []float32
	return v.Write(w, func(p *tensor.Param) ([]float32, error) {
		n := p.Shape().Values()
		values = slices.Grow(values[:0], n)[:n]
		return values, v.lent.read(p, values)
	})
}

// Capture has each rank copy what it lends of policy and moments to host memory, and returns a
// function that writes all to a folder, tensor by tensor, and frees the copies.
func (m *Models) Capture(ctx context.Context) (write func(dir string) error, err error) {
	if err := m.Flush(ctx); err != nil {
		return nil, err
	}
	m.saves++
	number := m.saves
	if err := m.tell(ctx, m.ranks, command{Action: save, Version: number}); err != nil {
		return nil, err
	}
	if err := m.settle(ctx); err != nil {
		return nil, err
	}
	return func(dir string) error {
		defer release(m.crew, number)
		var c trimodel.Checkpoint
		lists := []*[]checkpoint.Source{&c.Policy, &c.First, &c.Second, &c.Sampled}
		for i, name := range saves(&m.cfg.Models) {
			*lists[i] = m.borrow(name, number).sources()
		}
		return c.Write(dir)
	}, nil
}

// sources returns the tensors, to be read from the ranks.
func (l *loan) sources() (all []checkpoint.Source) {
	params := l.crew.shape.Params()
	for i := range params {
		p := &params[i]
		all = append(all, checkpoint.Source{Name: p.Name, Shape: p.Shape().RowShape(), Write: func(dst []float32) error { return l.read(p, dst) }})
	}
	return all
}

// release frees the copies for a checkpoint.
func release(c *crew, number int64) {
	for _, r := range c.ranks {
		_ = r.shelf.Release(c.life, number) // a rank that has failed says so elsewhere
	}
}

// Restore distributes what Capture's function wrote after this many steps, on any mesh.
func (m *Models) Restore(ctx context.Context, dir string, steps, _ int) error {
	for i, place := range trimodel.Places(dir) {
		name := []which{policy, first, second, held}[i]
		if name == held {
			if err := m.tell(ctx, m.ranks, command{Action: sampled, Version: int64(steps)}); err != nil {
				return err
			}
		}
		if err := restore(ctx, m.crew, filepath.Join(dir, place.File), place.Prefix, name); err != nil {
			return err
		}
	}
	return m.settle(ctx)
}

// restore distributes the tensors of a file whose names begin with prefix.
func restore(ctx context.Context, c *crew, path, prefix string, name which) error {
	f, err := checkpoint.OpenFile(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	if err := source.From(c.shape, prefix, f, c.give(ctx, name)); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
