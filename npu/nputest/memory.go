package nputest

import (
	"math"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
)

// memory allocates a test's buffers and index arrays on a device and frees them together.
type memory struct {
	indices
	held []npu.Buffer
}

func newMemory(t testing.TB, d npu.Device) *memory { return &memory{indices: indices{t: t, d: d}} }

// alloc allocates n undefined values.
func (m *memory) alloc(dtype npu.DType, n int) npu.Buffer {
	m.t.Helper()
	b, err := m.d.Alloc(dtype, n, npu.Activations)
	require.NoError(m.t, err)
	m.held = append(m.held, b)
	return b
}

// put copies float32 values to the device.
func (m *memory) put(x []float32) npu.Buffer {
	m.t.Helper()
	b := m.alloc(npu.Float32, len(x))
	m.d.Upload(b, x)
	return b
}

// putAs copies values to the device as values of a type, Float32 or the numerics' own.
func (m *memory) putAs(dtype npu.DType, x []float32) npu.Buffer {
	m.t.Helper()
	from := m.put(x)
	if dtype == npu.Float32 {
		return from
	}
	b := m.alloc(dtype, len(x))
	m.d.Convert(b, from)
	return b
}

// values copies weights or activations to the device.
func (m *memory) values(x []float32) npu.Buffer {
	m.t.Helper()
	return m.putAs(numerics(m.d).Type(), x)
}

// nan allocates n NaN of type Float32, which kernels must overwrite.
func (m *memory) nan(n int) npu.Buffer {
	m.t.Helper()
	return m.put(nans(n))
}

// nanAs is nan for values of a type.
func (m *memory) nanAs(dtype npu.DType, n int) npu.Buffer {
	m.t.Helper()
	return m.putAs(dtype, nans(n))
}

// nanValues is nan for weights or activations.
func (m *memory) nanValues(n int) npu.Buffer {
	m.t.Helper()
	return m.values(nans(n))
}

func nans(n int) []float32 { return filled(n, float32(math.NaN())) }

// zero allocates n values of 0.
func (m *memory) zero(dtype npu.DType, n int) npu.Buffer {
	m.t.Helper()
	b := m.alloc(dtype, n)
	m.d.Zero(b)
	return b
}

// get waits for the kernels called so far and copies values from the device, of type Float32 or BFloat16.
func (m *memory) get(b npu.Buffer) []float32 {
	m.t.Helper()
	x := make([]float32, b.Len())
	if b.DType() == npu.BFloat16 {
		wide := m.alloc(npu.Float32, b.Len())
		m.d.Convert(wide, b)
		b = wide
	}
	m.d.Download(x, b)
	require.NoError(m.t, m.d.Sync())
	return x
}

// getInts is get for values of type Int32.
func (m *memory) getInts(b npu.Buffer) []int32 {
	m.t.Helper()
	x := make([]int32, b.Len())
	m.d.DownloadInts(x, b)
	require.NoError(m.t, m.d.Sync())
	return x
}

// putLongs copies 64-bit values to b.
func (m *memory) putLongs(b npu.Buffer, x []int64) {
	m.d.UploadInts(b.Words(), unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(x))), 2*len(x)))
}

// getLongs is get for values of type Int64.
func (m *memory) getLongs(b npu.Buffer) []int64 {
	m.t.Helper()
	x := make([]int64, b.Len())
	m.d.DownloadInts(unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(x))), 2*len(x)), b.Words())
	require.NoError(m.t, m.d.Sync())
	return x
}

// free frees everything that m has allocated.
func (m *memory) free() {
	for _, b := range m.held {
		m.d.Free(b)
	}
	m.held = nil
	m.indices.free()
}

// indices uploads a test's index arrays, each as a batch of its own.
type indices struct {
	t       testing.TB
	d       npu.Device
	batches []*npu.Batch
}

func (x *indices) free() {
	for _, b := range x.batches {
		b.Free()
	}
	x.batches = nil
}

// batch uploads the index arrays that add puts into a new batch. values is their total length.
func (x *indices) batch(values int, add func(b *npu.Batch)) {
	x.t.Helper()
	b := npu.NewBatch(x.d)
	require.NoError(x.t, b.Begin(values))
	x.batches = append(x.batches, b)
	add(b)
	b.Upload()
}

func (x *indices) ints(list ...int32) (l npu.Ints) {
	x.t.Helper()
	x.batch(len(list), func(b *npu.Batch) { l = b.Ints(list) })
	return l
}

func (x *indices) segments(list []npu.Segment) (s npu.Segments) {
	x.t.Helper()
	x.batch(npu.SegmentValues(list), func(b *npu.Batch) { s = b.Segments(list) })
	return s
}

func (x *indices) leaves(l *leaves) *npu.Leaves {
	x.t.Helper()
	var all npu.Leaves
	x.batch(len(l.ends)+npu.MaxUnits(len(l.ends), l.rows()),
		func(b *npu.Batch) { all = b.Leaves(l.FixedPoint, l.ends, l.rows()) })
	return &all
}

// tokens uploads the token ids of the rows of l, with at least two empty lists.
func (x *indices) tokens(ids []int32, l *leaves) *npu.Tokens {
	x.t.Helper()
	var t npu.Tokens
	x.batch(3*len(ids)+3, func(b *npu.Batch) { t = b.Tokens(ids, l.ends, len(ids)+2) })
	return &t
}

// tables uploads the pages of sequences, with stride pages and a length for each. It puts the last
// sequence first in the table, so that rows and table have different orders.
func (x *indices) tables(pages []int32, stride int, lens []int32) *npu.Tables {
	x.t.Helper()
	var t npu.Tables
	x.batch(len(pages)+3*len(lens)+1, func(b *npu.Batch) {
		var table, rows []int32
		for i := range slices.Backward(lens) {
			table, rows = append(table, pages[i*stride:(i+1)*stride]...), append(rows, int32(i))
		}
		t = b.Tables(b.Ints(table), stride, rows, lens)
	})
	return &t
}

func (x *indices) params(list []npu.SampleParams) (p npu.Params) {
	x.t.Helper()
	x.batch(5*len(list), func(b *npu.Batch) { p = b.Params(list) })
	return p
}
