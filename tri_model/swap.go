package trimodel

import (
	"context"
	"fmt"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
)

// SwapOut frees device memory that only training needs, until SwapIn (see backend.Swapper). It is the
// allgather-swap of the MindSpeed RL paper. Moments and reference move to host memory. If the policy equals the
// version of the last Hold, SwapOut frees it without a copy, and SwapIn copies that version back; otherwise the
// policy moves to host memory too. SwapOut fails if the sums of gradients are not zero; they are zero after an
// update. If it fails, some of the memory may be free; SwapIn reverts that.
func (s *Set) SwapOut() error {
	if s.dev.Space() == npu.Host {
		return nil
	}
	var equal *model.Weights // weights on the device with the policy's values; nil if there are none
	if s.fresh {
		equal = s.current.Weights()
	}
	if err := s.Policy.unload(equal); err != nil {
		return err
	}
	if s.Reference != nil {
		if err := s.Reference.Unload(nil); err != nil {
			return fmt.Errorf("%s: %w", backend.Reference, err)
		}
	}
	return s.dev.Sync() // frees the memory for other queues
}

// SwapIn reverts SwapOut, bit for bit. If it fails, the caller can call it again.
func (s *Set) SwapIn() error {
	if s.dev.Space() == npu.Host {
		return nil
	}
	if err := s.Policy.reload(); err != nil {
		return err
	}
	if s.Reference != nil {
		if err := s.Reference.Reload(); err != nil {
			return fmt.Errorf("%s: %w", backend.Reference, err)
		}
	}
	return s.dev.Sync()
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
