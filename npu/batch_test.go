package npu_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
)

// words is device memory that the host can read. Only its methods for index arrays work.
type words struct {
	npu.Memory
	allocated, freed []int // lengths
	uploads          int
	err              error
}

func (m *words) Alloc(dtype npu.DType, n int, purpose npu.Purpose) (npu.Buffer, error) {
	if m.err != nil {
		return npu.Buffer{}, m.err
	}
	if dtype != npu.Int32 || purpose != npu.Activations {
		return npu.Buffer{}, errors.New("index arrays are activations of type int32")
	}
	m.allocated = append(m.allocated, n)
	list := make([]int32, n)
	for i := range list {
		list[i] = -99 // undefined
	}
	return npu.HostBuffer(list), nil
}

func (m *words) Free(b npu.Buffer) {
	if !b.IsNil() {
		m.freed = append(m.freed, b.Len())
	}
}

func (m *words) UploadInts(dst npu.Buffer, src []int32) {
	m.uploads++
	copy(dst.Int32s(), src)
}

// begin returns a batch with room for arrays with values in all.
func begin(t *testing.T, values int) *npu.Batch {
	t.Helper()
	b := npu.NewBatch(&words{})
	require.NoError(t, b.Begin(values))
	return b
}

func TestInts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		list     []int32
		min, max int32
	}{
		"none":     {nil, 0, -1},
		"one":      {[]int32{7}, 7, 7},
		"several":  {[]int32{3, -2, 9, 9, 0}, -2, 9},
		"extremes": {[]int32{math.MaxInt32, math.MinInt32}, math.MinInt32, math.MaxInt32},
	} {
		b := begin(t, 6)
		before, l := b.Ints([]int32{5}), b.Ints(test.list)
		b.Upload()
		require.Equal(t, test.list, l.Int32s(), name)
		require.Equal(t, []int32{test.min, test.max}, []int32{l.Min, l.Max}, name)
		require.Equal(t, []int32{5}, before.Int32s(), name)
		if len(test.list) > 0 {
			require.Equal(t, npu.Int32, l.DType())
			require.Equal(t, before.Addr()+4, l.Addr(), "%s: no gap between arrays", name)
		}
	}
	b := begin(t, 4)
	part := b.Ints([]int32{4, 1, 8, 2}).Slice(1, 3)
	b.Upload()
	require.Equal(t, []int32{1, 8}, part.Int32s())
	require.Equal(t, []int32{1, 8}, []int32{part.Min, part.Max}, "bounds of the whole list hold")
}

func TestSegments(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		list  []npu.Segment
		words []int32
		tiles []int32
		rows  int
	}{
		"none": {nil, nil, nil, 0},
		"tree": {[]npu.Segment{{0, 5, -1}, {5, 3, 0}, {8, 0, 1}},
			[]int32{0, 5, -1, 0, 5, 3, 0, 5, 8, 0, 1, 8}, []int32{0, 0, 1, 0, -1, 0, -1, 0}, 8},
		"the last rows first": {[]npu.Segment{{20, 9, -1}, {0, 20, -1}}, []int32{20, 9, -1, 0, 0, 20, -1, 0},
			[]int32{0, 0, 1, 0, -1, 0}, 29},
		"woven trees": {[]npu.Segment{{0, 64, -1}, {64, 1, -1}, {65, 130, 0}},
			[]int32{0, 64, -1, 0, 64, 1, -1, 0, 65, 130, 0, 64},
			[]int32{0, 0, 2, 0, 2, 64, 2, 128, 1, 0, -1, 0, -1, 0}, 195},
	} {
		b := begin(t, npu.SegmentValues(test.list))
		s := b.Segments(test.list)
		b.Upload()
		require.Equal(t, test.words, s.Int32s(), name)
		require.Equal(t, test.tiles, s.Tiles.Int32s(), name)
		require.Equal(t, []int{len(test.list), test.rows}, []int{s.N, s.Rows}, name)
	}
	for name, bad := range map[string][]npu.Segment{
		"a negative start":         {{-1, 2, -1}},
		"a negative length":        {{0, -1, -1}},
		"a parent below -1":        {{0, 1, -2}},
		"its own parent":           {{0, 1, 0}},
		"a parent after its child": {{0, 1, -1}, {1, 1, 2}, {2, 1, 0}},
	} {
		require.Panics(t, func() { begin(t, 40).Segments(bad) }, name)
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	for n, limit := range map[int]float32{0: 1 << 50, 1: 1 << 50, 2: 1 << 49, 3: 1 << 48, 4: 1 << 48, 5: 1 << 47,
		96: 1 << 43, 1 << 50: 1, 1 << 60: 1} {
		require.Equal(t, npu.FixedPoint{Scale: 4, Limit: limit}, npu.FixedPoint{Scale: 4, Limit: 1 << 50}.Split(n),
			"%d parts", n)
	}
}

