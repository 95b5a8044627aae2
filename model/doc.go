// Package model is a decoder-only transformer with its backward pass written by
// hand.
//
// Shapes: T rows (tokens of a layout or of a decode step), D hidden size, H
// query heads and K key-value heads of width d, F feed-forward size, V
// vocabulary. Everything is float32 and row-major but the matrices, which are
// in the device's layout. Forward passes overwrite their outputs; backward
// passes add to gradients, so that they accumulate over micro-batches.
//
// Training ([Tape]) and sampling ([Runner]) go through the same blocks and the
// same kernels, and every kernel's result for a row is independent of the other
// rows. So a token's log-probability has the same bits when it is sampled and
// when it is trained.
package model
