package tensor

import (
	"fmt"
	"iter"
	"slices"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/bf16"
	"github.com/easyrl/easyrl/npu/host"
)

// BlockValues is the approximate number of values that pass through host memory at a
// time. Blocks avoid a second copy of a tensor and fit in a core's cache.
const BlockValues = 1 << 18

// farBlock replaces BlockValues on a device with its own memory, where each block costs a wait.
const farBlock = 1 << 23

// Transfer moves tensors between a device and host memory, block by block. On the host values are float32; those
// of a tensor in bfloat16 are rounded on their way to the device.
type Transfer struct{ npu.Device }

// widened calls use with float32 memory for the values of m, which it frees afterwards: the memory of m or, if m's type
// is another one, a temporary copy. Before use, load fills the copy with the values of m; after use, store converts
// the copy to m.
func (d Transfer) widened(m npu.Matrix, load, store bool, use func(m npu.Matrix) error) error {
	if m.DType() == npu.Float32 {
		return use(m)
	}
	values, err := d.Alloc(npu.Float32, m.Len(), npu.Activations)
	if err != nil {
		return fmt.Errorf("convert %d values: %w", m.Len(), err)
	}
	defer d.Free(values)
	if load {
		d.Convert(values, m.Buffer)
	}
	wide := m
	wide.Buffer = values
	if err := use(wide); err != nil {
		return err
	}
	if store {
		d.Convert(m.Buffer, values)
	}
	return nil
}

// rounded returns vals as a tensor of the given type holds them.
func rounded(vals []float32, dtype npu.DType) []float32 {
	if dtype != npu.BFloat16 {
		return vals
	}
	out := make([]float32, len(vals))
	for i, v := range vals {
		out[i] = bf16.Round(v).Float()
	}
	return out
}

// Blocks splits p at multiples of npu.MatrixBlock rows, where a device's layout can be cut. A vector
// is one block. first is the row-major index of the block's first value; matrix is the
// block in the device's layout, with Cols 0 for a vector.
func (d Transfer) Blocks(p *Param) iter.Seq2[int, npu.Matrix] {
	return func(yield func(first int, matrix npu.Matrix) bool) {
		size := BlockValues
		if d.Space() != npu.Host {
			size = farBlock
		}
		all, step := p.Shape().Values(), p.Shape().Block(size)
		for first := 0; first < all; first += step {
			if !yield(first, d.block(p, first, min(step, all-first))) {
				return
			}
		}
	}
}

// block returns the n values of p that start at value first, which must start a
// block.
func (d Transfer) block(p *Param, first, n int) npu.Matrix {
	if p.Cols == 0 {
		return npu.Matrix{Buffer: p.Buffer.Slice(first, first+n), Rows: n}
	}
	at, rows := d.MatrixLen(first/p.Cols, p.Cols), n/p.Cols
	return npu.Matrix{Buffer: p.Buffer.Slice(at, at+d.MatrixLen(rows, p.Cols)), Rows: rows, Cols: p.Cols}
}

// Set writes a block of row-major values to p and the sums of its panels to the sums
// of p. It rejects values that are not finite.
func (d Transfer) Set(p *Param, first int, vals []float32, sums []uint64) error {
	vals = rounded(vals, p.Buffer.DType())
	return d.widened(d.block(p, first, len(vals)), false, true, func(m npu.Matrix) error {
		d.write(m, vals)
		laid := m.Float32s()
		if laid == nil {
			laid = p.Shape().Pack(nil, vals)
		}
		run, at := p.Shape().PanelLen(), p.Shape().PanelAt(first)
		if host.CopySum(nil, laid, run, sums[at:at+len(laid)/run], npu.Threads(d.Device)) {
			return nil
		}
		return p.CheckFinite(vals, first)
	})
}

// write copies row-major values to a block of float32.
func (d Transfer) write(m npu.Matrix, vals []float32) {
	if m.Cols == 0 {
		d.Upload(m.Buffer, vals)
	} else {
		d.PackMatrix(m, vals)
	}
}

// SetPacked writes a block of panels to p and their sums to the sums of p. It rejects values that
// are not finite and padding that is not 0. first is the index of the block's first value, which is
// the same in panels and in row-major order, because a block begins with a panel.
func (d Transfer) SetPacked(p *Param, first int, vals []float32, sums []uint64) error {
	run := p.Shape().PanelLen()
	at, n := first/run, len(vals)/run
	part := p.Shape().Part(at, n)
	if !p.Buffer.OnHost() { // the host cannot write the layout
		if err := p.paddingError(part.CheckPadding(vals)); err != nil {
			return err
		}
		return d.Set(p, first, part.Unpack(vals), sums)
	}
	vals = rounded(vals, p.Buffer.DType())
	block := npu.Matrix{Buffer: p.Buffer.Slice(first, first+len(vals))}
	return d.widened(block, false, true, func(m npu.Matrix) error {
		own := m.Float32s()
		if !host.CopySum(own, vals, run, sums[at:at+n], npu.Threads(d.Device)) {
			if err := p.CheckFinite(part.Unpack(own), first); err != nil {
				return err
			}
		}
		return p.paddingError(part.CheckPadding(own))
	})
}