func TestLeaves(t *testing.T) {
	t.Parallel()
	format := npu.FixedPoint{Scale: 4, Limit: 8}
	for name, test := range map[string]struct {
		ends []int32
		rows int
	}{
		"none":          {nil, 0},
		"one":           {[]int32{5}, 5},
		"some empty":    {[]int32{0, 3, 3, 7, 7}, 7},
		"around a unit": {[]int32{255, 511, 768, 1368}, 1368}, // of 255, 256, 257 and 600 rows
		"many units":    {[]int32{1, 2561, 2561, 5121}, 5121},
		"whole units":   {[]int32{256, 768}, 768},
	} {
		b := begin(t, len(test.ends)+npu.MaxUnits(len(test.ends), test.rows))
		l := b.Leaves(format, test.ends, test.rows)
		b.Upload()
		require.Equal(t, test.ends, l.Ends.Int32s(), name)
		require.Equal(t, test.rows, l.Rows, name)
		require.Equal(t, format, l.FixedPoint, name)
		requireUnits(t, name, test.ends, l.Units.Int32s())
	}
	for name, test := range map[string]struct {
		ends []int32
		rows int
		want string
	}{
		"none of some rows": {nil, 3, "npu: leaves end at row 0, expected 3"},
		"too few rows":      {[]int32{2}, 3, "npu: leaves end at row 2, expected 3"},
		"too many rows":     {[]int32{2, 4}, 3, "npu: leaves end at row 4, expected 3"},
		"descending":        {[]int32{2, 1, 3}, 3, "npu: leaf 1 ends at row 1, expected at least 2"},
		"negative":          {[]int32{-1, 3}, 3, "npu: leaf 0 ends at row -1, expected at least 0"},
	} {
		require.PanicsWithValue(t, test.want, func() { begin(t, 9).Leaves(format, test.ends, test.rows) }, name)
	}
}

