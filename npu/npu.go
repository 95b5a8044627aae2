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
//   - A leaf is a range of rows. Kernels that compute the gradient of a weight
//     compute a float32 value from zero for each leaf and add it to a 64-bit
//     fixed-point sum (see Sums). Integer addition is associative, so a sum does
//     not depend on the order of the leaves.
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

// Int64s returns the memory of b as 64-bit integers if the host can address it, else nil.
func (b Buffer) Int64s() []int64 {
	if b.host == nil {
		return nil
	}
	return unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(b.host))), b.n/2)
}

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

// Sums holds the 64-bit fixed-point sums of a tensor's gradient, in the layout of the
// tensor's values: two float32 slots of the buffer a sum. Addition wraps.
type Sums struct {
	Buffer
	Mark Buffer // a word that is not 0 once a leaf's value was out of range (see FixedPoint)
}

// SumsLen returns the length of a buffer for NewSums that holds n sums and their mark.
func SumsLen(n int) int { return 2 * (n + 1) }

// NewSums divides a buffer into sums and, after them, their mark.
func NewSums(b Buffer) Sums {
	return Sums{Buffer: b.Slice(0, b.n-2), Mark: b.Slice(b.n-2, b.n)}
}

// Len returns the number of sums.
func (s Sums) Len() int { return s.n / 2 }

// Slice returns sums lo to hi, hi excluded, which share the mark.
func (s Sums) Slice(lo, hi int) Sums { return Sums{Buffer: s.Buffer.Slice(2*lo, 2*hi), Mark: s.Mark} }

// MatrixSums are the sums of a matrix [Rows, Cols], in the device's layout of that
// matrix: Sums.Len is Device.MatrixLen(Rows, Cols).
type MatrixSums struct {
	Sums
	Rows, Cols int
}

// FixedPoint is a 64-bit fixed-point format. A value v is added as v·Scale, rounded
// once to the nearest integer, ties to even. A product whose magnitude is above Limit,
// or that is NaN, is not added but marks the tensor. Scale is a power of two; Limit
// times the number of leaves is at most 2^62.
type FixedPoint struct {
	Scale, Limit float32
}

// Leaves cuts rows into leaves.
type Leaves struct {
	FixedPoint
	Ends []int32 // row after each leaf, ascending; the last one is the number of rows
}

// Rows returns the number of rows.
func (l *Leaves) Rows() int {
	if len(l.Ends) == 0 {
		return 0
	}
	return int(l.Ends[len(l.Ends)-1])
}

// Product is the gradient DY [T, W.Rows] of x·Wᵀ, a term of LinearBackwardInput.
// Block is the number of rows of W that it contributes at a time.
type Product struct {
	DY    Buffer
	W     Matrix
	Block int
}

// Wide is a sum of squares as a 192-bit unsigned integer, least significant word first.
type Wide [3]uint64

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
// Shapes: T rows (tokens), row-major. All values are float32, apart from the sums of gradients.
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
	// EmbedBackward adds, for each leaf and each token id in it, the sum of the rows
	// dy[t] with that id, t ascending, to row id of dTable.
	EmbedBackward(dTable MatrixSums, dy Buffer, ids []int32, l *Leaves)

	// Linear computes y = x wᵀ + bias: x [T, Cols], y [T, Rows], bias [Rows] or none.
	// Each y is a chain over Cols that starts from bias, from 0, or, with add (which
	// takes no bias), from the y already there.
	Linear(y, x Buffer, w Matrix, bias Buffer, t int, add bool)
	// LinearBackwardInput computes dx [T, Cols] = Σ dy w over products with the same Cols.
	// Each dx is one chain that starts from 0 or, with add, from the dx already there. The
	// chain takes rows [0, Block) of the first product's weight, rows [0, Block) of the
	// second's and so on, then the next Block rows of each. All products have the same number
	// of blocks; a last block may be shorter.
	LinearBackwardInput(dx Buffer, products []Product, t int, add bool)
	// LinearBackwardWeight adds each leaf's dyᵀ x to dw and its Σ dy to dBias. Both are
	// chains over the leaf's rows, ascending, that start from 0. dBias may be none.
	LinearBackwardWeight(dw MatrixSums, dBias Sums, dy, x Buffer, l *Leaves)
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
	// RMSNormBackward writes dx, or adds to it with add, for l.Rows() rows of heads vectors
	// of len(weight) values. It adds each leaf's gradient to dWeight: for each head a chain
	// over the leaf's rows, ascending, that starts from 0; then the sum of the heads'
	// chains, heads ascending. x is the input of the forward pass. dx and dy may be the same
	// if add is false.
	RMSNormBackward(dx Buffer, dWeight Sums, dy, x, weight Buffer, heads int, eps float32, add bool, l *Leaves)

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
	// SoftmaxMax computes the maximum of each of n rows of logits [N, V] · invTemp.
	SoftmaxMax(max, logits Buffer, n int, invTemp float32)
	// SoftmaxFold computes the partial sums of the folds over the vocabulary. logits [N, V]
	// are columns first to first+V of the whole vocabulary; first is a multiple of
	// MatrixBlock. With d = max(logit·invTemp - max, -104), folds [N, 2, 16] are the partial
	// sums of exp(d) and, by fused multiply-adds, of exp(d)·d. They start from 0 if first is
	// 0 and otherwise from the folds already there. If targets[i] is one of the columns,
	// scores[i] becomes its logit · invTemp.
	SoftmaxFold(folds, scores, max, logits Buffer, targets []int32, first int, invTemp float32)
	// SoftmaxFinish adds up the partial sums z of exp(d) and u of exp(d)·d and writes, for
	// each of n rows, logp = (score - max) - log z, entropy = log z - u/z, and stats [N, 2]:
	// max and z.
	SoftmaxFinish(logp, entropy, stats, folds, scores, max Buffer, n int)
	// SoftmaxBackward turns logits, which are the columns from first on, into their
	// gradient, given that of logp and the stats of SoftmaxFinish.
	SoftmaxBackward(logits, dLogp, stats Buffer, targets []int32, first int, invTemp float32)
	// Sample draws a token for each row of logits [N, vocab]. It reports the token's
	// log-probability under softmax(logits / Temperature), with the bits that the softmax
	// kernels give for invTemp = 1/Temperature (1 if Temperature is 0). Top-k, then top-p,
	// then min-p restrict the draw but not the reported log-probability. ids and logp
	// have N entries.
	Sample(ids []int32, logp []float32, logits Buffer, vocab int, params []SampleParams)
}

// UpdateKernels serve the optimizer.
type UpdateKernels interface {
	// AdamW updates w, m and v from a gradient, elementwise. The gradient is
	// float32(float64(g)) · p.GradScale.
	AdamW(w Buffer, g Sums, m, v Buffer, p AdamWParams)
	// SumSquares returns the sum of squares of x: folds of 4,096 values each,
	// accumulated in float64 in ascending order.
	SumSquares(x Buffer) float64
	// SumSquaresExact returns the exact sum of squares of float32(float64(g)). ok is false
	// if a leaf's value was out of range.
	SumSquaresExact(g Sums) (sum Wide, ok bool)
}
