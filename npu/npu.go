// Package npu is the device layer: memory and the closed set of kernels that a
// transformer needs.
//
// Code above this package uses only a Device, whatever hardware it runs on. npu/cpu is the device
// that every build has; npu/device opens others as shared libraries.
//
// # Numerics
//
// A device computes in one of two numerics. In FP32, all values are float32. In BF16, weights and
// activations are bfloat16; everything else is float32: the residual stream and its gradient, scores and
// their statistics, logits, rotary tables, and, for the update, master weights and moments. Kernels compute
// with float32 values and round a result once, when they write it to a buffer of BFloat16, as bf16.Round
// does: to nearest, ties to even, with magnitudes below 2^-62 as +0.
//
// # Fixed order
//
// The order in which a kernel reduces depends only on the position of the terms. It
// does not depend on the number of rows in a call, on how work is cut into blocks, on
// the number of threads or on the instruction set. For that reason the
// log-probability of a sampled token and the one that the trainer recomputes have the
// same bits. The order is part of each kernel's contract:
//
//   - A chain adds the products a_k·b_k over k ascending to a float32. In FP32 it is acc =
//     fma(a_k, b_k, acc). In BF16 it takes 16 products at a time, as tensor cores do (see
//     bf16.Dot); the last step is filled up with zeros, which change nothing. Matrix products
//     and attention's scores are chains, see also AttentionKernels. A product may
//     continue the chains in its output (see Start), so accumulating over several calls gives
//     the bits of one long call, in BF16 if each call but the last has a multiple of 16 terms.
//   - A leaf is a range of rows. Kernels that compute the gradient of a weight
//     compute a float32 value from zero for each leaf and add it to a 64-bit
//     fixed-point sum (see Sums). Integer addition is associative, so a sum does
//     not depend on the order of the leaves.
//   - A unit is UnitRows rows of a leaf, counted from the leaf's first row; the last
//     unit of a leaf may have fewer. For norms and embeddings, a value is added for
//     each unit instead of each leaf, so that a device can compute units in parallel.
//   - A fold sums n terms as sixteen partial sums. Term j goes to partial sum
//     j mod 16 in ascending order. Then partial sum i+s is added to partial sum
//     i for s = 8, 4, 2, 1. RMS norms and sums of squares are folds.
//   - Sums over the vocabulary are 64-bit integers: terms times 2^44, rounded
//     once to the nearest integer, ties to even. Their order does not matter
//     (see Device.SoftmaxSum).
//
// exp and log are the package's own (see csrc/easyrl_math.h). They are equal to the
// last bit on every device that claims exactness.
package npu

import "fmt"

// SoftmaxSums is the number of sums of a row in Device.SoftmaxSum.
const SoftmaxSums = 4

// MaxVocab is the largest vocabulary: the sums of Device.SoftmaxSum do not overflow.
const MaxVocab = 1 << 18

// PageSize is the number of positions in a page of the key-value cache.
const PageSize = 16

// UnitRows is the number of rows of a unit.
const UnitRows = 256

// Attention sums over tiles of KeyTile positions in splits of KeySplit, and gradients of keys and values over
// parts of PartRows rows. See AttentionKernels.
const (
	KeyTile  = 64
	KeySplit = 512
	PartRows = 1024
)

// Product is the gradient DY [T, W.Rows] of x·Wᵀ, a term of LinearBackwardInput.
// Block is the number of rows of W that it contributes at a time; tensor ranks divide
// products between blocks. In BF16 no step crosses a block: the last step of each block is filled up
// with zeros.
type Product struct {
	DY    Buffer // activations
	W     Matrix
	Block int
}

// Start says how a product treats the values y in its output.
type Start uint8

const (
	// Fresh overwrites y.
	Fresh Start = iota
	// Continue continues chains whose sums so far are y, which are float32.
	Continue
	// Add computes y + product, with y float32. In FP32 it is Continue. In BF16 chains start from 0, and y is
	// added to their sums: a large y would push the lower bits out of a chain.
	Add
)

