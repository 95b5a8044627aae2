package tensor

import (
	"iter"
	"slices"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/host"
)

// BlockValues is the approximate number of values that pass through host memory at a
// time. Blocks avoid a second copy of a tensor and fit in a core's cache.
const BlockValues = 1 << 18

// farBlock replaces BlockValues on a device with its own memory, where each block costs a wait.
const farBlock = 1 << 23

// Transfer moves tensors between a device and host memory, block by block.
type Transfer struct{ npu.Device }

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
	m := d.block(p, first, len(vals))
	if m.Cols == 0 {
		d.Upload(m.Buffer, vals)
	} else {
		d.PackMatrix(m, vals)
	}
	laid := m.Float32s()
	if laid == nil {
		laid = p.Shape().Pack(nil, vals)
	}
	run, at := p.Shape().PanelLen(), p.Shape().PanelAt(first)
	if host.CopySum(nil, laid, run, sums[at:at+len(laid)/run], npu.Threads(d.Device)) {
		return nil
	}
	return p.CheckFinite(vals, first)
}

// SetPacked writes a block of panels to p and their sums to the sums of p. It rejects values that
// are not finite and padding that is not 0. first is the index of the block's first value, which is
// the same in panels and in row-major order, because a block begins with a panel.
func (d Transfer) SetPacked(p *Param, first int, vals []float32, sums []uint64) error {
	run := p.Shape().PanelLen()
	at, n := first/run, len(vals)/run
	part := p.Shape().Part(at, n)
	mem := p.Buffer.Float32s()
	if mem == nil { // the host cannot write the layout
		if err := p.paddingError(part.CheckPadding(vals)); err != nil {
			return err
		}
		return d.Set(p, first, part.Unpack(vals), sums)
	}
	own := mem[first : first+len(vals)]
	if !host.CopySum(own, vals, run, sums[at:at+n], npu.Threads(d.Device)) {
		if err := p.CheckFinite(part.Unpack(own), first); err != nil {
			return err
		}
	}
	return p.paddingError(part.CheckPadding(own))
}

// Get returns the row-major values of block m. It reuses vals if they fit.
func (d Transfer) Get(vals []float32, m npu.Matrix) ([]float32, error) {
	vals = room(vals, m)
	return vals, d.read(vals, m)
}

// read copies the row-major values of a block to vals and waits.
func (d Transfer) read(vals []float32, m npu.Matrix) error {
	if m.Cols == 0 {
		d.Download(vals, m.Buffer)
	} else {
		d.UnpackMatrix(vals, m)
	}
	return d.Sync()
}

// Read copies the row-major values of p to dst and waits.
func (d Transfer) Read(dst []float32, p *Param) error { return d.read(dst, p.matrix()) }

// Write copies the row-major values of src to p, also those that are not finite. The device's next
// Sync reports failures.
func (d Transfer) Write(p *Param, src []float32) {
	if p.Cols == 0 {
		d.Upload(p.Buffer, src)
	} else {
		d.PackMatrix(p.matrix(), src)
	}
}

// Sums sets sums[i] to the hashes of the panels of ps[i] (see host.Sums) and waits. The device
// computes them unless the host can read its memory.
func (d Transfer) Sums(ps Params, sums [][]uint64) error {
	if len(ps) > 0 && ps[0].Buffer.Float32s() != nil {
		if err := d.Sync(); err != nil {
			return err
		}
		for i := range ps {
			host.CopySum(nil, ps[i].Buffer.Float32s(), ps[i].Shape().PanelLen(), sums[i], npu.Threads(d.Device))
		}
		return nil
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

// ReadPanels copies the panels of p to dst and sums them.
func (d Transfer) ReadPanels(dst []float32, p *Param, sums []uint64) error {
	run := p.Shape().PanelLen()
	if mem := p.Buffer.Float32s(); mem != nil {
		if err := d.Sync(); err != nil {
			return err
		}
		host.CopySum(dst, mem, run, sums, npu.Threads(d.Device))
		return nil
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
