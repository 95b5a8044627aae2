package npu

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// Ints is a list of int32 values in a device's memory. Min and Max let the host check indices
// without reading them. An empty list has Min 0 and Max -1.
type Ints struct {
	Buffer
	Min, Max int32 // bounds of the values, which need not be attained
}

// Slice returns values lo to hi of l, hi excluded.
func (l Ints) Slice(lo, hi int) Ints { return Ints{l.Buffer.Slice(lo, hi), l.Min, l.Max} }

// Segment is a run of rows whose positions continue its parent's. A row attends to
// all rows of its ancestors and, causally, to the rows of its own segment. Parents
// precede their children. Parent is -1 for a root.
type Segment struct {
	Start, Len, Parent int32
}

// RowTile is the maximum number of rows in a tile of Segments.
const RowTile = 64

// Segments is a forest of segments in a device's memory.
type Segments struct {
	Buffer     // Int32 [N, 4]: start, length, parent, and number of rows of all ancestors
	N      int // number of segments
	Rows   int // end of the last row that a segment has
	// Tiles divide each segment's rows, RowTile at a time, so that kernels know their work without reading the
	// segments: [n, 2] are a segment and its first row in the tile. Tiles of a tree follow each other, and
	// segments and rows ascend. Their number depends on N and Rows; the last tiles, of segment -1, may be empty.
	Tiles Buffer
}

// tiles returns the number of tiles of n segments that end at a row.
func tiles(n, end int) int { return (end+RowTile-1)/RowTile + n }

// SegmentValues returns the number of values that Batch.Segments adds for a list.
func SegmentValues(list []Segment) int {
	end := 0
	for _, s := range list {
		end = max(end, int(s.Start+s.Len))
	}
	return 4*len(list) + 2*tiles(len(list), end)
}

// FixedPoint is a 64-bit fixed-point format. A value v is added as v·Scale, rounded
// once to the nearest integer, ties to even. A product whose magnitude is above Limit,
// or that is NaN, is not added but marks the tensor (see Sums.Mark). Scale is a power of two. Limit
// times the number of contributions to a sum is at most 2^62, so that sums cannot overflow. A leaf
// contributes once to the sums of a linear layer. Each of its units contributes to those of an
// embedding once, and to those of a norm once per head.
type FixedPoint struct {
	Scale, Limit float32
}

// Split returns the format for sums to which each unit contributes up to n times: it divides
// Limit by the smallest power of two that is at least n. Limit remains at least 1.
func (f FixedPoint) Split(n int) FixedPoint {
	parts := math.Ldexp(1, bits.Len(uint(max(n, 1)-1)))
	f.Limit = max(1, float32(float64(f.Limit)/parts))
	return f
}

// Leaves cuts rows into leaves and units.
type Leaves struct {
	FixedPoint
	Ends  Ints // row after each leaf, ascending; the last one is the number of rows
	Units Ints // [MaxUnits(Ends.Len(), Rows)] row after each unit, ascending; units at the end may be empty
	Rows  int
}

// MaxUnits returns the maximum number of units of leaves with the given number of rows in total.
func MaxUnits(leaves, rows int) int { return leaves + rows/UnitRows }

// Tokens are the token ids of a pass and, for the gradient of an embedding, the rows of each
// id: rows of a unit with one id form a list. List i is Rows[Starts[i]:Starts[i+1]]. Lists are in
// the order of ids, those of one id in the order of their rows. Lists at the end may be empty.
type Tokens struct {
	IDs    Ints // [T]
	Rows   Ints // [T] rows of all lists, then zeros
	Starts Ints // [lists+1] start of each list in Rows, then the end of the last list
}

// Lists returns the number of lists.
func (t *Tokens) Lists() int { return max(0, t.Starts.Len()-1) }

// QueryBlock is the maximum number of rows in a block of Tables.
const QueryBlock = 64

// Tables say which positions of a key-value cache each of N query rows sees.
type Tables struct {
	Pages  Ints // [sequences, Stride]: the pages of each sequence
	Stride int
	Rows   Ints // [N] row of each query row's sequence in Pages
	Lens   Ints // [N] number of positions that each query row sees
	// Blocks [N+1] are rows of one sequence whose lengths do not fall, so that a kernel reads their keys once: block b
	// has rows Blocks[b] to Blocks[b+1], at most QueryBlock. The last blocks may be empty.
	Blocks Ints
}

// SampleParams sets how one row's next token is drawn.
type SampleParams struct {
	Temperature float32 // 0 takes the likeliest token; ties take the lowest id
	TopP        float32 // 1 keeps all
	MinP        float32 // 0 keeps all
	TopK        int32   // 0 keeps all
	Uniform     float32 // the random draw, a multiple of 2^-24 in [0, 1)
}

