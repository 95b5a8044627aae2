package model

import (
	"fmt"

	"github.com/easyrl/easyrl/npu"
)

// away is where the values of weights are while they have no memory of the device.
type away struct {
	out    bool
	same   *Weights    // has the same values; nil if they are in host memory
	values [][]float32 // row-major, by parameter; kept for the next Unload
}

// read copies parameter i to dst.
func (a *away) read(i int, dst []float32) error {
	if a.same != nil {
		return a.same.Read(i, dst)
	}
	copy(dst, a.values[i])
	return nil
}

// Unload frees the device's memory of w and keeps the values in host memory. If same is not nil, it
// has the same values in the same layout, which must not change until Reload; then Unload
// copies nothing. Until Reload, only Read, Sources and Free may be called. If Unload fails, w is as before.
func Unload(w, same *Weights) error {
	a := &w.away
	if a.out {
		return nil
	}
	if same == nil && a.values == nil {
		a.values = make([][]float32, len(w.Params))
		for i := range w.Params {
			a.values[i] = make([]float32, w.Params[i].Shape().Values())
		}
	}
	for i := range w.Params {
		if same != nil {
			break
		}
		if err := w.dev.Read(a.values[i], &w.Params[i]); err != nil {
			return fmt.Errorf("download %s of %s: %w", w.purpose, w.Params[i].Name, err)
		}
	}
	a.out, a.same = true, same
	free(w)
	return nil
}

// Reload reverts Unload, bit for bit. If it fails, the values are where they were.
func Reload(w *Weights) error {
	a := &w.away
	if !a.out {
		return nil
	}
	if err := allocate(w); err != nil {
		return err
	}
	if a.same != nil {
		w.CopyFrom(a.same)
	} else {
		for i, values := range a.values {
			w.dev.Write(&w.Params[i], values)
		}
	}
	if err := w.dev.Sync(); err != nil {
		free(w)
		return fmt.Errorf("upload %s: %w", w.purpose, err)
	}
	a.out, a.same = false, nil
	if w.Layers != nil {
		bindParams(w)
	}
	return nil
}

// free frees the device's memory of w, which it may get again.
func free(w *Weights) {
	w.Free()
	w.arena = npu.Buffer{}
}
