// Package model is a decoder-only transformer with its backward pass written by hand.
//
// Shapes: T rows (tokens of a layout or of a decode step), D hidden size, H query
// heads and K key-value heads of width d, F feed-forward size, V vocabulary.
// Everything is float32 and row-major, except matrices, which use the device's
// layout, and gradients, which are 64-bit sums (see npu.Sums). Forward passes overwrite
// their outputs. Backward passes add each leaf's gradient to the sums.
//
// Training ([Tape]) and sampling ([Runner]) use the same blocks and the same kernels,
// and every kernel computes a row independently of the other rows. A token's
// log-probability therefore has the same bits in sampling and in training.
//
// # Order of sums
//
// Each reduction over columns, keys or the vocabulary is a chain or a fold of package npu.
// If tensor ranks divide its terms, package carry continues the same chains from rank to
// rank. A weight's gradient is summed leaf by leaf into 64-bit integers, whose order does not
// matter. Nothing here adds float32 values in an order that depends on a batch, a rank or a
// thread.
//
// # Ownership
//
// A Weights, Gradients, Tape, Runner and cache.Cache owns one or a few allocations of the
// device that it was made with, and its Free or Close returns them. All other buffers are
// slices of these: a block's activations are carved from the tape's memory at each pass, and
// a layer's matrices are slices of the arena. A Snapshot owns nothing; its weights must not
// change while it is in use. Weights.Through shares memory with its origin and is not freed.
//
// # Waits
//
// Load, Run and Backward of a Tape and Prefill of a Runner only queue work: their results, and
// failures of kernels, are those of the next Wait or Sync. A Runner's Step, Sample, LogProbs and
// Logits wait once. Weights.Write and Fill may return before a device has the values; those
// that read values wait. A queue belongs to one goroutine, so a Tape, a Runner or a Weights is
// used by one goroutine at a time. To read weights from another goroutine, fork the device and
// read Through the fork.
package model

import "github.com/easyrl/easyrl/model/arch"

// Config is the shape of a decoder, or of a rank's part of one.
type Config = arch.Config
