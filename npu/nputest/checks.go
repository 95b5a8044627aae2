package nputest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
)

// testChecks calls kernels with buffers that do not fit and with indices out of range. The calls must
// panic, even on a device that runs kernels later.
func testChecks(t *testing.T, open func(threads int) (npu.Device, error)) {
	d := device(t, open, 1)
	for _, calls := range []map[string]func(m *memory){wrongCalls(d), wrongIndices(d), wrongTypes(d)} {
		for name, call := range calls {
			m := newMemory(t, d)
			require.Panics(t, func() { call(m) }, name)
			require.NoError(t, d.Sync(), name)
			m.free()
		}
	}
}

// wrongCalls returns calls whose lengths, types or address spaces are wrong.
func wrongCalls(d npu.Device) map[string]func(m *memory) {
	foreign := npu.DeviceBuffer(64, npu.Float32, 4, npu.NewSpace("elsewhere"))
	return map[string]func(m *memory){
		"copy to another length":      func(m *memory) { d.Copy(m.nan(4), m.nan(3)) },
		"copy to another type":        func(m *memory) { d.Copy(m.nan(4), m.ints(1, 2, 3, 4).Buffer) },
		"copy from another space":     func(m *memory) { d.Copy(m.nan(4), foreign) },
		"copy to another space":       func(m *memory) { d.Copy(foreign, m.nan(4)) },
		"upload another length":       func(m *memory) { d.Upload(m.nan(4), make([]float32, 3)) },
		"upload another type":         func(m *memory) { d.Upload(m.ints(1, 2, 3).Buffer, make([]float32, 3)) },
		"upload integers as floats":   func(m *memory) { d.UploadInts(m.nan(3), make([]int32, 3)) },
		"upload to another space":     func(*memory) { d.Upload(foreign, make([]float32, 4)) },
		"download another length":     func(m *memory) { d.Download(make([]float32, 3), m.nan(4)) },
		"download floats as integers": func(m *memory) { d.DownloadInts(make([]int32, 4), m.nan(4)) },
		"download from another space": func(*memory) { d.Download(make([]float32, 4), foreign) },
		"zero in another space":       func(*memory) { d.Zero(foreign) },
		"add to another space":        func(m *memory) { d.Add(foreign, m.nan(4)) },
		"add integers":                func(m *memory) { d.Add(m.ints(1, 2).Buffer, m.ints(1, 2).Buffer) },
		"pack another length":         func(m *memory) { d.PackMatrix(m.putMatrix(ramp(6), 2, 3), ramp(5)) },
		"sums of another type": func(m *memory) {
			d.AdamW([]npu.Update{updateOf(m, npu.NewSums(m.nan(5)))}, updateParams(1))
		},
		"sums of another length": func(m *memory) {
			d.AdamW([]npu.Update{updateOf(m, m.sums(3))}, updateParams(1))
		},
		"squares of another length": func(m *memory) { _ = d.SumSquares(make([]float64, 2), []npu.Buffer{m.nan(4)}) },
		"squares of another type": func(m *memory) {
			_ = d.SumSquares(make([]float64, 1), []npu.Buffer{m.sums(4).Buffer})
		},
		"exact squares of no result": func(m *memory) { _ = d.SumSquaresExact(nil, []npu.Sums{m.sums(4)}) },
		"samples of another type": func(m *memory) {
			d.Sample(m.nan(1), m.nan(1), m.nan(4), 4, m.params(make([]npu.SampleParams, 1)))
		},
		"statistics of another length": func(m *memory) {
			x := m.nanValues(4)
			d.Attention(x, m.nan(1), x, x, x, m.segments(nil), npu.Heads{Q: 1, KV: 1, Dim: 2})
		},
		"products of no rows in a block": func(m *memory) {
			d.LinearBackwardInput(m.nan(2), []npu.Product{productOf(m, 0)}, 1, false)
		},
		"no products": func(m *memory) { d.LinearBackwardInput(m.nan(2), nil, 1, false) },
		"products of 2 and 3 blocks": func(m *memory) {
			d.LinearBackwardInput(m.nan(2), []npu.Product{productOf(m, 3), productOf(m, 2)}, 1, false)
		},
		"scale of no power of two": func(m *memory) {
			l := &leaves{npu.FixedPoint{Scale: 3, Limit: 1}, []int32{1}}
			d.LinearBackwardWeight(m.matrixSums(2, 3), npu.Sums{}, m.nanValues(2), m.nanValues(3), m.leaves(l))
		},
		"a bias to add to a sum": func(m *memory) {
			w := m.weights(make([]float32, 6), 2, 3)
			d.Linear(m.nan(2), m.nanValues(3), w, m.nanValues(2), 1, npu.Add)
		},
		"convert to another length": func(m *memory) { d.Convert(m.nan(4), m.nan(3)) },
		"convert integers":          func(m *memory) { d.Convert(m.nan(2), m.ints(1, 2).Buffer) },
		"convert to integers":       func(m *memory) { d.Convert(m.ints(1, 2).Buffer, m.nan(2)) },
		"convert to another space":  func(m *memory) { d.Convert(foreign, m.nan(4)) },
		"convert another space":     func(m *memory) { d.Convert(m.nan(4), foreign) },
	}
}

