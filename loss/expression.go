package loss

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/easyrl/easyrl/internal/rounded"
)

// node is a vector with one float64 per token, or a scalar.
type node = *gorgonia.Node

// expression builds a graph of element-wise operations. It keeps the first error,
// which compile returns, so that an objective reads like its formula.
//
// A vector used by several terms receives the sum of their gradients. With at most two
// terms, as here, that sum has only one order, so the gradient has the same bits in
// every run.
type expression struct {
	graph   *gorgonia.ExprGraph
	size    int // maximum number of tokens
	inputs  []input
	lengths []int // lengths of the responses in the current run
	err     error // first error of an operation
	stops   int   // number of calls of stop so far
	// hold, if not nil, gets the value of each stop when it is computed and may change
	// it. Tests use it to hold a value constant while they vary the inputs.
	hold func(stop int, value []float64)
}

// input is a vector filled before each run.
type input struct {
	source func(v *Vars) []float32
	values []float64 // the vector's memory, one value for each of size tokens
}

func newExpression(size int) *expression {
	return &expression{graph: gorgonia.NewGraph(), size: size}
}

// vector returns a named input.
func (x *expression) vector(name string, source func(v *Vars) []float32) node {
	in := input{source, make([]float64, x.size)}
	x.inputs = append(x.inputs, in)
	return gorgonia.NewVector(x.graph, tensor.Float64, gorgonia.WithName(name), gorgonia.WithShape(x.size),
		gorgonia.WithValue(tensor.New(tensor.WithShape(x.size), tensor.WithBacking(in.values))))
}

func (x *expression) scalar(v float64) node { return gorgonia.NewConstant(v) }

// unary applies an operation unless an earlier one has failed.
func (x *expression) unary(f func(node) (node, error), a node) node {
	if x.err != nil {
		return nil
	}
	r, err := f(a)
	x.err = err
	return r
}

// binary applies an operation unless an earlier one has failed.
func (x *expression) binary(f func(a, b node) (node, error), a, b node) node {
	if x.err != nil {
		return nil
	}
	r, err := f(a, b)
	x.err = err
	return r
}

func (x *expression) neg(a node) node    { return x.unary(gorgonia.Neg, a) }
func (x *expression) square(a node) node { return x.unary(gorgonia.Square, a) }
func (x *expression) add(a, b node) node { return x.binary(gorgonia.Add, a, b) }
func (x *expression) sub(a, b node) node { return x.binary(gorgonia.Sub, a, b) }
func (x *expression) mul(a, b node) node { return x.binary(gorgonia.HadamardProd, a, b) }

// atMost returns 1 if a <= b, else 0. No gradient passes.
func (x *expression) atMost(a, b node) node {
	return x.binary(func(a, b node) (node, error) { return gorgonia.Lte(a, b, true) }, a, b)
}

// exp returns e^a, whose bits are equal on every machine. Gorgonia's own are not.
func (x *expression) exp(a node) node {
	op := &expOp{vectorOp{name: "exp", apply: func(out, in []float64) {
		for i, v := range in {
			out[i] = rounded.Exp(v)
		}
	}}}
	return x.unary(func(a node) (node, error) { return gorgonia.ApplyOp(op, a) }, a)
}

// choose returns a if the mask is 1 and b if it is 0. Both must be finite.
func (x *expression) choose(mask, a, b node) node {
	return x.add(x.mul(mask, a), x.mul(x.sub(x.scalar(1), mask), b))
}

// mean returns the mean of a over each response, at each of its tokens.
func (x *expression) mean(a node) node {
	op := &vectorOp{name: "mean", diff: true, apply: func(out, in []float64) { responseMeans(out, in, x.lengths) }}
	return x.unary(func(a node) (node, error) { return gorgonia.ApplyOp(op, a) }, a)
}

// stop returns a without its gradient: sg[a] in papers.
func (x *expression) stop(a node) node {
	index := x.stops
	x.stops++
	op := &vectorOp{name: "stop", apply: func(out, in []float64) {
		copy(out, in)
		if x.hold != nil {
			x.hold(index, out)
		}
	}}
	return x.unary(func(a node) (node, error) { return gorgonia.ApplyOp(op, a) }, a)
}

// max returns the greater of a and b, with a's gradient if they are equal.
func (x *expression) max(a, b node) node { return x.choose(x.atMost(b, a), a, b) }

// min returns the lesser of a and b, with a's gradient if they are equal.
func (x *expression) min(a, b node) node { return x.choose(x.atMost(a, b), a, b) }

// clip bounds a. The gradient passes if a is within the bounds, ends included.
func (x *expression) clip(a node, low, high float64) node {
	lo, hi := x.scalar(low), x.scalar(high)
	a = x.choose(x.atMost(a, hi), a, hi)
	return x.choose(x.atMost(a, lo), lo, a)
}
