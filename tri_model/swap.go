package trimodel

import (
	"context"
	"errors"
	"fmt"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
)

// SwapOut frees the device's memory of what only training needs, after Hold and until SwapIn. The
// moments and the reference move to host memory. The policy equals the held weights, from which
// SwapIn copies it: the allgather-swap of the MindSpeed RL paper. The sums of gradients are zero after
// an update; otherwise SwapOut fails. On a device of host memory it does nothing.
//
// Until SwapIn, a checkpoint can be captured, but no pass can run. After a failure some of the memory
// may be free; no value is lost, and SwapIn gets the memory again.
func (s *Set) SwapOut() error {
	if s.dev.Space() == npu.Host {
		return nil
	}
	if s.added {
		return errors.New("the sums of gradients are not zero, expected those after an update")
	}
	s.freeGradients()
	var same *model.Weights
	if s.fresh {
		same = s.current.Weights()
	}
	if err := s.Policy.Unload(same); err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	for _, part := range s.stored() {
		if err := part.weights.Unload(nil); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return s.dev.Sync() // frees the memory for other queues
}

// SwapIn reverts SwapOut, bit for bit. If it fails, it can be called again.
func (s *Set) SwapIn() error {
	if err := s.Policy.Reload(); err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	for _, part := range s.stored() {
		if err := part.weights.Reload(); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	if s.Gradients != nil {
		return nil
	}
	if err := s.allocateGradients(); err != nil {
		s.freeGradients()
		return err
	}
	return s.dev.Sync()
}

// part is weights that SwapOut moves to host memory.
type part struct {
	name    string
	weights *model.Weights
}

// stored lists the weights that SwapOut moves to host memory. The policy is not among them.
func (s *Set) stored() []part {
	all := []part{{"first moment", s.First}, {"second moment", s.Second}}
	if s.Reference != nil {
		all = append(all, part{"reference", s.Reference})
	}
	return all
}

// freeGradients frees Gradients and Own.
func (s *Set) freeGradients() {
	if s.Gradients != nil {
		s.Gradients.Free()
	}
	s.dev.Free(s.own)
	s.Gradients = nil
	s.own = npu.Buffer{}
	s.Own = nil
}

// SwapOut implements backend.Swapper: it also frees the activations.
func (m *Models) SwapOut(context.Context) error {
	if m.dev.Space() != npu.Host {
		m.tape.Close()
	}
	return m.Set.SwapOut()
}

// SwapIn implements backend.Swapper.
func (m *Models) SwapIn(context.Context) error { return m.Set.SwapIn() }

var _ backend.Swapper = (*Models)(nil)
