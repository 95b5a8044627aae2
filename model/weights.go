package model

import (
	"errors"
	"fmt"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/internal/splitmix"
	"github.com/easyrl/easyrl/model/layer"
	"github.com/easyrl/easyrl/model/source"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
)

// ErrNotFinite marks weights that contain NaN or infinity.
var ErrNotFinite = tensor.ErrNotFinite

// tensors holds one value per tensor of a decoder.
type tensors[Vec, Mat any] struct {
	Embed  Mat
	Layers [][]layer.Tensors[Vec, Mat] // by layer and sublayer
	Head   layer.Tensors[Vec, Mat]     // its matrix is Embed if embeddings are tied and one stage has both
}

// bind sets the tensors of a decoder of shape c, where vector and matrix return the value of parameter i of
// Config.Params.
func (t *tensors[Vec, Mat]) bind(c *Config, vector func(i int) Vec, matrix func(i int) Mat) {
	i := -1 // the last parameter
	next := func() int {
		i++
		return i
	}
	take := func(values *layer.Tensors[Vec, Mat], ps tensor.Params) {
		*values = layer.Tensors[Vec, Mat]{}
		for _, p := range ps {
			if p.Cols == 0 {
				values.Vectors = append(values.Vectors, vector(next()))
			} else {
				values.Matrices = append(values.Matrices, matrix(next()))
			}
		}
	}
	if c.First() {
		t.Embed = matrix(next())
	}
	t.Layers = make([][]layer.Tensors[Vec, Mat], c.Layers)
	block := c.Block()
	for l := range t.Layers {
		t.Layers[l] = make([]layer.Tensors[Vec, Mat], len(block))
		for s, sublayer := range block {
			take(&t.Layers[l][s], sublayer.Params())
		}
	}
	if !c.Last() {
		return
	}
	take(&t.Head, c.Head().Params())
	if len(t.Head.Matrices) == 0 {
		t.Head.Matrices = []Mat{t.Embed}
	}
}

// Weights are the parameters of a decoder, or their moments, in one allocation. Each tensor
// starts at a cache line, in the order of Config.Params, so that weights of one Config have one
// layout: CopyFrom, gradients and moments rely on it.
type Weights struct {
	Config *Config
	Params tensor.Params // in arena order
	tensors[npu.Buffer, npu.Matrix]
	arena     npu.Buffer // memory of all values
	dev       tensor.Transfer
	purpose   npu.Purpose
	dtype     npu.DType
	offloaded offloaded // values after Unload
}

// NewWeights allocates zeroed weights of the type of the device's numerics.
func NewWeights(dev npu.Device, c *Config, purpose npu.Purpose) (*Weights, error) {
	return newWeights(dev, c, purpose, dev.Info().Numerics.Type())
}

// NewMasters allocates zeroed weights in float32, whatever the device's numerics. A Tape or Runner can use them
// only in npu.FP32.
func NewMasters(dev npu.Device, c *Config) (*Weights, error) {
	return newWeights(dev, c, npu.Optimizer, npu.Float32)
}

func newWeights(dev npu.Device, c *Config, purpose npu.Purpose, dtype npu.DType) (*Weights, error) {
	w, err := newTensors(dev, c, c.Params(), purpose, dtype)
	if err != nil {
		return nil, err
	}
	w.bindParams()
	return w, nil
}

// bindParams makes the tensors of a decoder use the buffers of its parameters.
func (w *Weights) bindParams() {
	w.bind(w.Config, func(i int) npu.Buffer { return w.Params[i].Buffer }, func(i int) npu.Matrix {
		p := &w.Params[i]
		return npu.Matrix{Buffer: p.Buffer, Rows: p.Rows, Cols: p.Cols}
	})
}

// NewTensors allocates zeroed values of float32 for ps, some tensors of a decoder or parts of them, and sets
// their buffers. A Tape or Runner cannot use these weights.
func NewTensors(dev npu.Device, c *Config, ps tensor.Params, purpose npu.Purpose) (*Weights, error) {
	return newTensors(dev, c, ps, purpose, npu.Float32)
}

