package model

import (
	"github.com/easyrl/easyrl/model/carry"
	"github.com/easyrl/easyrl/npu"
)

// mostLogits is the number of logits held at a time, unless minRows rows need more.
const (
	mostLogits = 8 << 20
	minRows    = 12
)

// head computes log-probabilities over the vocabulary and their gradient, a part of the
// logits at a time: all logits of a micro-batch take more memory than the rest of the pass.
// forward cuts the rows into chunks, backward the vocabulary into blocks. The cuts change no
// bits. The tape owns its buffers.
type head struct {
	dev    npu.Device
	first  int          // token of the weight's first row
	carry  *carry.Carry // between the ranks that divide the vocabulary; nil for one
	vocab  int          // tokens of the largest part of the vocabulary
	logits npu.Buffer   // [chunk, V] or [N, block]
	max    npu.Buffer   // [chunk]
	folds  npu.Buffer   // [chunk, 2, 16], then scores [chunk]
}

// newHead returns a head on a device.
func newHead(dev npu.Device) *head { return &head{dev: dev} }

// divide makes the weights of forward and backward a part of the vocabulary, from token first on.
// The ranks of c have the other parts, in order.
func (h *head) divide(c *carry.Carry, first int) { h.carry, h.first = c, first }

// logitsLen returns the length of the logits buffer for n rows.
func logitsLen(n, vocab int) int {
	return min(n*vocab, max(mostLogits, minRows*vocab, npu.MatrixBlock*n))
}

// chunkRows returns the number of rows of a chunk.
func chunkRows(n, vocab int) int {
	rows := logitsLen(n, vocab) / vocab
	if rows < n {
		rows = rows / minRows * minRows
	}
	return rows
}

// carve takes the buffers for up to n rows. Ranks that divide a vocabulary pass the largest part.
func (h *head) carve(n, vocab int, take func(int) npu.Buffer) {
	rows := chunkRows(n, vocab)
	h.vocab = vocab
	h.logits, h.max, h.folds = take(logitsLen(n, vocab)), take(rows), take(rows*33)
}

// forward computes the log-probability of each target [n], the entropy of its
// distribution [n] and the stats of npu.Device.SoftmaxFinish [n, 2] from x [n, D].
func (h *head) forward(logp, entropy, stats, x npu.Buffer, w npu.Matrix, targets npu.Ints, invTemp float32) {
	n := targets.Len()
	chunk := min(n, h.max.Len())
	for lo := 0; lo < n; lo += chunk {
		hi := min(n, lo+chunk)
		rows := hi - lo
		logits, most, folds, scores := h.logits.Slice(0, rows*w.Rows), h.max.Slice(0, rows), h.folds.Slice(0, rows*32),
			h.folds.Slice(rows*32, rows*33)
		h.dev.Linear(logits, x.Slice(lo*w.Cols, hi*w.Cols), w, npu.Buffer{}, rows, false)
		h.dev.SoftmaxMax(most, logits, rows, invTemp)
		fold := func() { h.dev.SoftmaxFold(folds, scores, most, logits, targets.Slice(lo, hi), h.first, invTemp) }
		if h.carry == nil {
			fold()
		} else {
			h.carry.Max(most)
			h.carry.Along(h.folds.Slice(0, rows*33), fold)
		}
		h.dev.SoftmaxFinish(logp.Slice(lo, hi), entropy.Slice(lo, hi), stats.Slice(2*lo, 2*hi), folds,
			scores, most, rows)
	}
}

// backward writes the gradient of x and adds that of w to g, given the gradient of logp
// and the other operands of the last call of forward. l holds the leaves of x's rows. backward
// overwrites the logits.
func (h *head) backward(dx npu.Buffer, g npu.MatrixSums, dLogp, stats, x npu.Buffer, w npu.Matrix, targets npu.Ints,
	invTemp float32, l *npu.Leaves) {
	n := targets.Len()
	block, kept := w.Rows, n <= h.max.Len() // whether logits are those of all rows
	if n*block > h.logits.Len() {
		block = h.logits.Len() / n / npu.MatrixBlock * npu.MatrixBlock
	}
	blocks := func(add bool) {
		for first := 0; first < w.Rows; first += block {
			last := min(w.Rows, first+block)
			part, logits := matrixRows(h.dev, w, first, last), h.logits.Slice(0, n*(last-first))
			if !kept {
				h.dev.Linear(logits, x, part, npu.Buffer{}, n, false)
			}
			h.dev.SoftmaxBackward(logits, dLogp, stats, targets, h.first+first, invTemp)
			h.dev.LinearBackwardInput(dx, []npu.Product{{DY: logits, W: part, Block: part.Rows}}, n, add || first > 0)
			h.dev.LinearBackwardWeight(sumsRows(h.dev, g, first, last), npu.Sums{}, logits, x, l)
		}
	}
	switch {
	case h.carry == nil:
		blocks(false)
	case n*h.vocab > h.logits.Len():
		h.carry.Along(dx, func() { blocks(h.first > 0) })
	default:
		h.divided(dx, g, dLogp, stats, x, w, targets, invTemp, l, kept)
	}
}

// divided is backward for a part of the vocabulary whose logits fit. The next rank continues the
// gradient of x while this one computes that of w.
func (h *head) divided(dx npu.Buffer, g npu.MatrixSums, dLogp, stats, x npu.Buffer, w npu.Matrix, targets npu.Ints,
	invTemp float32, l *npu.Leaves, kept bool) {
	n := targets.Len()
	logits := h.logits.Slice(0, n*w.Rows)
	if !kept {
		h.dev.Linear(logits, x, w, npu.Buffer{}, n, false)
	}
	h.dev.SoftmaxBackward(logits, dLogp, stats, targets, h.first, invTemp)
	h.carry.Rows(dx, npu.Buffer{}, n, w.Cols, func(lo, hi int, add bool) {
		dy := logits.Slice(lo*w.Rows, hi*w.Rows)
		h.dev.LinearBackwardInput(dx.Slice(lo*w.Cols, hi*w.Cols),
			[]npu.Product{{DY: dy, W: w, Block: w.Rows}}, hi-lo, add)
	})
	h.dev.LinearBackwardWeight(g, npu.Sums{}, logits, x, l)
}

// matrixRows returns rows [lo, hi) of m. lo is a multiple of npu.MatrixBlock.
func matrixRows(dev npu.Device, m npu.Matrix, lo, hi int) npu.Matrix {
	at, n := rowsOf(dev, m.Cols, lo, hi)
	return npu.Matrix{Buffer: m.Slice(at, at+n), Rows: hi - lo, Cols: m.Cols}
}

// sumsRows returns rows [lo, hi) of m. lo is a multiple of npu.MatrixBlock.
func sumsRows(dev npu.Device, m npu.MatrixSums, lo, hi int) npu.MatrixSums {
	at, n := rowsOf(dev, m.Cols, lo, hi)
	return npu.MatrixSums{Sums: m.Slice(at, at+n), Rows: hi - lo, Cols: m.Cols}
}

// rowsOf returns where rows [lo, hi) of a matrix start and their number of values.
func rowsOf(dev npu.Device, cols, lo, hi int) (at, n int) {
	if lo > 0 {
		at = dev.MatrixLen(lo, cols)
	}
	return at, dev.MatrixLen(hi-lo, cols)
}