// requireUnits requires units to be the ends of the units of leaves: of each leaf, every 256th row from its
// first on, and its end.
func requireUnits(t *testing.T, name string, ends, units []int32) {
	t.Helper()
	start, rows := int32(0), int32(0)
	var want []int32
	for _, end := range ends {
		for row := start + 1; row <= end; row++ {
			if row == end || (row-start)%256 == 0 {
				want = append(want, row)
			}
		}
		start, rows = end, end
	}
	require.Len(t, units, npu.MaxUnits(len(ends), int(rows)), name)
	require.GreaterOrEqual(t, len(units), len(want), name)
	require.Equal(t, want, units[:len(want):len(want)], name)
	for _, end := range units[len(want):] {
		require.Equal(t, rows, end, name)
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ids, ends []int32
		lists     int
		rows      []int32
		starts    []int32
	}{
		"none":              {starts: []int32{0}},
		"an empty leaf":     {ends: []int32{0}, starts: []int32{0}},
		"no row, 2 lists":   {lists: 2, starts: []int32{0, 0, 0}},
		"all different":     {[]int32{4, 1, 2}, []int32{3}, 0, []int32{1, 2, 0}, []int32{0, 1, 2, 3}},
		"one id":            {[]int32{4, 4, 4}, []int32{3}, 0, []int32{0, 1, 2}, []int32{0, 3}},
		"two ids":           {[]int32{4, 1, 4, 4, 1}, []int32{5}, 0, []int32{1, 4, 0, 2, 3}, []int32{0, 2, 5}},
		"an id of 2 leaves": {[]int32{4, 4, 4, 4}, []int32{1, 1, 4}, 0, []int32{0, 1, 2, 3}, []int32{0, 1, 4}},
		"more lists":        {[]int32{4, 4}, []int32{2}, 3, []int32{0, 1}, []int32{0, 2, 2, 2}},
		"fewer lists":       {[]int32{4, 5}, []int32{2}, 1, []int32{0, 1}, []int32{0, 1, 2}},
		"rows of no list":   {[]int32{-1, 3, -1, 3, 0}, []int32{5}, 0, []int32{4, 1, 3, 0, 0}, []int32{0, 1, 3}},
		"no lists":          {[]int32{-1, -1}, []int32{2}, 0, []int32{0, 0}, []int32{0}},
	} {
		b := begin(t, 2*len(test.ids)+max(len(test.ids), test.lists)+1)
		l := b.Tokens(test.ids, test.ends, test.lists)
		b.Upload()
		known := slices.Clone(test.ids)
		for i := range known {
			known[i] = max(known[i], 0)
		}
		require.Equal(t, known, l.IDs.Int32s(), name)
		require.Equal(t, test.rows, l.Rows.Int32s(), name)
		require.Equal(t, test.starts, l.Starts.Int32s(), name)
		require.Equal(t, len(test.starts)-1, l.Lists(), name)
		for what, list := range map[string]npu.Ints{"ids": l.IDs, "rows": l.Rows, "starts": l.Starts} {
			least, greatest := int32(0), int32(-1)
			if list.Len() > 0 {
				least, greatest = slices.Min(list.Int32s()), slices.Max(list.Int32s())
			}
			require.Equal(t, []int32{least, greatest}, []int32{list.Min, list.Max}, "%s: bounds of %s", name, what)
		}
	}
	require.PanicsWithValue(t, "npu: leaves end at row 2, expected 3",
		func() { begin(t, 10).Tokens([]int32{1, 2, 3}, []int32{2}, 0) })
	require.Panics(t, func() { begin(t, 10).Tokens([]int32{1, 2, 3}, []int32{4}, 0) }, "a leaf beyond the ids")
	require.Panics(t, func() { begin(t, 10).Tokens([]int32{1, 2, 3}, []int32{2, 1, 3}, 0) }, "ends that descend")
}

// Each list has the rows of one id in one unit, and lists are in the order of their ids and rows.
func TestTokensOfUnits(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		ends := []int32{0}
		for range 1 + rng.IntN(4) {
			ends = append(ends, ends[len(ends)-1]+rng.Int32N(700))
		}
		ids := make([]int32, ends[len(ends)-1])
		for i := range ids {
			ids[i] = rng.Int32N(5) - 1
		}
		b := begin(t, 3*len(ids)+1)
		l := b.Tokens(ids, ends, 0)
		b.Upload()
		type key struct{ id, leaf, unit int32 }
		lists, first := map[key][]int32{}, int32(0)
		var keys []key
		for leaf, end := range ends {
			for row := first; row < end; row++ {
				k := key{ids[row], int32(leaf), (row - first) / 256}
				if k.id >= 0 && lists[k] == nil {
					keys = append(keys, k)
				}
				lists[k] = append(lists[k], row)
			}
			first = end
		}
		slices.SortStableFunc(keys, func(a, b key) int { return int(a.id - b.id) })
		require.Equal(t, len(keys), l.Lists())
		for i, k := range keys {
			from, to := l.Starts.Int32s()[i], l.Starts.Int32s()[i+1]
			require.Equal(t, lists[k], l.Rows.Int32s()[from:to], "%v", k)
		}
	}
}

