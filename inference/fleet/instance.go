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
	asking chan struct{} // a semaphore of size 1, full while a call asks for a pulse

	// Guarded by fleet.mu; the fields above do not change.
	work       context.Context         // parent of its calls; ends with ctx or when the instance is silent
	cancelWork context.CancelCauseFunc // ends work
	trial      *inference.Request      // to be answered before it serves again; nil unless it was silent
	pulse      string                  // last pulse reported
	asked      time.Time               // when it was last asked for its pulse
	quietSince time.Time               // since then it has shown no sign of work; zero until it is asked
	idleSince  time.Time               // since then each response showed no work; zero if the last one did
}

// leave cancels the instance's calls and publishes.
func (i *instance) leave() {
	i.cancel(fmt.Errorf("instance %s removed: %w", i.ID(), inference.ErrClosed))
}

// probed reports whether the instance can be probed. One that cannot be probed is in this process.
func (i *instance) probed() bool {
	_, ok := i.Instance.(inference.Prober)
	return ok
}

// silence ends the calls of i with cause and sets the trial, a request like req for one token. The
// fleet is locked.
func (i *instance) silence(req inference.Request, cause error) {
	i.cancelWork(cause)
	i.idleSince = time.Time{}
	i.work, i.cancelWork = context.WithCancelCause(i.ctx)
	i.trial = &inference.Request{PromptIDs: req.PromptIDs, N: 1, Seed: req.Seed, Sampling: req.Sampling}
	i.trial.Sampling.MaxTokens = 1
}
