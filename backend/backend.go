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

	// Publish makes a snapshot of the policy for the instances and keeps it as the version with this
	// number. It is valid until the nth Publish after it, where n is the number of versions kept, at
	// least model.MinVersions.
	Publish(ctx context.Context, version int64) (inference.Weights, error)

	// LeafRows returns attention.LeafRows, or 0 if gradients are not summed leaf by leaf.
	LeafRows(prompt int) int
	// Lanes returns how many micro-batches can be computed at the same time.
	Lanes() int
	// MicroBatchRows returns the maximum number of rows of a micro-batch that fits in memory, or 0
	// while all have fit. Pass also takes larger ones, but is slower with them.
	MicroBatchRows() int
	// Pass computes the outputs of all roles for a micro-batch, calls derive with them and
	// accumulates the resulting gradients. sampler is the version that sampled the micro-batch, one of
	// those kept, or 0 if none did. Pass may return before it calls derive; a later Pass, Poll, Flush
	// or Step then calls it, on its caller's goroutine. The layout must not change before Flush
	// returns. An error may come from derive for an earlier micro-batch.
	Pass(ctx context.Context, l *attention.Layout, sampler int64, derive Derive) error
	// Ready returns a channel that receives a value when Poll has work to do. It is nil if Pass
	// always calls derive itself.
	Ready() <-chan struct{}
	// Poll does all work that can be done without waiting. If a rank has failed, it also waits until
	// the rank is replaced.
	Poll(ctx context.Context) error
	// Idle reports whether all micro-batches are finished.
	Idle() bool
	// Flush waits until all micro-batches are finished.
	Flush(ctx context.Context) error
	// Discard drops the micro-batches in flight and all gradients.
	Discard()
	// Step updates the policy with the gradients and clears them. It returns the norm of the
	// scaled gradients before clipping. If a gradient is not finite, Step only clears the
	// gradients, and the error wraps optim.ErrNonFinite.
	Step(ctx context.Context, u Update) (norm float64, err error)
	// LinearSums returns the linear sums of the gradients of the last Step, or nil if the models compute none.
	LinearSums() *LinearSums
	// CheckFinite returns an error that wraps model.ErrNotFinite if a weight of the policy is
	// not finite.
	CheckFinite() error

	// Score returns the log-probabilities of a layout's targets under the policy.
	Score(ctx context.Context, l *attention.Layout) ([]float32, error)
	// Recompute returns the log-probabilities of a layout's targets under a published version that is
	// kept, bit for bit as an exact instance records them.
	Recompute(ctx context.Context, l *attention.Layout, version int64) ([]float32, error)

	// Capture copies the models' part of a checkpoint, which holds the given number of completed steps, and
	// returns a function that writes the copy to an existing folder. Training may continue before and while
	// write runs on another goroutine. write must return before the next Capture. A caller that waits for it
	// uses While.
	Capture(ctx context.Context, steps int) (write func(dir string) error, err error)
	// Restore loads what Capture's function wrote after the given numbers of steps and updates.
	// Call it before any training: the models must hold the run's starting weights.
	Restore(ctx context.Context, dir string, steps, updates int) error
	// Close frees everything. No instance may be reading published weights.
	Close()
}

// Swapper is implemented by Models that can free device memory for instances.
type Swapper interface {
	// SwapOut frees the device memory of all that only training needs and keeps the values
	// elsewhere. Call it after Publish. Until SwapIn, only Capture, Discard and Close may be called.
	// If the device uses host memory, SwapOut and SwapIn do nothing.
	SwapOut(ctx context.Context) error
	// SwapIn reverts SwapOut, bit for bit. If SwapOut or SwapIn fails, no value is lost, and the
	// caller can call SwapIn again.
	SwapIn(ctx context.Context) error
}

// Serial implements the methods of Models that concern micro-batches in flight, for models
// whose Pass returns when its micro-batch is finished.
type Serial struct{ Numerics npu.Numerics }

// LeafRows returns attention.LeafRows.
func (s Serial) LeafRows(prompt int) int { return attention.LeafRows(s.Numerics, prompt) }

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

// Derive returns the derivatives of a micro-batch's loss with respect to out.Values of each role that is
// trained.
type Derive func(out Outputs) (gradients Values, err error)

// LinearSums are random linear sums of the gradients of an update, modulo 2^64 (see tensor.Param.LinearSum). Each list
// has a sum for each tensor, in the order of model.Config.Params.
type LinearSums struct {
	Passes [][]uint64 // of the gradients of each micro-batch, in the order of Pass
	Total  []uint64   // of the sums of gradients with which the update was made
}

// Update is an optimizer step.
type Update struct {
	Number int     // from 1; skipped updates do not count
	Scale  float64 // factor for the gradients, which are sums
	LR     float64 // learning rate
	Clip   float64 // maximum norm of the scaled gradients; 0 for none
}