// Projection is an output Y [T, W.Rows] of NormLinear. Bias may be the zero Buffer.
type Projection struct {
	Y    Buffer
	W    Matrix
	Bias Buffer
}

// Wide is a sum of squares as a 192-bit unsigned integer, least significant word first.
type Wide [3]uint64

// Heads is the shape of an attention. Queries are [T, Q, Dim], keys and values [T,
// KV, Dim]. Query head h attends to key-value head h / (Q / KV).
type Heads struct {
	Q, KV, Dim int
	// Window is the number of positions that a row sees, its own and those before it; 0 means all.
	Window int
}

// AdamWParams are the scalars of one AdamW update (Loshchilov and Hutter 2019,
// algorithm 2).
type AdamWParams struct {
	LR, Beta1, Beta2, Eps, WeightDecay float32
	GradScale                          float32 // multiplies the gradient first
	Step                               int     // 1 for the first update
}

// Update is a weight with its gradient and moments, all in one layout.
type Update struct {
	W     Buffer // float32
	Copy  Buffer // none, or receives W in another type
	G     Sums
	M, V  Buffer
	Decay bool // whether AdamWParams.WeightDecay applies
}

// Squares is the exact sum of squares of a gradient.
type Squares struct {
	Sum Wide
	// Worst is the largest magnitude of the leaf values that were out of range, or 0 if none was.
	// NaN counts as the largest. Sum is undefined unless Worst is 0.
	Worst float32
}

// Info describes a device.
type Info struct {
	Name string // kind and instruction set, such as "cpu/avx512"
	// Exact reports whether kernels reproduce package npu's chains and folds bit for bit.
	Exact    bool
	Graphs   bool // Capture returns a graph
	Numerics Numerics
}

// Arithmetic describes the device's arithmetic, such as "exact, float32".
func (i Info) Arithmetic() string {
	if !i.Exact {
		return "not exact, " + i.Numerics.String()
	}
	return "exact, " + i.Numerics.String()
}

// Numerics is the arithmetic of a device's kernels. See the package documentation.
type Numerics uint8

// The numerics.
const (
	FP32 Numerics = iota
	BF16
)

func (n Numerics) String() string { return [...]string{"float32", "bf16"}[n] }

// ParseNumerics returns the numerics with the given name.
func ParseNumerics(name string) (Numerics, error) {
	for _, n := range []Numerics{FP32, BF16} {
		if n.String() == name {
			return n, nil
		}
	}
	return 0, fmt.Errorf("numerics %q, expected %q or %q", name, FP32, BF16)
}

// Type returns the type of weights and activations.
func (n Numerics) Type() DType {
	if n == BF16 {
		return BFloat16
	}
	return Float32
}

// Event is a point in a queue.
type Event interface {
	// Free releases the event. Earlier calls of Await stay in effect. Any goroutine may call it.
	Free()
}

// Graph is a list of kernel calls that Device.Capture recorded.
type Graph interface {
	// Replay queues the recorded calls again with their original arguments. It returns false,
	// and queues nothing, if a buffer that they use has been freed.
	Replay() bool
	// Free releases the graph once its queued replays have run. Closing the device does too.
	Free()
}

