package loss

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// node is a vector with one float64 for each token, or a scalar.
type node = *gorgonia.Node

// expression builds one graph of element-wise operations. It remembers the
// first failure, which evaluate returns, so that an objective reads like its
// formula.
//
// A vector that several terms depend on receives the sum of their gradients;
// written with two terms at most, as here, that sum has one order only and the
// gradient is the same bits in every run.
type expression struct {
	graph   *gorgonia.ExprGraph
	lengths []int // of the responses
	err     error
	stops   int // how many there are
	// hold, where it is not nil, sees the value of each stop when it is computed,
	// and may change it.
	hold func(stop int, value []float64)
}

func newExpression(lengths []int) *expression {
	return &expression{graph: gorgonia.NewGraph(), lengths: lengths}
}

// vector is a named input.
func (x *expression) vector(name string, values []float32) node {
	wide := make([]float64, len(values))
	for i, v := range values {
		wide[i] = float64(v)
	}
	return gorgonia.NewVector(x.graph, tensor.Float64, gorgonia.WithName(name), gorgonia.WithShape(len(wide)),
		gorgonia.WithValue(tensor.New(tensor.WithShape(len(wide)), tensor.WithBacking(wide))))
}

func (x *expression) scalar(v float64) node { return gorgonia.NewConstant(v) }

func (x *expression) unary(f func(node) (node, error), a node) node {
	if x.err != nil {
		return nil
	}
	r, err := f(a)
	x.err = err
	return r
}

func (x *expression) binary(f func(a, b node) (node, error), a, b node) node {
	if x.err != nil {
		return nil
	}
	r, err := f(a, b)
	x.err = err
	return r
}

func (x *expression) exp(a node) node    { return x.unary(gorgonia.Exp, a) }
func (x *expression) neg(a node) node    { return x.unary(gorgonia.Neg, a) }
func (x *expression) square(a node) node { return x.unary(gorgonia.Square, a) }
func (x *expression) add(a, b node) node { return x.binary(gorgonia.Add, a, b) }
func (x *expression) sub(a, b node) node { return x.binary(gorgonia.Sub, a, b) }
func (x *expression) mul(a, b node) node { return x.binary(gorgonia.HadamardProd, a, b) }

// atMost is 1 where a <= b and 0 elsewhere; no gradient passes.
func (x *expression) atMost(a, b node) node {
	return x.binary(func(a, b node) (node, error) { return gorgonia.Lte(a, b, true) }, a, b)
}

// choose is a where the mask is 1 and b where it is 0. Both must be finite.
func (x *expression) choose(mask, a, b node) node {
	return x.add(x.mul(mask, a), x.mul(x.sub(x.scalar(1), mask), b))
}

// mean is a's mean over each response, at each of its tokens.
func (x *expression) mean(a node) node {
	op := &vectorOp{name: "mean", diff: true, apply: func(out, in []float64) { means(out, in, x.lengths) }}
	return x.unary(func(a node) (node, error) { return gorgonia.ApplyOp(op, a) }, a)
}

// stop is a, and no gradient passes: sg[a] in papers.
func (x *expression) stop(a node) node {
	at := x.stops
	x.stops++
	op := &vectorOp{name: "stop", apply: func(out, in []float64) {
		copy(out, in)
		if x.hold != nil {
			x.hold(at, out)
		}
	}}
	return x.unary(func(a node) (node, error) { return gorgonia.ApplyOp(op, a) }, a)
}

// max is the greater of a and b, and a's gradient where they are equal.
func (x *expression) max(a, b node) node { return x.choose(x.atMost(b, a), a, b) }

// min is the lesser of a and b, and a's gradient where they are equal.
func (x *expression) min(a, b node) node { return x.choose(x.atMost(a, b), a, b) }

// clip bounds a; the gradient passes where a is within the bounds, ends included.
func (x *expression) clip(a node, low, high float64) node {
	lo, hi := x.scalar(low), x.scalar(high)
	a = x.choose(x.atMost(a, hi), a, hi)
	return x.choose(x.atMost(a, lo), lo, a)
}

// evaluate runs the graph once, and releases it: the gradient of Σ each with
// respect to input, and the values of the vectors in reads.
func (x *expression) evaluate(each, input node, reads ...node) (grad []float64, values [][]float64, err error) {
	read := make([]gorgonia.Value, len(reads))
	if x.err == nil {
		for i, n := range reads {
			gorgonia.Read(n, &read[i])
		}
	}
	total := x.unary(func(a node) (node, error) { return gorgonia.Sum(a) }, each)
	if x.err != nil {
		return nil, nil, fmt.Errorf("build loss: %w", x.err)
	}
	if _, err := gorgonia.Grad(total, input); err != nil {
		return nil, nil, fmt.Errorf("differentiate loss: %w", err)
	}
	vm := gorgonia.NewTapeMachine(x.graph, gorgonia.BindDualValues(input))
	defer func() {
		if e := vm.Close(); e != nil && err == nil {
			err = fmt.Errorf("close loss: %w", e)
		}
	}()
	if err := vm.RunAll(); err != nil {
		return nil, nil, fmt.Errorf("run loss: %w", err)
	}
	g, err := input.Grad()
	if err != nil {
		return nil, nil, fmt.Errorf("read the loss's gradient: %w", err)
	}
	if grad, err = floats(g, input.Shape().TotalSize()); err != nil {
		return nil, nil, fmt.Errorf("read the loss's gradient: %w", err)
	}
	for _, v := range read {
		f, err := floats(v, input.Shape().TotalSize())
		if err != nil {
			return nil, nil, fmt.Errorf("read the loss: %w", err)
		}
		values = append(values, f)
	}
	return grad, values, nil
}

// floats copies n values out of memory that the machine owns.
func floats(v gorgonia.Value, n int) ([]float64, error) {
	f, ok := v.Data().([]float64)
	if !ok || len(f) != n {
		return nil, fmt.Errorf("found %T of shape %v, expected %d float64 values", v.Data(), v.Shape(), n)
	}
	return append([]float64(nil), f...), nil
}
