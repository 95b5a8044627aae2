package model

import "fmt"

// offloaded holds the values of weights that have no device memory.
type offloaded struct {
	out    bool        // Unload has freed the device memory
	same   *Weights    // weights that have the same values; nil if values has them
	values [][]float32 // row-major values by parameter; Reload keeps the memory for the next Unload
}

// read copies parameter i of unloaded weights to dst.
func (a *offloaded) read(i int, dst []float32) error {
	if a.same != nil {
		return a.same.Read(i, dst)
	}
	copy(dst, a.values[i])
	return nil
}

// Unload frees the device memory of w. It keeps the values in host memory or, if same is not nil,
// relies on same, which has equal values in the same layout and must not change until Reload.
// Until Reload, only Read, Sources and Free may be called. If Unload fails, w is unchanged.
func (w *Weights) Unload(same *Weights) error {
	a := &w.offloaded
	if a.out {
		return nil
	}
	if same == nil {
		if a.values == nil {
			a.values = make([][]float32, len(w.Params))
		}
		for i := range w.Params {
			p := &w.Params[i]
			if a.values[i] == nil {
				a.values[i] = make([]float32, p.Shape().Values())
			}
			if err := w.dev.Read(a.values[i], p); err != nil {
				return fmt.Errorf("download %s of %s: %w", w.purpose, p.Name, err)
			}
		}
	}
	a.out, a.same = true, same
	w.Free()
	return nil
}

// Reload reverts Unload, bit for bit. If it fails, w stays unloaded and loses no value.
func (w *Weights) Reload() error {
	a := &w.offloaded
	if !a.out {
		return nil
	}
	if err := w.allocate(); err != nil {
		return err
	}
	if a.same != nil {
		w.CopyFrom(a.same)
	} else {
		for i, values := range a.values {
			if err := w.dev.Write(&w.Params[i], values); err != nil {
				w.Free()
				return fmt.Errorf("upload %s: %w", w.purpose, err)
			}
		}
	}
	if err := w.dev.Sync(); err != nil {
		w.Free()
		return fmt.Errorf("upload %s: %w", w.purpose, err)
	}
	a.out, a.same = false, nil
	if w.Layers != nil { // not weights of NewTensors
		w.bindParams()
	}
	return nil
}