// Device is memory and a queue of kernels.
//
// Order: a call adds a kernel to the queue and may return before the kernel has run; kernels run
// in the order of the calls. A device of host memory may finish each call before it returns.
//
// Waits: Sync, SumPanels, SumSquares, SumSquaresExact and Close wait for the queue. Alloc may
// wait when memory is short, and a transfer when many megabytes are pending. No other call
// waits, so that the host stays ahead of the device.
//
// Arguments: a list, a host slice of Upload and a pointer belong to the caller again when the
// call returns. The memory of a buffer must stay unchanged by the host until the kernel has run;
// only other calls of the queue may write it. The destination of a Download belongs to the
// device until the next wait.
//
// Failures: a device keeps its first failure; Sync and the sums return and clear it. Kernels
// therefore return no error. A call panics if a shape, type or address space does not match, an
// index is out of range, or a buffer has been freed: these are errors of the program, which a
// device that runs kernels later could not report at the call.
//
// Threads: one goroutine at a time uses a device. Only Fork, Event.Free and Cores.Limit may run
// beside it.
//
// Shapes: T rows (tokens), row-major [rows, columns].
//
// Types: weights and activations are of the type of the device's numerics. Parameters named w, weight, table (of
// Embed), bias, q, k, v, out and their gradients, norm, gate, up and dy are weights and activations, and so are x
// and y unless a kernel says otherwise. All other values are float32, apart from the sums of gradients and index
// arrays.
type Device interface {
	Memory
	MatrixKernels
	RowKernels
	AttentionKernels
	VocabKernels
	UpdateKernels

	Info() Info
	// Fork opens another queue on the same memory, for another goroutine. threads is the
	// number of threads of a device of CPU cores, 0 for all. The queue that allocated a buffer
	// frees it; all queues may use it. Queues are not ordered with each other: Sync one, or
	// Await its event, before another uses what it wrote. Any goroutine may call Fork. Close a
	// fork before its origin.
	Fork(threads int) (Device, error)
	// Record returns an event that marks the end of the calls so far, or nil if they have
	// already run.
	Record() (Event, error)
	// Await makes later calls of this queue run after e, an event of another queue on the same
	// memory. The host does not wait, and a failure of the other queue stays there. A nil event
	// does nothing.
	Await(e Event)
	// Capture runs the kernels that record calls, once. On a device with graphs it also returns
	// a graph that replays them; on others the graph is nil. If Capture returns an error, no kernel
	// has run. record panics if it transfers, allocates, frees or waits.
	Capture(record func()) (Graph, error)
	// Sync waits for the queue and returns the first failure since the last Sync.
	Sync() error
	// Close frees the device and everything allocated on it.
	Close() error
}

// Cores is a device whose kernels run on the cores of this machine.
type Cores interface {
	// Threads returns the maximum number of threads that kernels use.
	Threads() int
	// Limit sets the number of threads for kernels from now on, clamped to [1,
	// Threads()]. Any goroutine may call it, also while a kernel runs, but not during or after
	// Close.
	Limit(threads int)
}

// Threads returns the maximum number of threads of dev, 1 if it does not run on cores.
func Threads(dev Device) int {
	if c, ok := dev.(Cores); ok {
		return c.Threads()
	}
	return 1
}

// Memory allocates and copies buffers.
type Memory interface {
	// Space returns the address space of the device's buffers.
	Space() *Space
	// Alloc returns n values, aligned to 64 bytes. They are undefined until written.
	Alloc(dtype DType, n int, purpose Purpose) (Buffer, error)
	// Free frees a buffer that Alloc returned, after the kernels called so far.
	Free(b Buffer)
	// Allocated returns the number of bytes, by purpose, that this queue has allocated and not freed.
	Allocated() [NumPurposes]int64

	// Upload copies host values to dst. src may change when it returns. Download copies src
	// to the host: dst holds the values after the next wait and must not be touched before.
	// Lengths and types must match; Convert changes between types.
	Upload(dst Buffer, src []float32)
	UploadInts(dst Buffer, src []int32)
	Download(dst []float32, src Buffer)
	DownloadInts(dst []int32, src Buffer)
	Copy(dst, src Buffer)
	Zero(b Buffer)
	// Convert copies x to y, of the same length. Each is of type Float32 or of the numerics' type. Values that y's type
	// lacks are rounded.
	Convert(y, x Buffer)
}

