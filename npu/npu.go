// Package npu is the device layer: memory and the closed set of kernels that a
// transformer needs, the same on CPU, CUDA and Ascend.
//
// # Fixed order
//
// The order in which a kernel reduces depends only on the position of the terms. It
// does not depend on the number of rows in a call, on how work is cut into blocks, on
// the number of threads or on the instruction set. For that reason the
// log-probability of a sampled token and the one that the trainer recomputes have the
// same bits. The order is part of each kernel's contract:
//
//   - A chain is acc = fma(a_k, b_k, acc) over k ascending, in float32.
//     Matrix products and attention's scores, sums and weighted values are
//     chains. A product that adds to its output starts its chains from the
//     value in the output, so accumulating over several calls gives the bits
//     of one long call.
//   - A fold sums n terms as sixteen partial sums. Term j goes to partial sum
//     j mod 16 in ascending order. Then partial sum i+s is added to partial sum
//     i for s = 8, 4, 2, 1. RMS norms, softmax over the vocabulary and sums of
//     squares are folds.
//
// exp and log are the package's own (see csrc/easyrl_math.h). They are equal to the
// last bit on every device that claims exactness.
package npu

import "unsafe"

// PageSize is the number of positions in a page of the key-value cache.
const PageSize = 16

// Purpose names the use of an allocation, for memory reports.
type Purpose int

// The purposes of device memory.
const (
	Weights Purpose = iota
	Gradients
	Optimizer
	Activations
	KV
	NumPurposes
)

func (p Purpose) String() string {
	return [...]string{"weights", "gradients", "optimizer", "activations", "kv"}[p]
}

// MatrixBlock is the number of rows that a device may lay out together. For every k,
// a matrix is laid out as its first MatrixBlock·k rows followed by the rest.
const MatrixBlock = 32

// Buffer is a span of float32 values in a device's memory. It is a small value.
// Slices of a buffer share its memory, and only a buffer returned by Alloc may be
// freed. The zero Buffer means "none" for a kernel's optional argument.
type Buffer struct {
	addr uintptr
	n    int
	host []float32
}

// HostBuffer wraps memory that kernels of a host device may use. The slice must stay
// alive. For a device behind the C contract it must be outside Go's heap.
func HostBuffer(mem []float32) Buffer {
	if len(mem) == 0 {
		return Buffer{}
	}
	return Buffer{addr: uintptr(unsafe.Pointer(&mem[0])), n: len(mem), host: mem}
}

// DeviceBuffer returns a buffer of n values at a device address that the host cannot
// read.
func DeviceBuffer(addr uintptr, n int) Buffer { return Buffer{addr: addr, n: n} }

// Len returns the number of values in b.
func (b Buffer) Len() int { return b.n }

// IsNil reports whether b is the zero Buffer.
func (b Buffer) IsNil() bool { return b.n == 0 }

// Addr returns the device address of the first value of b.
func (b Buffer) Addr() uintptr { return b.addr }

// Slice returns values lo to hi of b, hi excluded.
func (b Buffer) Slice(lo, hi int) Buffer {
	if lo < 0 || hi < lo || hi > b.n {
		panic("npu: slice out of range")
	}
	if lo == hi {
		return Buffer{}
	}
	s := Buffer{addr: b.addr + uintptr(lo)*4, n: hi - lo}
	if b.host != nil {
		s.host = b.host[lo:hi:hi]
	}
	return s
}

// Float32s returns the memory of b if the host can address it, else nil. Use
// Device.Download for the latter.
func (b Buffer) Float32s() []float32 { return b.host }

// Matrix is a weight of shape [Rows, Cols] (out features, in features) in the
// device's own layout, in blocks of MatrixBlock rows. Its buffer has
// Device.MatrixLen(Rows, Cols) values. The layout's padding is zero and kernels keep
// it zero. A matrix's gradient and optimizer moments have the same layout. If the
// host can address the memory, a block is [Cols][MatrixBlock]: for each column, the
// values of the block's rows in order.
type Matrix struct {
	Buffer
	Rows, Cols int
}

// Heads is the shape of an attention. Queries are [T, Q, Dim], keys and values [T,
// KV, Dim]. Query head h attends to key-value head h / (Q / KV).
type Heads struct {
	Q, KV, Dim int
}