// Get returns the row-major values of block m. It reuses vals if they fit.
func (d Transfer) Get(vals []float32, m npu.Matrix) ([]float32, error) {
	vals = room(vals, m)
	return vals, d.read(vals, m)
}

// read copies the row-major values of a block to vals and waits.
func (d Transfer) read(vals []float32, m npu.Matrix) error {
	return d.widened(m, true, false, func(m npu.Matrix) error {
		if m.Cols == 0 {
			d.Download(vals, m.Buffer)
		} else {
			d.UnpackMatrix(vals, m)
		}
		return d.Sync()
	})
}

// Read copies the row-major values of p to dst and waits.
func (d Transfer) Read(dst []float32, p *Param) error { return d.read(dst, p.matrix()) }

// Write copies the row-major values of src to p, also those that are not finite. The device's next
// Sync reports failures.
func (d Transfer) Write(p *Param, src []float32) error {
	return d.widened(p.matrix(), false, true, func(m npu.Matrix) error {
		d.write(m, src)
		return nil
	})
}

// Sums sets sums[i] to the hashes of the panels of ps[i] (see host.Sums) and waits. The device
// computes them unless the host can read its memory.
func (d Transfer) Sums(ps Params, sums [][]uint64) error {
	if len(ps) > 0 && ps[0].Buffer.OnHost() {
		for i := range ps {
			if err := d.ReadPanels(nil, &ps[i], sums[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if len(ps) > 0 && ps[0].Buffer.DType() != npu.Float32 {
		return d.widenedSums(ps, sums)
	}
	matrices := make([]npu.Matrix, len(ps))
	var all []uint64
	for i := range ps {
		matrices[i] = ps[i].matrix()
		all = append(all, sums[i]...)
	}
	if err := d.SumPanels(all, matrices); err != nil {
		return err
	}
	for i := range sums {
		all = all[copy(sums[i], all):]
	}
	return nil
}

// widenedSums is Sums for tensors of another type than float32, block by block.
func (d Transfer) widenedSums(ps Params, sums [][]uint64) error {
	for i := range ps {
		p := &ps[i]
		for first, block := range d.Blocks(p) {
			err := d.widened(block, true, false, func(m npu.Matrix) error {
				at := p.Shape().PanelAt(first)
				return d.SumPanels(sums[i][at:at+max(1, m.Len()/p.Shape().PanelLen())], []npu.Matrix{m})
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Fill sets p block by block from read, which fills vals. It returns vals for reuse.
func (d Transfer) Fill(p *Param, vals []float32, read func(vals []float32, first int) error) ([]float32, error) {
	sums := make([]uint64, p.Shape().Panels()) // discarded
	for first, m := range d.Blocks(p) {
		vals = room(vals, m)
		err := read(vals, first)
		if err == nil {
			err = d.Set(p, first, vals, sums)
		}
		if err != nil {
			return vals, err
		}
	}
	return vals, nil
}

// ReadPanels copies the panels of p to dst, unless it is nil, and sums them.
func (d Transfer) ReadPanels(dst []float32, p *Param, sums []uint64) error {
	run := p.Shape().PanelLen()
	if p.Buffer.OnHost() {
		return d.widened(npu.Matrix{Buffer: p.Buffer}, true, false, func(m npu.Matrix) error {
			if err := d.Sync(); err != nil {
				return err
			}
			host.CopySum(dst, m.Float32s(), run, sums, npu.Threads(d.Device))
			return nil
		})
	}
	var vals, laid []float32
	for first, m := range d.Blocks(p) {
		var err error
		if vals, err = d.Get(vals, m); err != nil {
			return err
		}
		laid = p.Shape().Pack(laid, vals)
		at := p.Shape().PanelAt(first)
		host.CopySum(dst[at*run:at*run+len(laid)], laid, run, sums[at:at+len(laid)/run], npu.Threads(d.Device))
	}
	return nil
}

// Sum sets sums to the sums of the panels of p, whose row-major values are vals. It rejects values
// that are not finite. It uses memory for one block.
func (p *Param) Sum(vals []float32, sums []uint64, threads int) error {
	var laid []float32
	run, step := p.Shape().PanelLen(), p.Shape().Block(BlockValues)
	for first := 0; first < len(vals); first += step {
		block := vals[first:min(first+step, len(vals))]
		laid = p.Shape().Pack(laid, block)
		at := p.Shape().PanelAt(first)
		if !host.CopySum(nil, laid, run, sums[at:at+len(laid)/run], threads) {
			return p.CheckFinite(block, first)
		}
	}
	return nil
}

// room returns vals resized to the length of block m; it reallocates if needed.
func room(vals []float32, m npu.Matrix) []float32 {
	n := m.Rows * max(m.Cols, 1)
	return slices.Grow(vals[:0], n)[:n]
}
