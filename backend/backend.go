// Package backend defines what a trainer needs from the models that it trains. Package
// tri_model implements it with easyrl's own kernels, package torch/models with PyTorch ranks.
package backend

import (
	"context"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/report/trace"
)

// Models holds the weights of all roles, with the gradients and optimizer state of those that are
// trained. Only one goroutine may use it at a time.
type Models interface {
	// SetTrack sets the trace row on which passes are recorded. By default nothing is recorded.
	SetTrack(track trace.Track)
	// MaxPositions returns the maximum length of a sequence.
	MaxPositions() int
	// FLOPs returns the number of floating-point operations of the policy's forward and backward
	// pass over a layout.
	FLOPs(l *attention.Layout) float64
	// Allocated returns the device memory held, in bytes, by purpose.
	Allocated() [npu.NumPurposes]int64

	// Publish makes a snapshot of the policy for the instances. The snapshot is also the old
	// policy of the step that they sample with it. It is valid until a later Publish overwrites it: the
	// nth if n versions are kept, the second at the earliest (model.MinVersions).
	Publish(ctx context.Context, version int64) (inference.Weights, error)

	// LeafRows returns the maximum number of rows of a leaf that holds a prompt of this many
	// tokens and responses to it, or 0 if gradients are not summed leaf by leaf.
	LeafRows(prompt int) int
	// Lanes returns how many micro-batches can be computed at the same time.
	Lanes() int
	// MicroBatchRows returns the maximum number of rows of a micro-batch that fits in memory, or 0
	// if each one so far did. Pass also takes larger ones, but is slower with them.
	MicroBatchRows() int
	// Pass computes the outputs of all roles for a micro-batch, calls derive with them and
	// accumulates the resulting gradients. sampler is the version that sampled the micro-batch, one of
	// those kept, or 0 if none did. It may return before derive is called; a later Pass,
	// Poll or Flush then calls derive on its caller's goroutine. The layout must not change until
	// the micro-batch is finished, which Flush waits for. An error may come from derive for an
	// earlier micro-batch.
	Pass(ctx context.Context, l *attention.Layout, sampler int64, derive Derive) error
	// Ready returns a channel that receives a value when Poll has work to do. It is nil if Pass
	// always calls derive itself.
	Ready() <-chan struct{}
	// Poll does all work that can be done without waiting.
	Poll(ctx context.Context) error
	// Idle reports whether no micro-batch is in flight.
	Idle() bool
	// Flush waits until all micro-batches are finished.
	Flush(ctx context.Context) error
	// Discard drops the micro-batches in flight and all gradients.
	Discard()
	// Step updates the policy with the gradients and clears them. It returns the norm of the
	// scaled gradients before clipping. If a gradient is not finite, Step only clears the
	// gradients, and the error wraps optim.ErrNonFinite.
	Step(ctx context.Context, u Update) (norm float64, err error)
	// CheckFinite returns an error that wraps model.ErrNotFinite if a weight of the policy is
	// not finite.
	CheckFinite() error

	// Score returns the log-probabilities of a layout's targets under the policy.
	Score(ctx context.Context, l *attention.Layout) ([]float32, error)
	// Recompute returns the log-probabilities of a layout's targets under a published version that is
	// kept, bit for bit as an exact instance records them.
	Recompute(ctx context.Context, l *attention.Layout, version int64) ([]float32, error)

	// Capture copies the models' part of a checkpoint and returns a function that writes the
	// copy to an existing folder. Training may continue before and while write runs.
	Capture(ctx context.Context) (write func(dir string) error, err error)
	// Restore loads what Capture's function wrote after the given numbers of steps and updates.
	// The models must hold the run's starting weights and reference.
	Restore(ctx context.Context, dir string, steps, updates int) error
	// Close frees everything. No instance may be reading published weights.
	Close()
}

// Swapper is implemented by Models that can give the device's memory to instances.
type Swapper interface {
	// SwapOut frees the device memory of all that only training needs and keeps the values
	// elsewhere. Call it after Publish. Until SwapIn, only Capture, Discard and Close may be called.
	// If the device uses host memory, SwapOut and SwapIn do nothing.
	SwapOut(ctx context.Context) error
	// SwapIn reverts SwapOut, bit for bit. If SwapOut or SwapIn fails, no value is lost and SwapIn
	// can be called again.
	SwapIn(ctx context.Context) error
}

// Serial implements the methods of Models that concern micro-batches in flight, for models
// whose Pass computes one micro-batch and returns when it is finished.
type Serial struct{}

// LeafRows returns attention.LeafRows.
func (Serial) LeafRows(prompt int) int { return attention.LeafRows(prompt) }

// Lanes returns 1.
func (Serial) Lanes() int { return 1 }

// MicroBatchRows returns 0.
func (Serial) MicroBatchRows() int { return 0 }

// Ready returns nil, since Pass always calls derive itself.
func (Serial) Ready() <-chan struct{} { return nil }

// Poll does nothing.
func (Serial) Poll(context.Context) error { return nil }

// Idle returns true.
func (Serial) Idle() bool { return true }

// Flush does nothing.
func (Serial) Flush(context.Context) error { return nil }

// Derive returns the derivative of a micro-batch's loss with respect to the outputs of each role that
// is trained, one value for each target.
type Derive func(out Outputs) (gradients Values, err error)

// Update is an optimizer step.
type Update struct {
	Number int     // counts from 1, without updates that changed nothing
	Scale  float64 // factor for the gradients, which are sums
	LR     float64 // learning rate
	Clip   float64 // maximum norm of the scaled gradients; 0 for none
}
