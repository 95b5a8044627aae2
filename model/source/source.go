// Package source reads or draws a decoder's weights tensor by tensor, and checks that a model folder has
// them.
package source

import (
	"fmt"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/internal/splitmix"
	"github.com/easyrl/easyrl/model/arch"
	"github.com/easyrl/easyrl/model/tensor"
)

// Use receives the row-major values of p, tensor i of arch.Config.Params. It must not keep values,
// which are overwritten after it returns.
type Use func(i int, p *tensor.Param, values []float32) error

// Folder reads a model folder's safetensors as model.Weights.Load does, with memory for one tensor. It calls
// use with each tensor in order.
func Folder(c *arch.Config, dir string, use Use) error {
	f, err := checkpoint.OpenFolder(dir)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	err = CheckOthers(c, f)
	if err == nil {
		err = CheckHead(c, f)
	}
	if err == nil {
		err = From(c, "", f, use)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}

// From calls use with the tensors of open safetensors whose names begin with prefix, in order. It
// rejects values that are not finite.
func From(c *arch.Config, prefix string, f tensor.Finder, use Use) error {
	return each(c, func(p *tensor.Param, values []float32) error {
		t, err := p.Find(prefix, f)
		if err != nil {
			return err
		}
		if err := t.ReadAt(values, 0); err != nil {
			return fmt.Errorf("load weights: %w", err)
		}
		return p.CheckFinite(values, 0)
	}, use)
}

// Drawn calls use with the weights of model.Weights.Init, tensor by tensor in order.
func Drawn(c *arch.Config, seed uint64, use Use) error {
	rng := splitmix.Normal{Seed: seed}
	return each(c, func(p *tensor.Param, values []float32) error {
		Draw(p, values, &rng)
		return nil
	}, use)
}

// each calls fill and then use for each tensor in order, with memory for one tensor.
func each(c *arch.Config, fill func(p *tensor.Param, values []float32) error, use Use) error {
	var values []float32
	params := c.Params()
	for i := range params {
		p := &params[i]
		n := p.Shape().Values()
		values = slices.Grow(values[:0], n)[:n]
		if err := fill(p, values); err != nil {
			return err
		}
		if err := use(i, p, values); err != nil {
			return err
		}
	}
	return nil
}

// Draw sets vals, the next values of p, to draws from N(0, Std²) for a matrix, to 1 for a norm and
// to 0 for a bias.
func Draw(p *tensor.Param, vals []float32, rng *splitmix.Normal) {
	isNorm := p.Cols == 0 && !strings.HasSuffix(p.Name, ".bias")
	for j := range vals {
		switch {
		case p.Cols > 0:
			vals[j] = float32(p.Std * rng.Next())
		case isNorm:
			vals[j] = 1
		default:
			vals[j] = 0
		}
	}
}