func TestTables(t *testing.T) {
	t.Parallel()
	b := begin(t, 11)
	pages := b.Ints([]int32{3, 0, 9, 4})
	l := b.Tables(pages, 2, []int32{1, 0}, []int32{1, 2 * npu.PageSize})
	b.Upload()
	require.Equal(t, []int32{3, 0, 9, 4}, l.Pages.Int32s())
	require.Equal(t, []int32{1, 0}, l.Rows.Int32s())
	require.Equal(t, []int32{1, 32}, l.Lens.Int32s())
	require.Equal(t, []int32{0, 1, 2}, l.Blocks.Int32s())
	require.Equal(t, 2, l.Stride)
	require.Equal(t, []int32{0, 9, 0, 1, 1, 32},
		[]int32{l.Pages.Min, l.Pages.Max, l.Rows.Min, l.Rows.Max, l.Lens.Min, l.Lens.Max})
	none := begin(t, 1).Tables(npu.Ints{}, 2, nil, nil)
	require.Zero(t, none.Lens.Len())
	for name, test := range map[string]struct {
		rows, lens []int32
		want       string
	}{
		"a row missing":      {[]int32{0}, []int32{1, 1}, "npu: sequences of 1 rows, lengths of 2"},
		"a row left over":    {[]int32{0}, nil, "npu: sequences of 1 rows, lengths of 0"},
		"a length of 0":      {[]int32{0, 1}, []int32{5, 0}, "npu: lengths of 0 to 5 positions, expected 1 to 32"},
		"a length too large": {[]int32{0, 1}, []int32{33, 1}, "npu: lengths of 1 to 33 positions, expected 1 to 32"},
	} {
		require.PanicsWithValue(t, test.want, func() { begin(t, 10).Tables(pages, 2, test.rows, test.lens) }, name)
	}
}

func TestParams(t *testing.T) {
	t.Parallel()
	b := begin(t, 10)
	p := b.Params([]npu.SampleParams{{Temperature: 0.5, TopP: 1, MinP: 0.25, TopK: 40, Uniform: 0.75}, {TopK: -1}})
	b.Upload()
	require.Equal(t, 2, p.N)
	require.Equal(t, []int32{0x3f000000, 0x3f800000, 0x3e800000, 40, 0x3f400000, 0, 0, 0, -1, 0}, p.Int32s())
	require.Zero(t, begin(t, 0).Params(nil).N)
}

// A batch keeps its memory while it suffices, and is empty after Begin.
func TestBatchBegin(t *testing.T) {
	t.Parallel()
	m := &words{}
	b := npu.NewBatch(m)
	require.NoError(t, b.Begin(0))
	b.Upload()
	require.Zero(t, m.uploads, "nothing to upload")
	require.Empty(t, m.allocated)

	for _, n := range []int{8, 3, 8, 10, 100, 1} {
		require.NoError(t, b.Begin(n))
		list := make([]int32, n-n/2)
		for i := range list {
			list[i] = int32(n + i)
		}
		first, second := b.Ints(list[:n/2]), b.Ints(list)
		b.Upload()
		require.Equal(t, list, second.Int32s())
		require.True(t, slices.Equal(list[:n/2], first.Int32s()))
	}
	require.Equal(t, 6, m.uploads, "one for all arrays")
	require.Len(t, m.allocated, 2, "8 values leave room for 10")
	require.Equal(t, m.allocated[:1], m.freed)
	require.Equal(t, int64(4*m.allocated[1]), b.Bytes())
	b.Free()
	require.Zero(t, b.Bytes())
	require.Equal(t, m.allocated, m.freed)
	require.Panics(t, func() { b.Ints([]int32{1}) }, "after Free")
	require.NoError(t, b.Begin(1))
	require.Len(t, m.allocated, 3)
	b.Ints([]int32{1})
}

// Begin makes room for arrays of any lengths that add up to its number of values.
func TestBatchRoom(t *testing.T) {
	t.Parallel()
	for _, lens := range [][]int{{1}, {1, 1, 1}, {4, 4}, {3, 5, 1, 1, 7}, {0, 0, 9}, {9, 0, 0}} {
		sum := 0
		for _, n := range lens {
			sum += n
		}
		b := begin(t, sum)
		var all []npu.Ints
		for i, n := range lens {
			all = append(all, b.Ints(slices.Repeat([]int32{int32(i)}, n)))
		}
		b.Upload()
		for i, n := range lens {
			require.True(t, slices.Equal(slices.Repeat([]int32{int32(i)}, n), all[i].Int32s()),
				"array %d of %v", i, lens)
		}
	}
	require.Panics(t, func() { begin(t, 4).Ints(make([]int32, 100)) }, "beyond the memory")
}

func TestBatchFailure(t *testing.T) {
	t.Parallel()
	m := &words{err: errors.New("out of memory")}
	b := npu.NewBatch(m)
	require.EqualError(t, b.Begin(1), "index arrays: out of memory")
	require.ErrorIs(t, b.Begin(1), m.err)
	b.Free()
	require.Empty(t, m.freed)
	m.err = nil
	require.NoError(t, b.Begin(1))
}
