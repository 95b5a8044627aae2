// Package npu is the device layer: memory and the closed set of kernels that a
// transformer needs, the same on CPU, CUDA and Ascend.
//
// # Fixed order
//
// Every kernel reduces in an order that depends on the position of the terms
// alone: never on how many rows a call has, on how work is cut into blocks, on
// the number of threads or on the instruction set. That is what makes the
// log-probability of a sampled token and the one the trainer recomputes the
// same bits. The order is part of each kernel's contract:
//
//   - A chain is acc = fma(a_k, b_k, acc) over k ascending, in float32.
//     Matrix products and attention's scores, sums and weighted values are
//     chains. A product that adds to its output starts its chains from the
//     value found there, so that accumulating over several calls gives the bits
//     of one long call.
//   - A fold sums n terms as sixteen partial sums, term j going to partial sum
//     j mod 16 in ascending order, and then adds partial sum i+s to partial sum
//     i for s = 8, 4, 2, 1. RMS norms, softmax over the vocabulary and sums of
//     squares are folds.
//
// exp and log are the package's own (see csrc/easyrl_math.h), equal to the last
// bit on every device that claims exactness.
package npu

import "unsafe"

// PageSize is the number of positions in a page of the key-value cache.
const PageSize = 16

// Purpose says what an allocation is for, so that memory can report itself.
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

// MatrixBlock is the number of rows that a device may lay out together: a matrix
// is its first MatrixBlock·k rows, whatever k, followed by the rest.
const MatrixBlock = 32

// Buffer is a span of float32 values in a device's memory. It is a small value;
// slices of a buffer share its memory, and only a buffer that Alloc returned
// may be freed. The zero Buffer means "none" where a kernel takes an optional
// argument.
type Buffer struct {
	addr uintptr
	n    int
	host []float32
}

// HostBuffer wraps memory that kernels of a host device may use. The slice must
// stay alive and, for a device behind the C contract, lie outside Go's heap.
func HostBuffer(mem []float32) Buffer {
	if len(mem) == 0 {
		return Buffer{}
	}
	return Buffer{addr: uintptr(unsafe.Pointer(&mem[0])), n: len(mem), host: mem}
}

// DeviceBuffer names n values at a device address that the host cannot read.
func DeviceBuffer(addr uintptr, n int) Buffer { return Buffer{addr: addr, n: n} }

// Len is the number of values in b.
func (b Buffer) Len() int { return b.n }

// IsNil reports whether b is the zero Buffer.
func (b Buffer) IsNil() bool { return b.n == 0 }

// Addr is the device address of b's first value.
func (b Buffer) Addr() uintptr { return b.addr }

// Slice is the part of b from value lo up to, not including, value hi.
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

// Float32s is b's memory where the host can address it, and nil elsewhere: use
// Device.Download there.
func (b Buffer) Float32s() []float32 { return b.host }

// Matrix is a weight of shape [Rows, Cols] (out features, in features) held in
// the device's own layout, in blocks of MatrixBlock rows; its buffer has
// Device.MatrixLen(Rows, Cols) values.
// Padding in the layout is zero and kernels keep it so; a gradient and the
// optimizer's moments of a matrix have the same layout. Where the host can address
// the memory, a block is [Cols][MatrixBlock]: row after row of a column together.
type Matrix struct {
	Buffer
	Rows, Cols int
}

// Heads is the shape of an attention: queries are [T, Q, Dim], keys and values
// [T, KV, Dim]. Query head h attends to key-value head h / (Q / KV).
type Heads struct {
	Q, KV, Dim int
}

// Segment is a run of rows whose positions continue its parent's. A row attends
// to all rows of its ancestors and, causally, to its own segment's. Parents
// come before their children; Parent is -1 at a root.
type Segment struct {
	Start, Len, Parent int32
}

// SampleParams says how one row's next token is drawn.
type SampleParams struct {
	Temperature float32 // 0 takes the likeliest token, the lowest id among equals
	TopP        float32 // 1 keeps all
	MinP        float32 // 0 keeps all
	TopK        int32   // 0 keeps all
	Uniform     float32 // the draw, in [0, 1)
}

// AdamWParams are the scalars of one AdamW update (Loshchilov and Hutter 2019,
// algorithm 2).
type AdamWParams struct {
	LR, Beta1, Beta2, Eps, WeightDecay float32
	GradScale                          float32 // multiplies the gradient first
	Step                               int     // 1 at the first update
}