func newTensors(dev npu.Device, c *Config, ps tensor.Params, purpose npu.Purpose, dtype npu.DType) (*Weights, error) {
	w := &Weights{Config: c, Params: ps, dev: tensor.Transfer{Device: dev}, purpose: purpose, dtype: dtype}
	if err := w.allocate(); err != nil {
		return nil, err
	}
	return w, nil
}

// allocate allocates zeroed values and sets the parameters' buffers.
func (w *Weights) allocate() error {
	total := 0
	for i := range w.Params {
		total += padded(length(w.dev, &w.Params[i]))
	}
	if total == 0 {
		return nil
	}
	arena, err := w.dev.Alloc(w.dtype, total, w.purpose)
	if err != nil {
		return fmt.Errorf("allocate %s: %w", w.purpose, err)
	}
	w.dev.Zero(arena)
	w.arena = arena
	start := 0
	for i := range w.Params {
		n := length(w.dev, &w.Params[i])
		w.Params[i].Buffer = arena.Slice(start, start+n)
		start += padded(n)
	}
	return nil
}

// length returns the number of values of p in the device's layout.
func length(dev npu.MatrixKernels, p *tensor.Param) int {
	if p.Cols == 0 {
		return p.Rows
	}
	return dev.MatrixLen(p.Rows, p.Cols)
}

// Through returns w for reading through another queue of its device. It shares the values of w,
// which remains their owner. Queues are not ordered, so the caller must have waited for the kernels
// that wrote the values.
func (w *Weights) Through(queue npu.Device) *Weights {
	read := *w
	read.dev = tensor.Transfer{Device: queue}
	return &read
}

// Fork opens another queue on the device that holds w. threads is the number of threads of a
// device of CPU cores, 0 for all. Any goroutine may call Fork.
func (w *Weights) Fork(threads int) (npu.Device, error) { return w.dev.Fork(threads) }

// Zero clears all values.
func (w *Weights) Zero() { w.dev.Zero(w.arena) }

// CopyFrom copies the values of src, which must have the same shape and layout. It rounds them if w has a type of fewer
// bits.
func (w *Weights) CopyFrom(src *Weights) { w.dev.Convert(w.arena, src.arena) }

// DType returns the type of the values.
func (w *Weights) DType() npu.DType { return w.dtype }

// Free frees the memory. Only the owner calls it, not a copy that Through returns.
func (w *Weights) Free() {
	w.dev.Free(w.arena)
	w.arena = npu.Buffer{}
}

// Bytes returns the size of the device memory, 0 after Unload.
func (w *Weights) Bytes() int64 { return w.arena.Bytes() }

// Init draws random weights: matrices from N(0, Std²), norms 1, biases 0. A seed
// gives the same weights on every machine. Init waits.
func (w *Weights) Init(seed uint64) error {
	rng := splitmix.Normal{Seed: seed}
	err := w.Fill(func(p *tensor.Param, vals []float32, _ int) error {
		source.Draw(p, vals, &rng)
		return nil
	})
	return errors.Join(err, w.dev.Sync())
}

// Fill sets all values, tensor by tensor in arena order. read fills vals with the row-major
// values of p from value first on. Fill rejects values that are not finite. After an error, w
// holds some of the new values.
func (w *Weights) Fill(read func(p *tensor.Param, vals []float32, first int) error) error {
	var vals []float32
	for i := range w.Params {
		p := &w.Params[i]
		var err error
		vals, err = w.dev.Fill(p, vals, func(vals []float32, first int) error { return read(p, vals, first) })
		if err != nil {
			return err
		}
	}
	return nil
}

// Read copies parameter i, row-major, into dst of Rows·Cols values.
func (w *Weights) Read(i int, dst []float32) error {
	if w.offloaded.out {
		return w.offloaded.read(i, dst)
	}
	return w.dev.Read(dst, &w.Params[i])
}

// Write sets parameter i to the Rows·Cols row-major values of src and, unless sums is nil, sums to
// the hashes of its panels (see host.Sums). It rejects values that are not finite.
func (w *Weights) Write(i int, src []float32, sums []uint64) error {
	p := &w.Params[i]
	if sums == nil {
		sums = make([]uint64, p.Shape().Panels())
	}
	for first, m := range w.dev.Blocks(p) {
		if err := w.dev.Set(p, first, src[first:first+m.Rows*max(m.Cols, 1)], sums); err != nil {
			return err
		}
	}
	return nil
}

