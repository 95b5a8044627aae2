package layer

import (
	"slices"

	"github.com/easyrl/easyrl/model/carry"
	"github.com/easyrl/easyrl/npu"
)

// Pass runs T rows through the layers of a rank. Its buffers belong to the Tape or the Runner.
type Pass struct {
	Dev   npu.Device
	Width int     // D
	Eps   float32 // of the norms

	Rows      int // T
	Positions npu.Ints
	Segments  npu.Segments // the rows' sequences; zero in a decode step
	Cache     *Cache       // keys and values of earlier passes; nil in training
	Own       Own          // rows of the residual stream that this rank has
	Carry     *carry.Carry // connection to the other tensor ranks; nil if there are none
	Norm      npu.Buffer   // [T, D] scratch: the norm of all rows
	Sum       npu.Buffer   // [T, D] float32 scratch for sums over tensor ranks; in npu.FP32 Norm's memory
	Gradients Scratch      // used in a backward pass

	outputs []npu.Projection // arguments of Project
}

// Cache holds the keys and values of sequences in pages, by layer, and says where a pass reads and writes them.
type Cache struct {
	K, V   []npu.Buffer
	Slots  npu.Ints    // slot to which each row's key and value are written
	Tables *npu.Tables // positions that each row sees
}

// Scratch is what a backward pass shares between sublayers.
type Scratch struct {
	Norm   npu.Buffer // [T, D] gradient of a norm's output
	All    npu.Buffer // [T, D] all rows of a gradient, if ranks divide them or its type is not float32
	Part   npu.Buffer // this rank's rows of Norm's values if ranks divide them, else Norm
	Leaves npu.Leaves // leaves of the T rows
	Own    npu.Leaves // leaves of this rank's rows
	Heads  npu.Leaves // Leaves, in the format for sums to which each head contributes (see npu.FixedPoint.Split)
}

// Own is the range of rows of the residual stream [T, D] that this rank has. With sequence
// parallelism (Korthikanti et al. 2022), tensor ranks divide the rows between the sublayers'
// products, where each value depends on one row only. Without it, a rank has all rows, and
// Bounds is nil.
type Own struct {
	Bounds []int // first row of each tensor rank, then T
	Lo, Hi int   // this rank has rows [Lo, Hi)
}

// Rows returns the number of this rank's rows.
func (o *Own) Rows() int { return o.Hi - o.Lo }

// Set gives the rank rows bounds[rank] to bounds[rank+1] or, if bounds is nil, all t rows.
func (o *Own) Set(bounds []int, rank, t int) {
	o.Bounds, o.Lo, o.Hi = bounds, 0, t
	if bounds != nil {
		o.Lo, o.Hi = bounds[rank], bounds[rank+1]
	}
}

// Gather completes x [T, width] on all tensor ranks. Each has computed its rows, as bounds divides them.
func (p *Pass) Gather(x npu.Buffer, bounds []int, width int) {
	counts := make([]int, len(bounds)-1)
	for i := range counts {
		counts[i] = (bounds[i+1] - bounds[i]) * width
	}
	p.Carry.Gather(x, counts)
}

// Normalize sets p.Norm to the norm of all rows. x has this rank's rows.
func (p *Pass) Normalize(x, weight npu.Buffer) {
	o := &p.Own
	if n := o.Rows(); n > 0 {
		p.Dev.RMSNorm(p.ownRows(p.Norm), x, weight, n, p.Eps)
	}
	if o.Bounds != nil {
		p.Gather(p.Norm, o.Bounds, p.Width)
	}
}

// Project computes outputs from the norm of x and sets p.Norm to that norm. x has this rank's rows.
func (p *Pass) Project(x, weight npu.Buffer, outputs ...npu.Projection) {
	p.outputs = append(p.outputs[:0], outputs...) // keeps the arguments off the heap
	if p.Own.Bounds == nil {
		p.Dev.NormLinear(p.outputs, p.Norm, x, weight, p.Rows, p.Eps)
		return
	}
	p.Normalize(x, weight)
	for _, o := range p.outputs {
		p.Dev.Linear(o.Y, p.Norm, o.W, o.Bias, p.Rows, npu.Fresh)
	}
}

// Linear computes y = start + x wᵀ, summed over the tensor ranks. x has all rows; y and start, which may be the
// same, have this rank's.
func (p *Pass) Linear(y, start, x npu.Buffer, w npu.Matrix) {
	product := func(y npu.Buffer, lo, hi int, add bool) {
		p.Dev.Linear(y, x.Slice(lo*w.Cols, hi*w.Cols), w, npu.Buffer{}, hi-lo, continued(add))
	}
	if p.Carry != nil && !p.rounds() { // the chains start from start
		p.sum(y, start, p.Sum, true, w.Rows, product)
		return
	}
	if y.Addr() != start.Addr() {
		p.Dev.Copy(y, start)
	}
	if p.Carry == nil {
		p.Dev.Linear(y, x, w, npu.Buffer{}, p.Rows, npu.Add)
		return
	}
	own := p.ownRows(p.Sum)
	p.sum(own, npu.Buffer{}, p.Sum, false, w.Rows, product)
	p.Dev.Add(y, own)
}

