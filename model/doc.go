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
package model

import "github.com/easyrl/easyrl/model/decoder"

// Config is the shape of a decoder, or of a rank's part of one.
type Config = decoder.Config
