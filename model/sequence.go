package model

import "github.com/easyrl/easyrl/npu"

// own is the range of rows of the residual stream [T, D] that this rank has. With sequence
// parallelism (Korthikanti et al. 2022), tensor ranks divide the rows between the blocks'
// products, where each value depends on one row only. Without it, a rank has all rows, and
// bounds is nil.
type own struct {
	bounds []int // first row of each tensor rank, then T
	lo, hi int   // this rank has rows [lo, hi)
}

// rows returns the number of this rank's rows.
func (o *own) rows() int { return o.hi - o.lo }

// set gives the rank rows bounds[rank] to bounds[rank+1] or, if bounds is nil, all t rows.
func (o *own) set(bounds []int, rank, t int) {
	o.bounds, o.lo, o.hi = bounds, 0, t
	if bounds != nil {
		o.lo, o.hi = bounds[rank], bounds[rank+1]
	}
}

// gather completes x [T, width]. Each rank has computed the rows that bounds gives it.
func (p *pass) gather(x npu.Buffer, bounds []int, width int) {
	counts := make([]int, len(bounds)-1)
	for i := range counts {
		counts[i] = (bounds[i+1] - bounds[i]) * width
	}
	p.carry.Gather(x, counts)
}

// normalize computes the norm of x, which has this rank's rows, and sets p.norm to that of all T
// rows.
func (p *pass) normalize(x, weight npu.Buffer) {
	o, d := &p.own, p.cfg.HiddenSize
	if n := o.rows(); n > 0 {
		p.dev.RMSNorm(p.norm.Slice(o.lo*d, o.hi*d), x, weight, n, p.cfg.NormEps)
	}
	if o.bounds != nil {
		p.gather(p.norm, o.bounds, d)
	}
}

// project computes p.outputs from the norm of x, which has this rank's rows.
func (p *pass) project(x, weight npu.Buffer) {
	if p.own.bounds == nil {
		p.dev.NormLinear(p.outputs, p.norm, x, weight, p.t, p.cfg.NormEps)
		return
	}
	p.normalize(x, weight)
	for _, o := range p.outputs {
		p.dev.Linear(o.Y, p.norm, o.W, o.Bias, p.t, false)
	}
}

// sum computes y = start + Σ products over the tensor ranks, or without start if started is false.
// started is needed because start is also the zero Buffer if this rank has no rows. start and y
// have this rank's rows, scratch has all rows. Without sequence parallelism, y has all rows and
// scratch is unused. product computes rows [lo, hi) of this rank's product into its y, from 0 or,
// with add, from the values in y.
func (p *pass) sum(y, start, scratch npu.Buffer, started bool, width int,
	product func(y npu.Buffer, lo, hi int, add bool)) {
	if p.own.bounds == nil {
		p.carry.Rows(y, start, p.t, width,
			func(lo, hi int, add bool) { product(y.Slice(lo*width, hi*width), lo, hi, add) })
		return
	}
	p.carry.Scatter(y, start, scratch, started, p.own.bounds, width, func(lo, hi int, add bool) {
		product(scratch.Slice(lo*width, hi*width), lo, hi, add)
	})
}

// allRows returns a buffer with all rows of x, which has this rank's rows: x if the rank has all,
// else room, into which it gathers them.
func (p *pass) allRows(x, room npu.Buffer) npu.Buffer {
	o, d := &p.own, p.cfg.HiddenSize
	if o.bounds == nil {
		return x
	}
	if o.rows() > 0 {
		p.dev.Copy(room.Slice(o.lo*d, o.hi*d), x)
	}
	p.gather(room, o.bounds, d)
	return room
}