// CheckFinite returns an error that names the first parameter with NaN, infinity, or
// values whose sum of squares overflows float32, as after a far too large update. The
// error wraps ErrNotFinite. The values are float32.
func (w *Weights) CheckFinite() error {
	buffers, sums := make([]npu.Buffer, len(w.Params)), make([]float64, len(w.Params))
	for i := range w.Params {
		buffers[i] = w.Params[i].Buffer
	}
	if err := w.dev.SumSquares(sums, buffers); err != nil {
		return err
	}
	for i, sum := range sums {
		if sum-sum != 0 { // NaN or infinite
			return fmt.Errorf("weights of %s: sum of squares %v: %w", w.Params[i].Name, sum, ErrNotFinite)
		}
	}
	return nil
}

// Checksum returns Sum, or a text that is no checksum if the device fails.
func (w *Weights) Checksum() string { return textOf(w.Sum()) }

// textOf returns sum, or a text with err that is no checksum.
func textOf(sum string, err error) string {
	if err != nil {
		return "none: " + err.Error()
	}
	return sum
}

// Sum waits and returns the checksum of the values. It is the same on every device; see
// host.Sums.
func (w *Weights) Sum() (string, error) {
	s := w.Params.Sums()
	var lists [][]uint64
	for i := range w.Params {
		lists = append(lists, s[w.Params[i].Name])
	}
	if err := w.dev.Sums(w.Params, lists); err != nil {
		return "", fmt.Errorf("checksum of weights: %w", err)
	}
	return s.Total(), nil
}

// StoredType returns the type of a file's tensors whose values are of type t.
func StoredType(t npu.DType) checkpoint.DType {
	if t == npu.BFloat16 {
		return checkpoint.BF16
	}
	return checkpoint.F32
}

// Sources returns the tensors under their names, to be streamed row-major.
func (w *Weights) Sources() []checkpoint.Source {
	var out []checkpoint.Source
	dtype := StoredType(w.dtype)
	for i := range w.Params {
		p := &w.Params[i]
		out = append(out, checkpoint.Source{Name: p.Name, DType: dtype, Shape: p.Shape().RowShape(),
			Write: func(dst []float32) error { return w.Read(i, dst) }})
	}
	return out
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
	var t checkpoint.Tensor // source of the parameter that Fill fills
	err := w.Fill(func(p *tensor.Param, vals []float32, first int) (err error) {
		if first == 0 {
			t, err = p.Find(prefix, f)
			if err != nil {
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

// Arena returns the memory of all values.
func (w *Weights) Arena() npu.Buffer { return w.arena }

// Span returns the range [from, to) of values that p, a piece of w.Params, covers in its tensor's
// buffer.
func (w *Weights) Span(p *tensor.Piece) (from, to int) {
	all := &w.Params[p.Of]
	from = w.offset(all, p.Row) - w.offset(all, 0)
	return from, from + length(w.dev, &p.Param)
}

// Counts returns the number of values of w's Arena that each of n ranks has if they divide
// w.Params as tensor.Params.Pieces does.
func (w *Weights) Counts(n int) []int {
	start := func(rank int) int {
		param, row := w.Params.Cut(rank, n)
		if param == len(w.Params) {
			return w.arena.Len()
		}
		return w.offset(&w.Params[param], row)
	}
	counts := make([]int, n)
	for rank := range counts {
		counts[rank] = start(rank+1) - start(rank)
	}
	return counts
}

// offset returns the index in the arena of the first value of a row of p. A row of a matrix must
// be the first one of a block of npu.MatrixBlock rows.
func (w *Weights) offset(p *tensor.Param, row int) int {
	start := int(p.Buffer.Addr()-w.arena.Addr()) / w.dtype.Size()
	switch {
	case row == 0:
		return start
	case p.Cols == 0:
		return start + row
	}
	return start + w.dev.MatrixLen(row, p.Cols)
}