// Params are SampleParams in a device's memory.
type Params struct {
	Buffer     // Int32 [N, 5]: the bits of SampleParams' fields, in order
	N      int // number of rows
}

// Batch holds the index arrays of a pass in a device's memory, which it owns. One upload sends
// them all, because a transfer has a cost of its own, and all kernels of the pass use them. The
// arrays are valid for kernels called before the next Begin. The host checks indices when it
// adds an array, while it still has the values; kernels do not. A Batch is not safe for
// concurrent use.
type Batch struct {
	dev   Memory
	mem   Buffer  // memory on the device, owned by the batch
	words []int32 // host copy of the arrays so far; its capacity is the length of mem
}

// NewBatch returns an empty batch on a device.
func NewBatch(dev Memory) *Batch { return &Batch{dev: dev} }

// Begin empties the batch and makes room for arrays with n values in total. A forest has
// SegmentValues, Tables have 3 for each row and one more, the parameters of a row have 5.
func (b *Batch) Begin(n int) error {
	b.words = b.words[:0]
	if n <= b.mem.Len() {
		return nil
	}
	b.Free()
	mem, err := b.dev.Alloc(Int32, n+n/2, Activations)
	if err != nil {
		return fmt.Errorf("index arrays: %w", err)
	}
	b.mem, b.words = mem, make([]int32, 0, mem.Len())
	return nil
}

// Upload sends all arrays to the device. Call it before the kernels that use them.
func (b *Batch) Upload() {
	if len(b.words) > 0 {
		b.dev.UploadInts(b.mem.Slice(0, len(b.words)), b.words)
	}
}

// Bytes returns the size of the device's memory.
func (b *Batch) Bytes() int64 { return b.mem.Bytes() }

// Free frees the device's memory.
func (b *Batch) Free() {
	b.dev.Free(b.mem)
	b.mem = Buffer{}
}

// place reserves an array of n values and returns it in both memories.
func (b *Batch) place(n int) ([]int32, Buffer) {
	at := len(b.words)
	if at+n > b.mem.Len() {
		panic(fmt.Sprintf("npu: batch of %d values, expected at most the %d of Begin", at+n, b.mem.Len()))
	}
	b.words = b.words[:at+n]
	return b.words[at : at+n : at+n], b.mem.Slice(at, at+n)
}

// Ints adds a list.
func (b *Batch) Ints(list []int32) Ints {
	host, mem := b.place(len(list))
	copy(host, list)
	return bounded(mem, host)
}

// bounded returns the list in mem, whose values are host.
func bounded(mem Buffer, host []int32) Ints {
	l := Ints{Buffer: mem, Min: math.MaxInt32, Max: math.MinInt32}
	for _, v := range host {
		l.Min, l.Max = min(l.Min, v), max(l.Max, v)
	}
	if len(host) == 0 {
		l.Min, l.Max = 0, -1
	}
	return l
}

// Segments adds a forest. It panics unless parents precede their children.
func (b *Batch) Segments(list []Segment) Segments {
	host, mem := b.place(4 * len(list))
	s := Segments{Buffer: mem, N: len(list)}
	trees := make([][]int32, 0, len(list)) // segments of each tree
	tree := make([]int, len(list))         // index in trees
	for i, v := range list {
		if v.Start < 0 || v.Len < 0 || v.Parent < -1 || int(v.Parent) >= i {
			panic(fmt.Sprintf("npu: segment %d is %+v, expected rows from 0 on and an earlier parent or -1", i, v))
		}
		s.Rows = max(s.Rows, int(v.Start)+int(v.Len))
		before := int32(0)
		if v.Parent < 0 {
			tree[i] = len(trees)
			trees = append(trees, nil)
		} else {
			tree[i] = tree[v.Parent]
			before = host[4*v.Parent+3] + list[v.Parent].Len
		}
		trees[tree[i]] = append(trees[tree[i]], int32(i))
		copy(host[4*i:], []int32{v.Start, v.Len, v.Parent, before})
	}
	host, s.Tiles = b.place(2 * tiles(len(list), s.Rows))
	n := 0
	for _, segments := range trees {
		for _, i := range segments {
			for first := int32(0); first < list[i].Len; first += RowTile {
				host[n], host[n+1] = i, first
				n += 2
			}
		}
	}
	for ; n < len(host); n += 2 {
		host[n], host[n+1] = -1, 0
	}
	return s
}

