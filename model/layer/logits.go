package layer

import (
	"github.com/easyrl/easyrl/model/carry"
	"github.com/easyrl/easyrl/npu"
)

const (
	maxLogits = 8 << 20 // logits in memory at a time, unless a block of the vocabulary needs more
	minRows   = 12      // a chunk has a multiple of these rows, because kernels are slow on few rows
)

// Logits computes log-probabilities over the vocabulary and their gradient, a part of the
// logits at a time, because all logits of a micro-batch take more memory than the rest of the pass.
// Forward cuts the rows into chunks, Backward the vocabulary into blocks. The cuts change no
// bits. Tensor ranks may divide the vocabulary.
type Logits struct {
	dev    npu.Device
	first  int          // token of the weight's first row
	carry  *carry.Carry // connection to the ranks that divide the vocabulary; nil if none do
	vocab  int          // number of tokens in the largest part of the vocabulary
	logits npu.Buffer   // [chunk, V] or [N, block]
	grads  npu.Buffer   // gradient of logits; none if it replaces them
	max    npu.Buffer   // [chunk]
	sums   npu.Buffer   // [chunk, npu.SoftmaxSums]
}

// logitsLen returns the length of the logits buffer for n rows.
func logitsLen(n, vocab int) int {
	return min(n*vocab, max(maxLogits, npu.MatrixBlock*n))
}

// chunkRows returns the number of rows of a chunk of n rows: n, or a multiple of minRows.
func chunkRows(n, vocab int) int {
	rows := logitsLen(n, vocab) / vocab
	if rows < n {
		rows = rows / minRows * minRows
	}
	return rows
}

// Carve takes the buffers for up to n rows.
func (h *Logits) Carve(n int, room Room) {
	vocab := h.vocab
	rows := chunkRows(n, vocab)
	h.logits = room.Take(npu.Float32, logitsLen(n, vocab))
	if room.Backward && room.DType != npu.Float32 {
		h.grads = room.Activations(logitsLen(n, vocab))
	}
	h.max = room.Take(npu.Float32, rows)
	h.sums = room.Take(npu.Int64, rows*npu.SoftmaxSums)
}

// Forward computes the log-probability of each target [n], the entropy of its
// distribution [n] and the stats of npu.Device.SoftmaxFinish [n, 2] from x [n, D].
func (h *Logits) Forward(logp, entropy, stats, x npu.Buffer, w npu.Matrix, targets npu.Ints, invTemp float32) {
	n := targets.Len()
	chunk := min(n, h.max.Len())
	for lo := 0; lo < n; lo += chunk {
		hi := min(n, lo+chunk)
		rows := hi - lo
		logits := h.logits.Slice(0, rows*w.Rows)
		maxima := h.max.Slice(0, rows)
		sums := h.sums.Slice(0, rows*npu.SoftmaxSums)
		h.dev.Linear(logits, x.Slice(lo*w.Cols, hi*w.Cols), w, npu.Buffer{}, rows, npu.Fresh)
		h.dev.SoftmaxMax(maxima, logits, rows, invTemp)
		if h.carry != nil {
			h.carry.Max(maxima)
		}
		h.dev.SoftmaxSum(sums, maxima, logits, targets.Slice(lo, hi), h.first, invTemp, false)
		if h.carry != nil {
			h.carry.Sum(sums)
		}
		h.dev.SoftmaxFinish(logp.Slice(lo, hi), entropy.Slice(lo, hi), stats.Slice(2*lo, 2*hi), sums, maxima, rows)
	}
}