// updateOf returns an update of 4 values with the given gradient.
func updateOf(m *memory, g npu.Sums) npu.Update {
	return npu.Update{W: m.nan(4), G: g, M: m.nan(4), V: m.nan(4)}
}

// productOf returns a product of one row with a weight [6, 2].
func productOf(m *memory, block int) npu.Product {
	return npu.Product{DY: m.nanValues(6), W: m.weights(make([]float32, 12), 6, 2), Block: block}
}

// wrongIndices returns calls with indices out of range.
func wrongIndices(d npu.Device) map[string]func(m *memory) {
	h := npu.Heads{Q: 1, KV: 1, Dim: 2}
	const page = npu.PageSize * 2
	table := func(m *memory) npu.Matrix { return m.weights(make([]float32, 6), 3, 2) }
	lookup := func(id int32) func(m *memory) { return func(m *memory) { d.Embed(m.nan(2), table(m), m.ints(id)) } }
	gather := func(row int32) func(m *memory) {
		return func(m *memory) { d.GatherRows(m.nan(2), m.nan(6), m.ints(row), 2) }
	}
	attend := func(s npu.Segment) func(m *memory) {
		return func(m *memory) {
			x := m.nanValues(4)
			d.Attention(x, npu.Buffer{}, x, x, x, m.segments([]npu.Segment{s}), h)
		}
	}
	cached := func(pages []int32, length int32) func(m *memory) {
		return func(m *memory) {
			x, cache := m.nanValues(2), m.nanValues(3*page)
			d.AttentionCached(x, x, cache, cache, m.tables(pages, 2, []int32{length}), h)
		}
	}
	one := &leaves{format(1), []int32{1}}
	return map[string]func(m *memory){
		"an id beyond the table":  lookup(3),
		"a negative id":           lookup(-1),
		"a row beyond the last":   gather(3),
		"a negative row":          gather(-1),
		"a scattered row beyond":  func(m *memory) { d.ScatterAddRows(m.nan(6), m.nan(2), m.ints(3), 2) },
		"a segment beyond":        attend(npu.Segment{Start: 1, Len: 2, Parent: -1}),
		"a page beyond the cache": cached([]int32{0, 3}, 1),
		"a negative page":         cached([]int32{-1, 0}, 1),
		"a length of 0":           cached([]int32{0, 1}, 0),
		"a length beyond":         cached([]int32{0, 1}, 2*npu.PageSize+1),
		"a slot beyond": func(m *memory) {
			x, cache := m.nanValues(2), m.nanValues(page)
			d.CacheWrite(cache, cache, x, x, m.ints(npu.PageSize), h)
		},
		"a position beyond": func(m *memory) { d.Rope(m.nanValues(2), m.nan(6), m.ints(3), 1, 2, false) },
		"an id of a gradient beyond": func(m *memory) {
			d.EmbedBackward(m.matrixSums(3, 2), m.nan(2), m.tokens([]int32{3}, one), one.FixedPoint)
		},
		"leaves of other rows": func(m *memory) {
			d.LinearBackwardWeight(m.matrixSums(3, 2), npu.Sums{}, m.nanValues(6), m.nanValues(4), m.leaves(one))
		},
	}
}
