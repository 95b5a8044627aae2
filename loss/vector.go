package loss

import (
	"fmt"
	"hash"
	"hash/fnv"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// vectorOp is an operation of Gorgonia from a vector to one of the same length. If diff is set, the
// operation is a symmetric linear map, so that its derivative is the operation itself. name
// identifies the operation within a graph.
type vectorOp struct {
	name  string
	apply func(out, in []float64)
	diff  bool // gradients pass
}

// responseMeans sets out to the mean over each response, at each of its tokens. It adds in
// the order of the response's tokens, whatever other responses there are. out may be in.
func responseMeans(out, in []float64, lengths []int) {
	start := 0
	for _, n := range lengths {
		sum := 0.0
		for _, v := range in[start : start+n] {
			sum += v
		}
		for i := start; i < start+n; i++ {
			out[i] = sum / float64(n)
		}
		start += n
	}
}

func (o *vectorOp) Do(inputs ...gorgonia.Value) (gorgonia.Value, error) {
	in, ok := inputs[0].Data().([]float64)
	if !ok {
		return nil, fmt.Errorf("%s: type is %T, expected []float64", o.name, inputs[0].Data())
	}
	out := make([]float64, len(in))
	o.apply(out, in)
	return tensor.New(tensor.WithShape(len(out)), tensor.WithBacking(out)), nil
}

func (o *vectorOp) DiffWRT(int) []bool { return []bool{o.diff} }

func (o *vectorOp) SymDiff(_ gorgonia.Nodes, _, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	n, err := gorgonia.ApplyOp(o, grad)
	return gorgonia.Nodes{n}, err
}

// expOp is the exponential of each value, which is its own derivative.
type expOp struct{ vectorOp }

func (o *expOp) DiffWRT(int) []bool { return []bool{true} }

func (o *expOp) SymDiff(_ gorgonia.Nodes, output, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	n, err := gorgonia.HadamardProd(output, grad)
	return gorgonia.Nodes{n}, err
}

func (o *vectorOp) InferShape(shapes ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, ok := shapes[0].(tensor.Shape)
	if !ok || s.Dims() != 1 {
		return nil, fmt.Errorf("%s: shape is %v, expected a vector", o.name, shapes[0])
	}
	return s.Clone(), nil
}

func (o *vectorOp) Type() hm.Type {
	a := hm.TypeVariable('a')
	return hm.NewFnType(a, a)
}

func (o *vectorOp) Hashcode() uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}

func (o *vectorOp) Arity() int            { return 1 }
func (o *vectorOp) ReturnsPtr() bool      { return false }
func (o *vectorOp) CallsExtern() bool     { return false }
func (o *vectorOp) OverwritesInput() int  { return -1 }
func (o *vectorOp) WriteHash(h hash.Hash) { fmt.Fprint(h, o.name) }
func (o *vectorOp) String() string        { return o.name }