// Device is memory and kernels. Kernels run in the order they are called; they
// remember the first failure, which Sync returns, so that a layer reads like
// the paper. Shapes that do not fit are a programmer's error and panic. A
// device is used by one goroutine at a time.
//
// Shapes: T rows (tokens), row-major. All values are float32.
type Device interface {
	// Name is the device's kind and instruction set, such as "cpu/avx512".
	Name() string
	// Threads is the number of threads that kernels use at most.
	Threads() int
	// Limit leaves kernels from now on the given number of threads, cut to 1 to
	// Threads(). Any goroutine may call it, also while a kernel runs; an
	// accelerator ignores it.
	Limit(threads int)
	// Alloc returns n zeroed values.
	Alloc(n int, purpose Purpose) (Buffer, error)
	// Free gives back a buffer that Alloc returned.
	Free(b Buffer)
	// Allocated is the number of bytes held now, by purpose.
	Allocated() [NumPurposes]int64
	// Sync waits for the kernels called so far and returns the first failure
	// since the last Sync.
	Sync() error
	// Close frees the device and everything allocated on it.
	Close() error

	// Upload copies host values to dst; Download the other way. Lengths match.
	Upload(dst Buffer, src []float32)
	Download(dst []float32, src Buffer)
	Copy(dst, src Buffer)
	Zero(b Buffer)
	// Add is y += x.
	Add(y, x Buffer)

	// MatrixLen is the number of values that a matrix [rows, cols] takes in the
	// device's layout.
	MatrixLen(rows, cols int) int
	// PackMatrix writes row-major host values [Rows, Cols] into m, and
	// UnpackMatrix reads them back.
	PackMatrix(m Matrix, src []float32)
	UnpackMatrix(dst []float32, m Matrix)

	// Embed is y[t] = table[ids[t]]; y [T, Cols].
	Embed(y Buffer, table Matrix, ids []int32)
	// EmbedBackward is dTable[ids[t]] += dy[t], t ascending.
	EmbedBackward(dTable Matrix, dy Buffer, ids []int32)

	// Linear is y = x wᵀ + bias: x [T, Cols], y [T, Rows], bias [Rows] or none.
	// Each y is a chain over Cols that starts from bias, from 0, or with add
	// (and then without bias) from the y that is there.
	Linear(y, x Buffer, w Matrix, bias Buffer, t int, add bool)
	// LinearBackwardInput is dx = dy w, a chain over Rows that starts from 0 or
	// with add from the dx that is there.
	LinearBackwardInput(dx, dy Buffer, w Matrix, t int, add bool)
	// LinearBackwardWeight is dw += dyᵀ x and dBias += Σ dy, chains over t
	// ascending that start from what is there. dBias may be none.
	LinearBackwardWeight(dw Matrix, dBias, dy, x Buffer, t int)

	// RMSNorm is y = x · rsqrt(mean(x²) + eps) · weight for each of t rows of
	// len(weight) values; the mean is a fold. y and x may be the same.
	RMSNorm(y, x, weight Buffer, t int, eps float32)
	// RMSNormBackward writes dx, or adds to it with add, and adds to dWeight,
	// rows ascending. x is the forward's input. dx and dy may be the same when
	// add is false.
	RMSNormBackward(dx, dWeight, dy, x, weight Buffer, t int, eps float32, add bool)

	// Rope rotates, in place, x [T, heads, dim] by each row's position: pairs
	// (i, i+dim/2), the convention of Hugging Face's Llama and Qwen. Row p of
	// table is cos of dim/2 angles, then their sin. inverse rotates back, which
	// is also the backward pass.
	Rope(x, table Buffer, positions []int32, heads, dim int, inverse bool)

	// SwiGLU is y = silu(gate) · up, elementwise.
	SwiGLU(y, gate, up Buffer)
	// SwiGLUBackward writes dGate and dUp, which may be the same memory as gate
	// and up.
	SwiGLUBackward(dGate, dUp, dy, gate, up Buffer)

	// Attention is softmax(q kᵀ / sqrt(Dim)) v over a forest of segments:
	// out and q [T, Q, Dim], k and v [T, KV, Dim]. For each row and head, over
	// keys in ascending position: scores are chains over Dim, scaled after the
	// chain; then the maximum; then p = exp(score - max), their sum and the
	// weighted values as chains; then the product with 1/sum. stats [T, Q, 2]
	// keeps max and 1/sum for the backward pass; it may be none.
	Attention(out, stats, q, k, v Buffer, segments []Segment, h Heads)
	// AttentionBackward writes dq, dk, dv (not added). dOut and dq may be the
	// same memory.
	AttentionBackward(dq, dk, dv, dOut, out, stats, q, k, v Buffer, segments []Segment, h Heads)

	// CacheWrite puts rows of k and v into the pages of a layer's cache: row t
	// goes to slot slots[t] = page·PageSize + offset. Each of cacheK and cacheV
	// has pages·PageSize·KV·Dim values in a layout of the device's own, page
	// after page, so that a page can be copied with Copy.
	CacheWrite(cacheK, cacheV, k, v Buffer, slots []int32, h Heads)
	// AttentionCached is Attention for one query row a sequence: row t sees the
	// first lens[t] positions of the pages tables[t·stride:]. Same order, same
	// bits as Attention.
	AttentionCached(out, q, cacheK, cacheV Buffer, tables []int32, stride int, lens []int32, h Heads)

	// GatherRows is y[i] = x[rows[i]], rows of cols values.
	GatherRows(y, x Buffer, rows []int32, cols int)
	// ScatterAddRows is y[rows[i]] += x[i], i ascending.
	ScatterAddRows(y, x Buffer, rows []int32, cols int)

	// LogProb is, for each row i of hidden [N, Cols], the log-probability of
	// targets[i] under softmax(hidden wᵀ · invTemp), and the distribution's
	// entropy; logp and entropy [N]. Logits are never stored whole. Sums over
	// the vocabulary are folds.
	LogProb(logp, entropy, hidden Buffer, w Matrix, targets []int32, invTemp float32)
	// LogProbBackward writes dHidden [N, Cols] and adds to dW, rows ascending,
	// given dLogp [N].
	LogProbBackward(dHidden Buffer, dW Matrix, dLogp, hidden Buffer, w Matrix, targets []int32, invTemp float32)
	// Sample draws a token for each row of logits [N, vocab] and reports its
	// log-probability under softmax(logits / Temperature), the bits that
	// LogProb gives with invTemp = 1/Temperature (and 1 where Temperature is
	// 0). Top-k, then top-p, then min-p limit the draw, not the reported
	// log-probability. ids and logp have N entries.
	Sample(ids []int32, logp []float32, logits Buffer, vocab int, params []SampleParams)

	// AdamW updates w, m and v from the gradient g, elementwise.
	AdamW(w, g, m, v Buffer, p AdamWParams)
	// SumSquares is the sum of squares of x: folds of 4,096 values each,
	// accumulated in float64 in ascending order.
	SumSquares(x Buffer) float64
}
