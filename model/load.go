package model

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/host"
)

// Tensors looks up safetensors by name in a file or a folder of shards.
type Tensors interface {
	Tensor(name string) (checkpoint.Tensor, bool)
}

// Load fills w from a model folder's safetensors. It returns an error that names the
// first tensor that is missing, has another shape, is not finite, or belongs to a
// decoder that computes something else.
func (w *Weights) Load(dir string) error {
	f, err := checkpoint.OpenFolder(dir)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	err = w.Config.checkOthers(f)
	if err == nil {
		err = w.LoadFrom("", f)
	}
	if err == nil {
		err = w.Config.checkHead(f)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}

// CheckFolder checks that a model folder's safetensors fit this shape, without
// reading or allocating values. The error names the first tensor that is missing, has
// another shape, or belongs to a decoder that computes something else.
func (c *Config) CheckFolder(dir string) error {
	f, err := checkpoint.OpenFolder(dir)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	for _, p := range c.params() {
		if _, err := p.find("", f); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	if err := c.checkOthers(f); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}

// headName is the name of the output projection's tensor.
const headName = "lm_head.weight"

// checkOthers rejects tensors that this shape lacks but that take part in a decoder's
// computation: further layers, biases, norms. It ignores tensors outside the decoder,
// such as a value head, and the rotary frequencies in older files, which follow from
// config.json. checkHead handles an output projection beside tied embeddings.
func (c *Config) checkOthers(f *checkpoint.Folder) error {
	known := make(map[string]struct{})
	for _, p := range c.params() {
		known[p.Name] = struct{}{}
	}
	for _, name := range f.Names() {
		_, ok := known[name]
		ours := strings.HasPrefix(name, "model.") || strings.HasPrefix(name, "lm_head.")
		if ok || !ours || strings.HasSuffix(name, ".rotary_emb.inv_freq") || name == headName && c.Tied {
			continue
		}
		var layer int
		if n, _ := fmt.Sscanf(name, "model.layers.%d.", &layer); n == 1 && layer >= c.Layers {
			return fmt.Errorf("load weights: tensor %s is of layer %d, expected %d layers as num_hidden_layers says", name, layer+1, c.Layers)
		}
		return fmt.Errorf("load weights: tensor %s has no place in the %s decoder of config.json", name, c.Type)
	}
	return nil
}

// checkHead rejects an output projection that differs from the embedding that
// config.json ties it to. Published folders contain equal copies.
func (c *Config) checkHead(f *checkpoint.Folder) error {
	head, ok := f.Tensor(headName)
	if !ok || !c.Tied {
		return nil
	}
	p := Param{Name: headName, Rows: c.VocabSize, Cols: c.HiddenSize}
	if _, err := p.find("", f); err != nil {
		return err
	}
	embed, _ := f.Tensor(c.params()[0].Name)
	a, b := make([]float32, min(blockValues, p.Rows*p.Cols)), make([]float32, min(blockValues, p.Rows*p.Cols))
	for at := 0; at < p.Rows*p.Cols; at += len(a) {
		n := min(len(a), p.Rows*p.Cols-at)
		if err := errors.Join(head.ReadAt(a[:n], at), embed.ReadAt(b[:n], at)); err != nil {
			return fmt.Errorf("load weights: %w", err)
		}
		if !slices.Equal(a[:n], b[:n]) {
			return fmt.Errorf("load weights: tensor %s is not the embedding, expected the same values, or tie_word_embeddings false in config.json", headName)
		}
	}
	return nil
}

// find returns the tensor of p from safetensors whose names begin with prefix.
func (p *Param) find(prefix string, f Tensors) (checkpoint.Tensor, error) {
	return p.findShape(prefix, f, p.shape().RowShape())
}

func (p *Param) findShape(prefix string, f Tensors, want []int) (checkpoint.Tensor, error) {
	t, ok := f.Tensor(prefix + p.Name)
	if !ok {
		return t, fmt.Errorf("load weights: tensor %s is missing", prefix+p.Name)
	}
	if !slices.Equal(t.Shape, want) {
		return t, fmt.Errorf("load weights: tensor %s has shape %v, expected %v from config.json", prefix+p.Name, t.Shape, want)
	}
	return t, nil
}

// LoadFrom fills w from open safetensors whose names begin with prefix. It needs
// almost no memory beyond the weights: one block of values.
func (w *Weights) LoadFrom(prefix string, f Tensors) error {
	var vals []float32
	for i := range w.Params {
		p := &w.Params[i]
		t, err := p.find(prefix, f)
		if err != nil {
			return err
		}
		vals, err = w.fill(p, vals, func(vals []float32, first int) error {
			if err := t.ReadAt(vals, first); err != nil {
				return fmt.Errorf("load weights: %w", err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return w.dev.Sync()
}

// blockValues is the approximate number of values that pass through host memory at a
// time. Blocks avoid a second copy of a tensor and fit in a core's cache.
const blockValues = 1 << 18

// blocks splits parameter p into blocks of whole rows that a device lays out
// together. A vector is one block. first is the row-major index of the block's first
// value; matrix is the block in the device's layout, with Cols 0 for a vector.
func (w *Weights) blocks(p *Param) iter.Seq2[int, npu.Matrix] {
	return func(yield func(first int, matrix npu.Matrix) bool) {
		all, step := p.shape().Values(), p.shape().Block(blockValues)
		for first := 0; first < all; first += step {
			if !yield(first, w.block(p, first, min(step, all-first))) {
				return
			}
		}
	}
}

// block returns the n values of p that start at value first, which must start a
// block.
func (w *Weights) block(p *Param, first, n int) npu.Matrix {
	if p.Cols == 0 {
		return npu.Matrix{Buffer: p.Buffer.Slice(first, first+n), Rows: n}
	}
	at, rows := w.dev.MatrixLen(first/p.Cols, p.Cols), n/p.Cols
	return npu.Matrix{Buffer: p.Buffer.Slice(at, at+w.dev.MatrixLen(rows, p.Cols)), Rows: rows, Cols: p.Cols}
}

// set writes a block of row-major values to parameter p and the sums of its panels to
// the sums of p. It rejects values that are not finite.
func (w *Weights) set(p *Param, first int, vals []float32, sums []uint64) error {
	m := w.block(p, first, len(vals))
	if m.Cols == 0 {
		w.dev.Upload(m.Buffer, vals)
	} else {
		w.dev.PackMatrix(m, vals)
	}
	laid := m.Float32s()
	if laid == nil {
		laid = p.shape().Pack(nil, vals)
	}
	run, at := p.shape().PanelLen(), p.shape().PanelAt(first)
	if host.CopySum(nil, laid, run, sums[at:at+len(laid)/run], w.dev.Threads()) {
		return nil
	}
	return p.checkFinite(vals, first)
}

// room returns vals resized to the length of block m; it reallocates if needed.
func room(vals []float32, m npu.Matrix) []float32 {
	n := m.Rows * max(m.Cols, 1)
	return slices.Grow(vals[:0], n)[:n]
}

// get returns the row-major values of block m. It reuses vals if they fit.
func (w *Weights) get(vals []float32, m npu.Matrix) []float32 {
	vals = room(vals, m)
	if m.Cols == 0 {
		w.dev.Download(vals, m.Buffer)
	} else {
		w.dev.UnpackMatrix(vals, m)
	}
	return vals
}

// fill sets parameter p block by block from read, which fills vals. It returns vals
// for reuse.
func (w *Weights) fill(p *Param, vals []float32, read func(vals []float32, first int) error) ([]float32, error) {
	sums := make([]uint64, p.shape().Panels()) // discarded
	for first, m := range w.blocks(p) {
		vals = room(vals, m)
		err := read(vals, first)
		if err == nil {
			err = w.set(p, first, vals, sums)
		}
		if err != nil {
			return vals, err
		}
	}
	return vals, nil
}
