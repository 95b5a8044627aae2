package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/fleet/state"
)

// instance is a member of the fleet.
type instance struct {
	inference.Instance
	fleet  *Fleet
	handle state.Handle
	ctx    context.Context // ends when the instance leaves
	cancel context.CancelCauseFunc
	turn   chan struct{} // holds a token while the instance is asked for its pulse

	// Guarded by fleet.mu; the fields above do not change.
	work       context.Context // of its calls; ends with ctx or when the instance is silent
	hush       context.CancelCauseFunc
	trial      *inference.Request // to be answered before it serves again; nil unless it was silent
	pulse      string             // as last reported
	asked      time.Time          // when it was last asked for its pulse
	quietSince time.Time          // when it was first asked after its last sign of work; zero if it has not been
	idleSince  time.Time          // since when it has responded each time and shown no work; zero if it does not
}

// leave cancels the instance's work for the fleet.
func (i *instance) leave() {
	i.cancel(fmt.Errorf("instance %s removed: %w", i.ID(), inference.ErrClosed))
}

// probed reports whether the instance can be probed. One that cannot shares the process
// with the fleet.
func (i *instance) probed() bool {
	_, ok := i.Instance.(inference.Prober)
	return ok
}

// silence ends the calls of i with cause. Before i serves again it must answer a request
// like req. The fleet is locked.
func (i *instance) silence(req inference.Request, cause error) {
	i.hush(cause)
	i.idleSince = time.Time{}
	i.work, i.hush = context.WithCancelCause(i.ctx)
	i.trial = &inference.Request{PromptIDs: req.PromptIDs, N: 1, Seed: req.Seed, Sampling: req.Sampling}
	i.trial.Sampling.MaxTokens = 1
}