// MatrixKernels lay out, look up and multiply matrices.
type MatrixKernels interface {
	// MatrixLen returns the number of values of a matrix [rows, cols] in the device's
	// layout.
	MatrixLen(rows, cols int) int
	// PackMatrix writes row-major host values [Rows, Cols] to m, as Upload does. UnpackMatrix
	// reads them back, as Download does. m is float32.
	PackMatrix(m Matrix, src []float32)
	UnpackMatrix(dst []float32, m Matrix)
	// SumPanels sets sums to the 64-bit XXH3 of each panel of each matrix, in order, as
	// little-endian float32. A panel is a block of MatrixBlock rows in Matrix's host layout,
	// padded with rows of zeros. A matrix with Cols 0 is a vector of Rows values, which is one
	// panel. Matrices are float32. SumPanels waits, and returns what Sync returns.
	SumPanels(sums []uint64, matrices []Matrix) error

	// Embed computes y[t] = table[ids[t]]; y [T, Cols] is float32.
	Embed(y Buffer, table Matrix, ids Ints)
	// EmbedBackward adds, for each list of tokens, the sum of the rows dy[t] of the list, in
	// order, to row id of dTable. dy is float32.
	EmbedBackward(dTable MatrixSums, dy Buffer, tokens *Tokens, format FixedPoint)

	// Linear computes y = x wᵀ + bias: x [T, Cols], y [T, Rows], bias [Rows] or none. y is float32 or an
	// activation. Each y is a chain over Cols. In FP32 it starts from bias if there is one; in BF16 bias is added
	// to the chain. Unless start is Fresh, there is no bias, and y is float32.
	Linear(y, x Buffer, w Matrix, bias Buffer, t int, start Start)
	// LinearBackwardInput computes dx [T, Cols] = Σ dy w over products with the same Cols. dx is float32 or an
	// activation. Each dx is one chain that starts from 0 or, with add, continues the dx already there, which is
	// float32. The
	// chain takes rows [0, Block) of the first product's weight, rows [0, Block) of the
	// second's and so on, then the next Block rows of each. All products have the same number
	// of blocks; a last block may be shorter.
	LinearBackwardInput(dx Buffer, products []Product, t int, add bool)
	// LinearBackwardWeight adds each leaf's dyᵀ x to dw and its Σ dy to dBias. dw are chains over the leaf's
	// rows, ascending, that start from 0; dBias are sums in float32 in the same order, or none.
	LinearBackwardWeight(dw MatrixSums, dBias Sums, dy, x Buffer, l *Leaves)
}

// RowKernels work row by row or value by value.
type RowKernels interface {
	// Add computes y += x, both float32.
	Add(y, x Buffer)
	// GatherRows computes y[i] = x[rows[i]], for rows of cols values of float32.
	GatherRows(y, x Buffer, rows Ints, cols int)
	// ScatterAddRows computes y[rows[i]] += x[i], i ascending, in float32. rows do not descend.
	ScatterAddRows(y, x Buffer, rows Ints, cols int)
	// SetInts sets y[at[i]] = x[i]. y is of type Int32. If an index repeats, its values are equal.
	SetInts(y Buffer, at, x Ints)

	// RMSNorm computes y = x · rsqrt(mean(x²) + eps) · weight for each of t rows of
	// len(weight) values. The mean is a fold. x is float32 or an activation. y and x may be the same.
	RMSNorm(y, x, weight Buffer, t int, eps float32)
	// NormLinear computes the RMSNorm of x and from it each projection, as Linear does without
	// a start. x is float32. norm [T, len(weight)] is scratch.
	NormLinear(outputs []Projection, norm, x, weight Buffer, t int, eps float32)
	// RMSNormBackward writes dx, or adds to it with add, for l.Rows rows of heads vectors
	// of len(weight) values. For each unit and each head it adds a gradient to dWeight, a
	// chain over the unit's rows, ascending, that starts from 0. So the sums do not depend on
	// how heads are divided among calls. x is the input of the forward pass, float32 or activations, and
	// dx is of its type. If add is false, dx and dy may be the same.
	RMSNormBackward(dx Buffer, dWeight Sums, dy, x, weight Buffer, heads int, eps float32, add bool, l *Leaves)

	// Rope rotates x [T, heads, dim] in place by each row's position. It rotates the
	// pairs (i, i+dim/2), the convention of Hugging Face's Llama and Qwen. Row p of
	// table is the cos of dim/2 angles, then their sin. inverse rotates back, which
	// is also the backward pass.
	Rope(x, table Buffer, positions Ints, heads, dim int, inverse bool)

	// SwiGLU computes y = silu(gate) · up, elementwise.
	SwiGLU(y, gate, up Buffer)
	// SwiGLUBackward writes dGate and dUp, which may share memory with gate and up.
	SwiGLUBackward(dGate, dUp, dy, gate, up Buffer)
}