// Segment is a run of rows whose positions continue its parent's. A row attends to
// all rows of its ancestors and, causally, to the rows of its own segment. Parents
// precede their children. Parent is -1 for a root.
type Segment struct {
	Start, Len, Parent int32
}

// SampleParams sets how one row's next token is drawn.
type SampleParams struct {
	Temperature float32 // 0 takes the likeliest token; ties take the lowest id
	TopP        float32 // 1 keeps all
	MinP        float32 // 0 keeps all
	TopK        int32   // 0 keeps all
	Uniform     float32 // the random draw, in [0, 1)
}

// AdamWParams are the scalars of one AdamW update (Loshchilov and Hutter 2019,
// algorithm 2).
type AdamWParams struct {
	LR, Beta1, Beta2, Eps, WeightDecay float32
	GradScale                          float32 // multiplies the gradient first
	Step                               int     // 1 for the first update
}

// Device is memory and kernels. Kernels run in the order of the calls. A device
// records its first failure, which Sync returns, so that a layer reads like the
// paper. Shapes that do not fit are a programmer's error and panic. A device is not
// safe for concurrent use.
//
// Shapes: T rows (tokens), row-major. All values are float32.
type Device interface {
	Memory
	MatrixKernels
	RowKernels
	AttentionKernels
	VocabKernels
	UpdateKernels

	// Name returns the device's kind and instruction set, such as "cpu/avx512".
	Name() string
	// Threads returns the maximum number of threads that kernels use.
	Threads() int
	// Limit sets the number of threads for kernels from now on, clamped to [1,
	// Threads()]. Any goroutine may call it, also while a kernel runs. An accelerator
	// ignores it.
	Limit(threads int)
	// Sync waits for the kernels called so far and returns the first failure since
	// the last Sync.
	Sync() error
	// Close frees the device and everything allocated on it.
	Close() error
}

// Memory allocates and copies buffers.
type Memory interface {
	// Alloc returns n zeroed values.
	Alloc(n int, purpose Purpose) (Buffer, error)
	// Free frees a buffer that Alloc returned.
	Free(b Buffer)
	// Allocated returns the number of bytes allocated now, by purpose.
	Allocated() [NumPurposes]int64

	// Upload copies host values to dst; Download copies src to the host. Lengths must
	// match.
	Upload(dst Buffer, src []float32)
	Download(dst []float32, src Buffer)
	Copy(dst, src Buffer)
	Zero(b Buffer)
}

// MatrixKernels lay out, look up and multiply matrices.
type MatrixKernels interface {
	// MatrixLen returns the number of values of a matrix [rows, cols] in the device's
	// layout.
	MatrixLen(rows, cols int) int
	// PackMatrix writes row-major host values [Rows, Cols] to m. UnpackMatrix reads
	// them back.
	PackMatrix(m Matrix, src []float32)
	UnpackMatrix(dst []float32, m Matrix)

	// Embed computes y[t] = table[ids[t]]; y [T, Cols].
	Embed(y Buffer, table Matrix, ids []int32)
	// EmbedBackward computes dTable[ids[t]] += dy[t], t ascending.
	EmbedBackward(dTable Matrix, dy Buffer, ids []int32)

	// Linear computes y = x wᵀ + bias: x [T, Cols], y [T, Rows], bias [Rows] or none.
	// Each y is a chain over Cols that starts from bias, from 0, or, with add (which
	// takes no bias), from the y already there.
	Linear(y, x Buffer, w Matrix, bias Buffer, t int, add bool)
	// LinearBackwardInput computes dx = dy w. Each dx is a chain over Rows that
	// starts from 0 or, with add, from the dx already there.
	LinearBackwardInput(dx, dy Buffer, w Matrix, t int, add bool)
	// LinearBackwardWeight computes dw += dyᵀ x and dBias += Σ dy. Both are chains
	// over t ascending that start from the values already there. dBias may be none.
	LinearBackwardWeight(dw Matrix, dBias, dy, x Buffer, t int)
}

