// Package backend defines what a trainer needs of the models that it trains. Package tri_model
// implements it with easyrl's own kernels.
package backend

import (
	"context"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/report/trace"
)

// Models holds policy, old policy and reference, with the policy's gradients and optimizer
// state. Only one goroutine may use it at a time.
type Models interface {
	// SetTrack sets the row of the trace that records passes. By default nothing is recorded.
	SetTrack(track trace.Track)
	// MaxPositions returns the maximum length of a sequence.
	MaxPositions() int
	// FLOPs returns the floating-point operations of the policy's forward and backward pass.
	FLOPs(l *attention.Layout) float64
	// Allocated returns the device memory held, in bytes, by purpose.
	Allocated() [npu.NumPurposes]int64

	// Publish freezes the policy as a version for the instances. It becomes the old policy of
	// the step that they sample with it. The result is valid until the second Publish after it.
	Publish(ctx context.Context, version int64) (inference.Weights, error)

	// Lanes returns the number of micro-batches that are computed at the same time.
	Lanes() int
	// Pass computes the log-probabilities of a micro-batch, calls derive with them, and adds the
	// gradients that follow. It may return before it calls derive; then a later Pass, Poll or
	// Flush does, on its caller's goroutine. The layout must not change until then. An error may
	// be derive's for an earlier micro-batch.
	Pass(ctx context.Context, l *attention.Layout, derive Derive) error
	// Ready receives a value when Poll has something to do. It is nil if Pass always calls
	// derive.
	Ready() <-chan struct{}
	// Poll does what can be done without waiting.
	Poll(ctx context.Context) error
	// Idle reports whether no micro-batch is in flight.
	Idle() bool
	// Flush finishes all micro-batches.
	Flush(ctx context.Context) error
	// Discard forgets the micro-batches in flight and all gradients.
	Discard()
	// Step updates the policy from the gradients and clears them. It returns the norm of the
	// scaled gradients before clipping. If a gradient is not finite, Step changes nothing else,
	// and the error wraps optim.ErrNonFinite.
	Step(ctx context.Context, u Update) (norm float64, err error)
	// CheckFinite returns an error that wraps model.ErrNotFinite if a weight of the policy is
	// not finite.
	CheckFinite() error

	// Score returns the policy's log-probabilities of a layout's targets.
	Score(ctx context.Context, l *attention.Layout) ([]float32, error)
	// Recompute returns them under the last published version, as an exact instance records
	// them.
	Recompute(ctx context.Context, l *attention.Layout) ([]float32, error)

	// Capture copies what a checkpoint holds of the models and returns a function that writes
	// it to an existing folder. Training may continue meanwhile.
	Capture(ctx context.Context) (write func(dir string) error, err error)
	// Restore loads what Capture's function wrote after this many steps and updates. The models
	// hold the run's starting weights and reference.
	Restore(ctx context.Context, dir string, steps, updates int) error
	// Close frees everything. No instance may be reading published weights.
	Close()
}

// Serial provides methods of Models that compute one micro-batch at a time.
type Serial struct{}

// Lanes returns 1.
func (Serial) Lanes() int { return 1 }

// Ready returns nil: Pass finishes its micro-batch.
func (Serial) Ready() <-chan struct{} { return nil }

// Poll does nothing.
func (Serial) Poll(context.Context) error { return nil }

// Idle returns true.
func (Serial) Idle() bool { return true }

// Flush does nothing.
func (Serial) Flush(context.Context) error { return nil }

// Logprobs holds the three models' log-probabilities of a layout's targets, in the order of
// the targets. Slices may share memory.
type Logprobs struct {
	Policy     []float32
	Old        []float32 // nil if those that the sampler recorded take their place
	Reference  []float32 // nil without a reference
	Recomputed []float32 // under the last published version, which sampled the rollouts; nil if no pass computed it
	Entropy    []float32 // of the policy's distribution at each target
}

// Derive returns the loss's derivative by the policy's log-probabilities of a micro-batch.
type Derive func(lp Logprobs) ([]float32, error)

// Update is an optimizer step.
type Update struct {
	Number int     // from 1, not counting updates that changed nothing
	Scale  float64 // of the gradients, which are sums
	LR     float64
	Clip   float64 // maximum norm of the scaled gradients; 0 for none
}
