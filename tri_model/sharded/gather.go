package sharded

import (
	"context"
	"fmt"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/tensor"
)

// sends reports whether a rank sends its values of a parameter. Of several ranks with the same
// values, the first one does. divided means that replicas have different values.
func sends(s *model.Config, p *tensor.Param, divided bool) bool {
	at := s.Part().At
	return (at.DP == 0 || divided) && (at.TP == 0 || p.Whole.Share == tensor.Divided) && (s.First() || !s.TiedStages(p))
}

// scatter sets weights of all ranks, tensor by tensor. read fills values with tensor i of the whole
// decoder, row-major.
func (c *crew) scatter(ctx context.Context, name which, read func(i int, p *tensor.Param, values []float32) error) error {
	params := c.shape.Params()
	for i := range params {
		p := &params[i]
		values := make([]float32, p.Rows*max(p.Cols, 1))
		if err := read(i, p, values); err != nil {
			return err
		}
		for _, r := range c.ranks {
			has := r.has(name)
			for j := range has {
				own := &has[j]
				if own.Name != p.Name {
					continue
				}
				part := make([]float32, own.Rows*max(own.Cols, 1))
				own.Extract(part, values)
				if err := c.tell(ctx, []*rank{r}, command{Action: fill, Which: name, Param: j, Values: part}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// gather calls use with each tensor of the whole decoder in order, its values row-major. With kept,
// use may keep the values; otherwise they are overwritten after it returns.
func (c *crew) gather(ctx context.Context, name which, kept bool, use func(i int, p *tensor.Param, values []float32) error) error {
	divided := c.cfg.Zero > 0 && (name == first || name == second)
	ranks := c.replica(0)
	if divided {
		ranks = c.ranks
	}
	if err := c.tell(ctx, ranks, command{Action: read, Which: name}); err != nil {
		return err
	}
	params := c.shape.Params()
	var values []float32
	var failed error
	for i := range params {
		p := &params[i]
		if n := p.Shape().Values(); kept || cap(values) < n {
			values = make([]float32, n)
		} else {
			values = values[:n]
		}
		for _, r := range ranks {
			has := r.has(name)
			for j := range has {
				own := &has[j]
				if own.Name != p.Name || !sends(r.shape, own, divided) {
					continue
				}
				a, err := c.answer(r, read)
				if err != nil {
					return err
				}
				own.Insert(values, a.Values)
			}
		}
		if failed == nil { // the ranks send the rest all the same
			failed = use(i, p, values)
		}
	}
	return failed
}

// restore distributes the tensors of a file whose names begin with prefix.
func (c *crew) restore(ctx context.Context, path, prefix string, name which) error {
	f, err := checkpoint.OpenFile(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	err = c.scatter(ctx, name, func(_ int, p *tensor.Param, values []float32) error {
		t, err := p.Find(prefix, f)
		if err != nil {
			return err
		}
		if err := t.ReadAt(values, 0); err != nil {
			return fmt.Errorf("load weights: %w", err)
		}
		return p.CheckFinite(values, 0)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