// rounds reports whether activations are of another type than the residual stream. Then a product is a sum on
// its own, which is added to the stream once it is complete (see npu.Add).
func (p *Pass) rounds() bool { return p.Norm.DType() != npu.Float32 }

// ownRows returns this rank's rows of x [T, D].
func (p *Pass) ownRows(x npu.Buffer) npu.Buffer { return x.Slice(p.Own.Lo*p.Width, p.Own.Hi*p.Width) }

// continued returns how a product treats the values in its output: it continues them or overwrites them.
func continued(add bool) npu.Start {
	if add {
		return npu.Continue
	}
	return npu.Fresh
}

// sum computes y = start + Σ products over the tensor ranks, or without start if started is false.
// A zero start cannot say that, because start is also zero on a rank without rows. start and y have
// this rank's rows, scratch has all rows. Without sequence parallelism, y has all rows and scratch is
// unused. product computes rows [lo, hi) of this rank's product into its y, from 0 or, with add, from
// the values in y.
func (p *Pass) sum(y, start, scratch npu.Buffer, started bool, width int,
	product func(y npu.Buffer, lo, hi int, add bool)) {
	if p.Own.Bounds == nil {
		p.Carry.Rows(y, start, p.Rows, width,
			func(lo, hi int, add bool) { product(y.Slice(lo*width, hi*width), lo, hi, add) })
		return
	}
	p.Carry.Scatter(y, start, scratch, started, p.Own.Bounds, width, func(lo, hi int, add bool) {
		product(scratch.Slice(lo*width, hi*width), lo, hi, add)
	})
}

// AllRows returns all rows of dx, which has this rank's rows of the residual stream's gradient, as activations.
func (p *Pass) AllRows(dx npu.Buffer) npu.Buffer {
	if p.Own.Bounds == nil && !p.rounds() {
		return dx
	}
	return p.complete(p.Gradients.All, dx)
}

// ResidualRows returns all rows of dx, which has this rank's, in float32.
func (p *Pass) ResidualRows(dx npu.Buffer) npu.Buffer {
	if p.Own.Bounds == nil {
		return dx
	}
	return p.complete(p.Sum, dx)
}

// complete sets all to the values of all ranks' rows of dx.
func (p *Pass) complete(all, dx npu.Buffer) npu.Buffer {
	if p.Own.Rows() > 0 {
		p.Dev.Convert(p.ownRows(all), dx)
	}
	if p.Own.Bounds != nil {
		p.Gather(all, p.Own.Bounds, p.Width)
	}
	return all
}

// NormBackward adds the gradient of a norm's input x to dx and that of its weight to g. x and dx have this rank's
// rows. The gradient of the norm's output is Σ dy w over products and tensor ranks, one chain over all terms:
// ranks divide the products' blocks, and each continues the chain of the rank before.
func (p *Pass) NormBackward(dx npu.Buffer, g npu.Sums, x, weight npu.Buffer, products ...npu.Product) {
	s := &p.Gradients
	p.linearBackwardInput(s.Part, s.Norm, products)
	p.Dev.RMSNormBackward(dx, g, s.Part, x, weight, 1, p.Eps, true, &s.Own)
}

// linearBackwardInput computes dx = Σ dy w over products and tensor ranks. dx has this rank's rows. scratch is
// [T, D]; it may be dx if dx has all rows.
func (p *Pass) linearBackwardInput(dx, scratch npu.Buffer, products []npu.Product) {
	if p.Carry == nil {
		p.Dev.LinearBackwardInput(dx, products, p.Rows, false)
		return
	}
	sum := dx
	if p.rounds() {
		sum, scratch = p.ownRows(p.Sum), p.Sum
		defer p.Dev.Convert(dx, sum)
	}
	width := products[0].W.Cols
	p.sum(sum, npu.Buffer{}, scratch, false, width, func(dx npu.Buffer, lo, hi int, add bool) {
		part := slices.Clone(products)
		for i := range part {
			n := part[i].W.Rows
			part[i].DY = part[i].DY.Slice(lo*n, hi*n)
		}
		p.Dev.LinearBackwardInput(dx, part, hi-lo, add)
	})
}

// Product returns the product of dy and w with all rows of w in one block.
func Product(dy npu.Buffer, w npu.Matrix) npu.Product {
	return npu.Product{DY: dy, W: w, Block: w.Rows}
}