// Backward writes the gradient of x to dx and adds that of w to g. dLogp is the gradient of logp;
// the other operands are those of the last call of Forward. l holds the leaves of x's rows.
// Backward may overwrite the logits. It recomputes them first, unless Forward kept those of all rows.
func (h *Logits) Backward(dx npu.Buffer, g npu.MatrixSums, dLogp, stats, x npu.Buffer, w npu.Matrix, targets npu.Ints,
	invTemp float32, l *npu.Leaves) {
	n := targets.Len()
	kept := n <= h.max.Len() // Forward had one chunk, so h.logits has the logits of all rows
	block := w.Rows          // rows of w whose logits fit in h.logits
	if n*block > h.logits.Len() {
		block = h.logits.Len() / n / npu.MatrixBlock * npu.MatrixBlock
	}
	byBlock := func(add bool) { // add continues the values in dx
		for first := 0; first < w.Rows; first += block {
			last := min(w.Rows, first+block)
			part := matrixRows(h.dev, w, first, last)
			logits := h.logits.Slice(0, n*(last-first))
			if !kept {
				h.dev.Linear(logits, x, part, npu.Buffer{}, n, npu.Fresh)
			}
			grads := h.gradient(logits)
			h.dev.SoftmaxBackward(grads, logits, dLogp, stats, targets, h.first+first, invTemp)
			h.dev.LinearBackwardInput(dx, []npu.Product{{DY: grads, W: part, Block: part.Rows}}, n, add || first > 0)
			h.dev.LinearBackwardWeight(sumsRows(h.dev, g, first, last), npu.Sums{}, grads, x, l)
		}
	}
	switch {
	case h.carry == nil:
		byBlock(false)
	case n*h.vocab > h.logits.Len(): // the same case on all ranks, because h.vocab is that of the largest part
		h.carry.Along(dx, func() { byBlock(h.first > 0) })
	default:
		h.backwardDivided(dx, g, dLogp, stats, x, w, targets, invTemp, l, kept)
	}
}

// backwardDivided is Backward for a part of the vocabulary whose logits fit in memory. The next
// rank continues the gradient of x while this one computes that of w.
func (h *Logits) backwardDivided(dx npu.Buffer, g npu.MatrixSums, dLogp, stats, x npu.Buffer, w npu.Matrix,
	targets npu.Ints, invTemp float32, l *npu.Leaves, kept bool) {
	n := targets.Len()
	logits := h.logits.Slice(0, n*w.Rows)
	if !kept {
		h.dev.Linear(logits, x, w, npu.Buffer{}, n, npu.Fresh)
	}
	grads := h.gradient(logits)
	h.dev.SoftmaxBackward(grads, logits, dLogp, stats, targets, h.first, invTemp)
	h.carry.Rows(dx, npu.Buffer{}, n, w.Cols, func(lo, hi int, add bool) {
		dy := grads.Slice(lo*w.Rows, hi*w.Rows)
		h.dev.LinearBackwardInput(dx.Slice(lo*w.Cols, hi*w.Cols),
			[]npu.Product{{DY: dy, W: w, Block: w.Rows}}, hi-lo, add)
	})
	h.dev.LinearBackwardWeight(g, npu.Sums{}, grads, x, l)
}

// gradient returns memory for the gradient of logits.
func (h *Logits) gradient(logits npu.Buffer) npu.Buffer {
	if h.grads.IsNil() {
		return logits
	}
	return h.grads.Slice(0, logits.Len())
}

// matrixRows returns rows [lo, hi) of m. lo is a multiple of npu.MatrixBlock.
func matrixRows(dev npu.Device, m npu.Matrix, lo, hi int) npu.Matrix {
	start, n := rowsOf(dev, m.Cols, lo, hi)
	return npu.Matrix{Buffer: m.Slice(start, start+n), Rows: hi - lo, Cols: m.Cols}
}

// sumsRows returns rows [lo, hi) of m. lo is a multiple of npu.MatrixBlock.
func sumsRows(dev npu.Device, m npu.MatrixSums, lo, hi int) npu.MatrixSums {
	start, n := rowsOf(dev, m.Cols, lo, hi)
	return npu.MatrixSums{Sums: m.Slice(start, start+n), Rows: hi - lo, Cols: m.Cols}
}

// rowsOf returns the index of the first value of rows [lo, hi) of a matrix in the device's layout,
// and their number of values.
func rowsOf(dev npu.Device, cols, lo, hi int) (start, n int) {
	if lo > 0 {
		start = dev.MatrixLen(lo, cols)
	}
	return start, dev.MatrixLen(hi-lo, cols)
}
