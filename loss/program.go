package loss

import (
	"fmt"
	"math/bits"
	"sync"

	"gorgonia.org/gorgonia"
)

// building serializes the building of graphs. Gorgonia shares constants among all graphs and writes
// their cached hashes when it builds one.
var building sync.Mutex

// program is an objective for a maximum number of tokens, built, differentiated and
// compiled once, because that takes longer than a run.
type program struct {
	x    *expression
	vm   gorgonia.VM
	read [3]gorgonia.Value // results of the last run: gradient, loss, and loss without the divergence
}

// compile returns a program for size tokens.
func (o *Objective) compile(size int) (*program, error) {
	building.Lock()
	defer building.Unlock()
	x := newExpression(size)
	policy, losses, pgs := o.build(x)
	total := x.unary(func(a node) (node, error) { return gorgonia.Sum(a) }, losses)
	if x.err != nil {
		return nil, fmt.Errorf("build loss: %w", x.err)
	}
	grad, err := gorgonia.Grad(total, policy)
	if err != nil {
		return nil, fmt.Errorf("differentiate loss: %w", err)
	}
	p := &program{x: x}
	for i, n := range []node{grad[0], losses, pgs} {
		gorgonia.Read(n, &p.read[i])
	}
	p.vm = gorgonia.NewTapeMachine(x.graph)
	return p, nil
}

// run returns d Σ loss / d policy, the loss, and the loss without the divergence, one
// entry per token of v. p owns the memory and reuses it in the next run. Entries of the
// graph's vectors beyond v's tokens are 0, so they change nothing.
func (p *program) run(v *Vars) (out [3][]float64, err error) {
	p.x.lengths = v.Lengths
	for _, in := range p.x.inputs {
		values := in.source(v)
		for i, f := range values {
			in.values[i] = float64(f)
		}
		clear(in.values[len(values):])
	}
	if err := p.vm.RunAll(); err != nil {
		return out, fmt.Errorf("run loss: %w", err)
	}
	p.vm.Reset() // drops intermediate values
	for i, value := range p.read {
		f, ok := value.Data().([]float64)
		if !ok || len(f) != p.x.size {
			return out, fmt.Errorf("read loss: type is %T of shape %v, expected %d float64 values", value.Data(),
				value.Shape(), p.x.size)
		}
		out[i] = f[:len(v.Policy)]
	}
	return out, nil
}

// programs holds idle programs of an objective by size. Each belongs to one caller between take and
// give. mu guards idle.
type programs struct {
	mu   sync.Mutex
	idle map[int][]*program
}

// take returns a program for n tokens. Return it with give. Sizes are powers of two,
// so that there are few.
func (o *Objective) take(n int) (*program, error) {
	size := 1 << bits.Len(uint(n-1))
	if p := o.programs.take(size); p != nil {
		return p, nil
	}
	return o.compile(size)
}

// take returns an idle program, or nil if there is none.
func (p *programs) take(size int) *program {
	p.mu.Lock()
	defer p.mu.Unlock()
	idle := p.idle[size]
	if len(idle) == 0 {
		return nil
	}
	p.idle[size] = idle[:len(idle)-1]
	return idle[len(idle)-1]
}

// give returns a program that take returned, for later calls.
func (o *Objective) give(p *program) {
	o.programs.mu.Lock()
	defer o.programs.mu.Unlock()
	o.programs.idle[p.x.size] = append(o.programs.idle[p.x.size], p)
}