// Leaves adds the leaves of a number of rows, len(ends) + MaxUnits(len(ends), rows) values. ends
// are the rows after each leaf. It panics if they descend or do not end at the number of rows.
func (b *Batch) Leaves(format FixedPoint, ends []int32, rows int) Leaves {
	units := cutUnits(ends, rows)
	for len(units) < MaxUnits(len(ends), rows) {
		units = append(units, int32(rows))
	}
	return Leaves{FixedPoint: format, Ends: b.Ints(ends), Units: b.Ints(units), Rows: rows}
}

// cutUnits returns the row after each unit of leaves that end at the given rows. It panics as
// Batch.Leaves does.
func cutUnits(ends []int32, rows int) []int32 {
	units := make([]int32, 0, MaxUnits(len(ends), rows))
	start := int32(0)
	for i, end := range ends {
		if end < start {
			panic(fmt.Sprintf("npu: leaf %d ends at row %d, expected at least %d", i, end, start))
		}
		for start < end {
			start = min(end, start+UnitRows)
			units = append(units, start)
		}
	}
	if int(start) != rows {
		panic(fmt.Sprintf("npu: leaves end at row %d, expected %d", start, rows))
	}
	return units
}

// Tokens adds the token ids of a pass whose leaves end at the given rows, with at least the given
// number of lists: at most 2·len(ids) + max(len(ids), lists) + 1 values. Rows with an id below 0
// are in no list. It panics as Leaves does.
func (b *Batch) Tokens(ids, ends []int32, lists int) Tokens {
	unit := make([]int32, 0, len(ids)) // end of each row's unit
	for _, end := range cutUnits(ends, len(ids)) {
		for len(unit) < int(end) {
			unit = append(unit, end)
		}
	}
	known, mem := b.place(len(ids))
	keys := make([]int64, 0, len(ids)) // ids and rows
	for row, id := range ids {
		known[row] = max(id, 0)
		if id >= 0 {
			keys = append(keys, int64(id)<<32|int64(row))
		}
	}
	t := Tokens{IDs: bounded(mem, known)}
	slices.Sort(keys)
	rows, mem := b.place(len(ids))
	clear(rows)
	starts := make([]int32, 0, len(ids)+1)
	for i, key := range keys {
		row := int32(key) //nolint:gosec // the lower half is a row
		rows[i] = row
		if i == 0 || key>>32 != keys[i-1]>>32 || unit[row] != unit[rows[i-1]] {
			starts = append(starts, int32(i))
		}
	}
	for end := int32(len(keys)); len(starts) <= lists || starts[len(starts)-1] < end; {
		starts = append(starts, end)
	}
	t.Rows, t.Starts = bounded(mem, rows), b.Ints(starts)
	return t
}

// Tables adds, for each query row, the row of its sequence in the page table [sequences, stride] and the number of
// positions that it sees. Entries beyond a length are ignored. Tables adds 3 values for each row, and one. It panics
// if a length is below 1 or beyond its row of the page table.
func (b *Batch) Tables(pages Ints, stride int, rows, lens []int32) Tables {
	t := Tables{Pages: pages, Stride: stride, Rows: b.Ints(rows), Lens: b.Ints(lens)}
	if len(rows) != len(lens) {
		panic(fmt.Sprintf("npu: sequences of %d rows, lengths of %d", len(rows), len(lens)))
	}
	blocks := make([]int32, 0, len(rows)+1)
	for i := range rows {
		if i > 0 && rows[i] == rows[i-1] && lens[i] >= lens[i-1] && i-int(blocks[len(blocks)-1]) < QueryBlock {
			continue
		}
		blocks = append(blocks, int32(i))
	}
	for len(blocks) <= len(rows) {
		blocks = append(blocks, int32(len(rows)))
	}
	t.Blocks = b.Ints(blocks)
	if len(lens) > 0 && (t.Lens.Min < 1 || int(t.Lens.Max) > stride*PageSize) {
		panic(fmt.Sprintf("npu: lengths of %d to %d positions, expected 1 to %d", t.Lens.Min, t.Lens.Max,
			stride*PageSize))
	}
	return t
}

// Params adds the sampling parameters of rows.
func (b *Batch) Params(list []SampleParams) Params {
	host, mem := b.place(5 * len(list))
	for i, p := range list {
		row := host[5*i : 5*i+5]
		for j, f := range []float32{p.Temperature, p.TopP, p.MinP, 0, p.Uniform} {
			row[j] = int32(math.Float32bits(f))
		}
		row[3] = p.TopK
	}
	return Params{Buffer: mem, N: len(list)}
}