// RowKernels work row by row or value by value.
type RowKernels interface {
	// Add computes y += x.
	Add(y, x Buffer)
	// GatherRows computes y[i] = x[rows[i]], for rows of cols values.
	GatherRows(y, x Buffer, rows []int32, cols int)
	// ScatterAddRows computes y[rows[i]] += x[i], i ascending.
	ScatterAddRows(y, x Buffer, rows []int32, cols int)

	// RMSNorm computes y = x · rsqrt(mean(x²) + eps) · weight for each of t rows of
	// len(weight) values. The mean is a fold. y and x may be the same.
	RMSNorm(y, x, weight Buffer, t int, eps float32)
	// RMSNormBackward writes dx, or adds to it with add, and adds to dWeight, rows
	// ascending. x is the input of the forward pass. dx and dy may be the same if add
	// is false.
	RMSNormBackward(dx, dWeight, dy, x, weight Buffer, t int, eps float32, add bool)

	// Rope rotates x [T, heads, dim] in place by each row's position. It rotates the
	// pairs (i, i+dim/2), the convention of Hugging Face's Llama and Qwen. Row p of
	// table is the cos of dim/2 angles, then their sin. inverse rotates back, which
	// is also the backward pass.
	Rope(x, table Buffer, positions []int32, heads, dim int, inverse bool)

	// SwiGLU computes y = silu(gate) · up, elementwise.
	SwiGLU(y, gate, up Buffer)
	// SwiGLUBackward writes dGate and dUp, which may share memory with gate and up.
	SwiGLUBackward(dGate, dUp, dy, gate, up Buffer)
}

// AttentionKernels compute attention over a pass's own keys or over a cache.
type AttentionKernels interface {
	// Attention computes softmax(q kᵀ / sqrt(Dim)) v over a forest of segments: out
	// and q [T, Q, Dim], k and v [T, KV, Dim]. The order for each row and head, over
	// keys in ascending position: scores are chains over Dim, scaled after the chain;
	// then the maximum; then p = exp(score - max), with their sum and the weighted
	// values as chains; then the product with 1/sum. stats [T, Q, 2] keeps max and
	// 1/sum for the backward pass; it may be none.
	Attention(out, stats, q, k, v Buffer, segments []Segment, h Heads)
	// AttentionBackward writes dq, dk and dv; it does not add to them. dOut and dq
	// may share memory.
	AttentionBackward(dq, dk, dv, dOut, out, stats, q, k, v Buffer, segments []Segment, h Heads)

	// CacheWrite writes rows of k and v to the pages of a layer's cache. Row t goes
	// to slot slots[t] = page·PageSize + offset. cacheK and cacheV each have
	// pages·PageSize·KV·Dim values in the device's own layout, page after page, so
	// that Copy can copy a page.
	CacheWrite(cacheK, cacheV, k, v Buffer, slots []int32, h Heads)
	// AttentionCached computes Attention for one query row per sequence. Row t
	// attends to the first lens[t] positions of the pages tables[t·stride:]. The
	// order and the bits are those of Attention.
	AttentionCached(out, q, cacheK, cacheV Buffer, tables []int32, stride int, lens []int32, h Heads)
}

// VocabKernels work on distributions over the vocabulary.
type VocabKernels interface {
	// LogProb computes, for each row i of hidden [N, Cols], the log-probability of
	// targets[i] under softmax(hidden wᵀ · invTemp) and the entropy of that
	// distribution; logp and entropy [N]. It never stores all logits. Sums over the
	// vocabulary are folds.
	LogProb(logp, entropy, hidden Buffer, w Matrix, targets []int32, invTemp float32)
	// LogProbBackward writes dHidden [N, Cols] and adds to dW, rows ascending, given
	// dLogp [N].
	LogProbBackward(dHidden Buffer, dW Matrix, dLogp, hidden Buffer, w Matrix, targets []int32, invTemp float32)
	// Sample draws a token for each row of logits [N, vocab]. It reports the token's
	// log-probability under softmax(logits / Temperature), with the bits that LogProb
	// gives for invTemp = 1/Temperature (1 if Temperature is 0). Top-k, then top-p,
	// then min-p restrict the draw but not the reported log-probability. ids and logp
	// have N entries.
	Sample(ids []int32, logp []float32, logits Buffer, vocab int, params []SampleParams)
}

// UpdateKernels serve the optimizer.
type UpdateKernels interface {
	// AdamW updates w, m and v from the gradient g, elementwise.
	AdamW(w, g, m, v Buffer, p AdamWParams)
	// SumSquares returns the sum of squares of x: folds of 4,096 values each,
	// accumulated in float64 in ascending order.
	SumSquares(x Buffer) float64
}
