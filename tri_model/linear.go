package trimodel

import (
	"errors"

	"github.com/easyrl/easyrl/npu"
)

// linear holds the linear sums of a role's gradients (see backend.LinearSums), or those of a rank's part of them.
type linear struct {
	key    uint64     // of the current step
	before []uint64   // linear sum of the sums of gradients before the next pass, by parameter; nil if none are wanted
	layers []uint64   // of the gradients of layers in the pass that is running, if layers share memory
	passes [][]uint64 // of each pass since the last update
}

// reset forgets all passes, because the sums of gradients are zero.
func (l *linear) reset() {
	clear(l.before)
	clear(l.layers)
	l.passes = nil
}

// openLinear makes t compute linear sums.
func (t *Trained) openLinear() {
	t.linear.before = make([]uint64, len(t.Weights.Params))
	if take := t.take; take != nil {
		t.linear.layers = make([]uint64, len(t.Weights.Params))
		t.take = func(layer int) {
			t.addLayer(layer)
			take(layer)
		}
	}
}

// addLayer adds the linear sums of a layer's gradients, which were zero before the pass.
func (t *Trained) addLayer(layer int) {
	if t.dev.Sync() != nil {
		return // the call that waits for the pass returns the error
	}
	for i := range t.Weights.Params {
		if t.Weights.Params[i].Layer == layer {
			t.linear.layers[i] = t.linearSum(i)
		}
	}
}

// linearSum returns the linear sum of the gradients of parameter i.
func (t *Trained) linearSum(i int) uint64 {
	return t.Weights.Params[i].LinearSum(t.linear.key, t.Gradients.Params[i].Int64s(), npu.Threads(t.dev))
}

// addPass waits for a backward pass and records the linear sums of what it has added to the gradients.
func (t *Trained) addPass() error {
	if err := t.dev.Sync(); err != nil {
		return err
	}
	l := &t.linear
	added := make([]uint64, len(l.before))
	for i := range added {
		if l.layers != nil && t.Weights.Params[i].Layer >= 0 {
			added[i] = l.layers[i]
			continue
		}
		sum := t.linearSum(i)
		added[i], l.before[i] = sum-l.before[i], sum
	}
	clear(l.layers)
	l.passes = append(l.passes, added)
	return nil
}

// LinearPasses returns the linear sums of each pass since the last update, by parameter. ok is false if none are
// computed.
func (s *Set) LinearPasses() (passes [][]uint64, ok bool) {
	return s.Policy.linear.passes, s.cfg.LinearSums
}

// LinearTotal returns the linear sums of those pieces of the gradients that counts selects, by parameter of the
// weights. The sums of gradients must be those of all ranks.
func (t *Trained) LinearTotal(counts func(piece int) bool) []uint64 {
	total := make([]uint64, len(t.Weights.Params))
	for i, p := range t.Params() {
		if counts(i) {
			piece := &t.Pieces[i]
			total[piece.Of] += piece.LinearSum(t.linear.key, p.G.Int64s(), npu.Threads(t.dev))
		}
	}
	return total
}

// checkLinear returns an error if the host cannot read a device's memory.
func checkLinear(dev npu.Device) error {
	if dev.Space() != npu.Host {
		return errors.New("linear sums of gradients need a device of host memory")
	}
	return nil
}
