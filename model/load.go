package model

import (
	"errors"
	"fmt"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/model/source"
	"github.com/easyrl/easyrl/model/tensor"
)

// Load fills w from a model folder's safetensors. It returns an error that names the
// first tensor that is missing, has another shape, is not finite, or belongs to a
// decoder that computes something else.
func (w *Weights) Load(dir string) error {
	f, err := checkpoint.OpenFolder(dir)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	err = source.CheckOthers(w.Config, f)
	if err == nil {
		err = w.LoadFrom("", f)
	}
	if err == nil {
		err = source.CheckHead(w.Config, f)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}

// LoadFrom fills w from open safetensors whose names begin with prefix. It needs
// almost no memory beyond the weights: one block of values.
func (w *Weights) LoadFrom(prefix string, f tensor.Finder) error {
	var t checkpoint.Tensor
	err := w.Fill(func(p *tensor.Param, vals []float32, first int) (err error) {
		if first == 0 {
			if t, err = p.Find(prefix, f); err != nil {
				return err
			}
		}
		if err := t.ReadAt(vals, first); err != nil {
			return fmt.Errorf("load weights: %w", err)
		}
		return nil
	})
	return errors.Join(err, w.dev.Sync())
}
