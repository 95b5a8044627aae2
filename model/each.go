package model

import (
	"fmt"
	"slices"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/internal/splitmix"
	"github.com/easyrl/easyrl/model/tensor"
)

// Use gets the row-major values of tensor i of Config.Params. They are overwritten after it
// returns.
type Use func(i int, p *tensor.Param, values []float32) error

// Each reads a model folder's safetensors as Weights.Load does, with memory for one tensor. It calls
// use with each tensor in order.
func Each(c *Config, dir string, use Use) error {
	f, err := checkpoint.OpenFolder(dir)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	if err = checkOthers(c, f); err == nil {
		err = checkHead(c, f)
	}
	if err == nil {
		err = EachFrom(c, "", f, use)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}

// EachFrom calls use with the tensors of open safetensors whose names begin with prefix, in order. It
// rejects values that are not finite.
func EachFrom(c *Config, prefix string, f tensor.Finder, use Use) error {
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

// EachDrawn calls use with the weights of Weights.Init, tensor by tensor in order.
func EachDrawn(c *Config, seed uint64, use Use) error {
	rng := splitmix.Normal{Seed: seed}
	return each(c, func(p *tensor.Param, values []float32) error {
		draw(p, values, &rng)
		return nil
	}, use)
}

// each fills memory for one tensor and passes it to use, for all tensors in order.
func each(c *Config, fill func(p *tensor.Param, values []float32) error, use Use) error {
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