// AttentionKernels compute attention over a pass's own keys or over a cache. The bits of a row are the same in both,
// whatever the layout, the batch and the device.
//
// A row sees the keys on its path, its own included, whose positions are within the window. Forward, with c =
// log2(e)/sqrt(Dim) in float32, a row and query head sum over tiles of KeyTile positions, which are aligned to the
// position in the sequence and ascend (Milakov and Gimelshein 2018, with a maximum that is a whole number, so that
// rescaling is exact):
//
//	s_j = chain of q·k_j over Dim
//	m'  = max(m, round(c·max s_j) + 1), with c·max s_j clamped to ±2^19
//	a   = 2^(m-m')
//	p_j = 2^fma(s_j, c, -m'), rounded to the type of activations, or 0 if the row does not see j
//	l   = fma(l, a, fold of p_j)
//	o   = chain of p_j·v_j over the tile that starts from o·a
//
// Tiles are in splits of KeySplit positions, aligned likewise. A split starts from m = -2^20, l = 0 and o = 0. At its
// end, with n = max(M, m), x = 2^(M-n) and y = 2^(m-n), the sums over splits become M = n, L = fma(l, y, L·x) and O =
// fma(o, y, O·x); they start like those of a split. Then out = O·(1/L) + 0. 2^x is the package's own: in FP32 a
// polynomial of degree 6, and powers below 2^-126 are 0; in BF16 one of degree 3, and powers below 2^-60 are 0. In
// BF16 o's chain takes all KeyTile positions of a tile, with 0 for those that the row does not see. A maximum ignores
// NaN. If c·max s_j is far beyond ±2^19, the row's values are not finite. If q, k or v have values that are not finite,
// the values of their tree or sequence are undefined.
type AttentionKernels interface {
	// Attention computes softmax(q kᵀ / sqrt(Dim)) v over a forest of segments: out and q [T, Q, Dim], k and v [T, KV,
	// Dim]. stats [T, Q, 2] keeps M and 1/L for the backward pass; it may be none.
	Attention(out, stats, q, k, v Buffer, segments Segments, h Heads)
	// AttentionBackward writes dq, dk and dv; it does not add to them. dOut and dq may share memory. For each row and
	// query head:
	//
	//	D    = fold of dOut·out over Dim, by fused multiply-adds
	//	p_j  = 2^fma(s_j, c, -M)·(1/L)
	//	dS_j = p_j·(dOut·v_j - D), where dOut·v_j is a chain over Dim
	//	dq   = (chain of dS_j·k_j over the keys)/sqrt(Dim) + 0
	//
	// A part is PartRows rows of a segment, from its first; the last may be shorter. For each part, dk_j and dv_j are
	// chains of dS_j·q and p_j·dOut from 0 over its rows, ascending, and the query heads of each row. Sums over the
	// parts of a tree, by segment and then ascending, start from 0. dk is divided by sqrt(Dim) at the end. In BF16,
	// dS_j and p_j are rounded to bfloat16 as factors of these chains, and the chain of dq fills up the last step of
	// each segment with zeros.
	AttentionBackward(dq, dk, dv, dOut, out, stats, q, k, v Buffer, segments Segments, h Heads)

	// CacheWrite writes rows of k and v to the pages of a layer's cache. Row t goes to slot
	// slots[t] = page·PageSize + offset; rows for the same slot are equal. cacheK and cacheV each
	// have pages·PageSize·KV·Dim values in the device's own layout, page after page, so that Copy
	// can copy a page.
	CacheWrite(cacheK, cacheV, k, v Buffer, slots Ints, h Heads)
	// AttentionCached computes Attention for query rows of sequences in a cache. Row i attends to the first t.Lens[i]
	// positions of the pages in row t.Rows[i] of the table.
	AttentionCached(out, q, cacheK, cacheV Buffer, t *Tables, h Heads)
}

// VocabKernels work on distributions over the vocabulary.
type VocabKernels interface {
	// SoftmaxMax computes the maximum of each of n rows of logits [N, V] · invTemp.
	SoftmaxMax(max, logits Buffer, n int, invTemp float32)
	// SoftmaxSum sets sums [N, SoftmaxSums], of type Int64, for the columns first to first+V of a
	// vocabulary of at most MaxVocab, whose logits [N, V] are given, or adds to them with add. first is
	// a multiple of MatrixBlock. With d = max(logit·invTemp - max, -104) and e = exp(d), a row's sums
	// are Σ rint(e·2^44), Σ rint(e·d·2^44), the bits of its target's logit·invTemp if the target is
	// one of the columns, and the number of calls that met a value that is not finite. All are integers,
	// so parts of the vocabulary can be added in any order, also those of other ranks.
	SoftmaxSum(sums, max, logits Buffer, targets Ints, first int, invTemp float32, add bool)
	// SoftmaxFinish writes for each of n rows, with z and u the first two sums, as float32, times
	// 2^-44: logp = (score - max) - log z, entropy = log z - u/z, and stats [N, 2]: max and z. Without
	// finite logits they are NaN.
	SoftmaxFinish(logp, entropy, stats, sums, max Buffer, n int)
	// SoftmaxBackward writes the gradient dLogits, activations, of logits, which are the columns from first
	// on, given that of logp and the stats of SoftmaxFinish. In FP32, dLogits and logits may be the same.
	SoftmaxBackward(dLogits, logits, dLogp, stats Buffer, targets Ints, first int, invTemp float32)
	// Sample draws a token for each row of logits [N, vocab]. It reports the token's
	// log-probability under softmax(logits / Temperature), with the bits that the softmax
	// kernels give for invTemp = 1/Temperature (1 if Temperature is 0). Top-k, then top-p,
	// then min-p restrict the draw but not the reported log-probability. ids [N] are of
	// type Int32, logp [N].
	//
	// The weight of a token is rint(e·2^44), as in SoftmaxSum. Top-k and top-p order tokens by
	// logit·invTemp, descending, then by id; top-p keeps the shortest prefix, at least one token, whose
	// weights add up to at least trunc(float64(W)·float64(TopP)), W being the sum of all that top-k
	// keeps. Min-p compares e. With T the sum of the weights left, the token drawn is the first id at
	// which the running sum of weights exceeds floor(T·Uniform), computed in integers.
	Sample(ids, logp, logits Buffer, vocab int, params Params)
}

// UpdateKernels serve the optimizer. Each call takes all tensors of a model.
type UpdateKernels interface {
	// AdamW updates w, m and v of each update from its gradient, elementwise, and then converts w to its copy, if it
	// has one. The gradient is
	// float32(float64(g)) · p.GradScale.
	AdamW(updates []Update, p AdamWParams)
	// SumSquares sets sums[i] to the sum of squares of x[i]: folds of 4,096 values each,
	// accumulated in float64 in ascending order. It waits, and returns what Sync returns.
	SumSquares(sums []float64, x []Buffer) error
	// SumSquaresExact sets sums[i] to the exact sum of squares of float32(float64(g[i])). It
	// waits, and returns what Sync returns.
	SumSquaresExact(sums []Squares, g []Sums) error
}

// Ceiling holds the best rates that a number of threads reach.
type Ceiling struct {
	Threads int `json:"threads"`
	// float32 operations per second, two for each fused multiply-add
	FLOPPerSecond float64 `json:"flops"`
	Read          float64 `json:"read_bytes_per_second"` // from memory
	Copy          float64 `json:"copy_bytes_per_second"` // in memory; a byte counts as read and as written
}

// Ceilings are the best rates of a machine: the roofs against which a kernel's speed
// is measured (Williams, Waterman and Patterson 2009, "Roofline").
type Ceilings struct {
	One Ceiling `json:"one_thread"`
	All Ceiling `json:"all_threads"`
}

// NumericsVersion is the version of the kernels' arithmetic: the orders of reduction, the fixed-point
// sums, the kernels' own exp and log, and the float64 functions (internal/rounded) behind losses,
// learning rates and rotary tables. It rises with each change that gives other bits.
const NumericsVersion = 5
