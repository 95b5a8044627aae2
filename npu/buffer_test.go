package npu_test

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
)

func TestDType(t *testing.T) {
	t.Parallel()
	for dtype, want := range map[npu.DType]struct {
		size int
		name string
	}{npu.Float32: {4, "float32"}, npu.BFloat16: {2, "bfloat16"}, npu.Int32: {4, "int32"}, npu.Int64: {8, "int64"}} {
		require.Equal(t, want.size, dtype.Size())
		require.Equal(t, want.name, dtype.String())
	}
}

func TestHostBuffer(t *testing.T) {
	t.Parallel()
	floats, ints, longs := []float32{1, 2, 3}, []int32{4, 5}, []int64{6}
	for name, test := range map[string]struct {
		b     npu.Buffer
		dtype npu.DType
		n     int
		addr  unsafe.Pointer
	}{
		"float32": {npu.HostBuffer(floats), npu.Float32, 3, unsafe.Pointer(&floats[0])},
		"int32":   {npu.HostBuffer(ints), npu.Int32, 2, unsafe.Pointer(&ints[0])},
		"int64":   {npu.HostBuffer(longs), npu.Int64, 1, unsafe.Pointer(&longs[0])},
		"address": {npu.AddressBuffer(unsafe.Pointer(&longs[0]), npu.Int32, 2), npu.Int32, 2,
			unsafe.Pointer(&longs[0])},
	} {
		require.Equal(t, test.dtype, test.b.DType(), name)
		require.Equal(t, test.n, test.b.Len(), name)
		require.Equal(t, int64(test.n*test.dtype.Size()), test.b.Bytes(), name)
		require.Equal(t, uintptr(test.addr), test.b.Addr(), name)
		require.Same(t, npu.Host, test.b.Space(), name)
		require.False(t, test.b.IsNil(), name)
	}
	require.Equal(t, floats, npu.HostBuffer(floats).Float32s())
	require.Equal(t, ints, npu.HostBuffer(ints).Int32s())
	require.Equal(t, longs, npu.HostBuffer(longs).Int64s())
	npu.HostBuffer(floats).Float32s()[1] = 9
	require.Equal(t, []float32{1, 9, 3}, floats, "the memory is shared")
	require.Equal(t, npu.Buffer{}, npu.HostBuffer([]int64{}))
}

// Values are read only as what they are.
func TestBufferTypes(t *testing.T) {
	t.Parallel()
	floats, ints, longs := npu.HostBuffer(make([]float32, 2)), npu.HostBuffer(make([]int32, 2)),
		npu.HostBuffer(make([]int64, 2))
	require.PanicsWithValue(t, "npu: buffer holds int32, expected float32", func() { ints.Float32s() })
	require.PanicsWithValue(t, "npu: buffer holds int64, expected float32", func() { longs.Float32s() })
	require.PanicsWithValue(t, "npu: buffer holds float32, expected int32", func() { floats.Int32s() })
	require.PanicsWithValue(t, "npu: buffer holds float32, expected int64", func() { floats.Int64s() })
}

func TestNoBuffer(t *testing.T) {
	t.Parallel()
	var none npu.Buffer
	require.True(t, none.IsNil())
	require.Zero(t, none.Len())
	require.Zero(t, none.Bytes())
	require.Zero(t, none.Addr())
	require.Nil(t, none.Space())
	require.Nil(t, none.Float32s())
	require.Nil(t, none.Int32s())
	require.Nil(t, none.Int64s())
	require.Equal(t, none, none.Slice(0, 0))
}

func TestBufferSlice(t *testing.T) {
	t.Parallel()
	space := npu.NewSpace("far")
	floats, longs := npu.HostBuffer([]float32{0, 1, 2, 3, 4}), npu.HostBuffer([]int64{0, 1, 2, 3, 4})
	far, half := npu.DeviceBuffer(4096, npu.Int32, 5, space), npu.DeviceBuffer(4096, npu.BFloat16, 5, space)
	for _, b := range []npu.Buffer{floats, longs, far, half} {
		part := b.Slice(1, 4)
		require.Equal(t, 3, part.Len())
		require.Equal(t, b.DType(), part.DType())
		require.Same(t, b.Space(), part.Space())
		require.Equal(t, b.Addr()+uintptr(b.DType().Size()), part.Addr())
		require.Equal(t, b.Slice(2, 3), part.Slice(1, 2))
		require.Equal(t, b, b.Slice(0, 5))
		require.Equal(t, npu.Buffer{}, b.Slice(5, 5))
		for _, bad := range [][2]int{{-1, 2}, {3, 2}, {0, 6}, {6, 6}} {
			require.PanicsWithValue(t, "npu: slice out of range", func() { b.Slice(bad[0], bad[1]) }, "%v", bad)
		}
	}
	require.Equal(t, []float32{1, 2, 3}, floats.Slice(1, 4).Float32s())
	require.Equal(t, []int64{3, 4}, longs.Slice(1, 5).Slice(2, 4).Int64s())
	require.Nil(t, far.Slice(1, 4).Int32s())
}

func TestSpace(t *testing.T) {
	t.Parallel()
	require.Equal(t, "host", npu.Host.String())
	a, b := npu.NewSpace("cuda:0"), npu.NewSpace("cuda:0")
	require.Equal(t, "cuda:0", a.String())
	require.NotSame(t, a, b, "each device has its own")
	far := npu.DeviceBuffer(64, npu.Float32, 2, a)
	require.Same(t, a, far.Space())
	require.Equal(t, uintptr(64), far.Addr())
	require.Nil(t, far.Float32s())
	require.Nil(t, far.Int32s(), "memory that the host cannot read has no type to mistake")
}

func TestSums(t *testing.T) {
	t.Parallel()
	s := npu.NewSums(npu.HostBuffer([]int64{1, 2, 3, 7}))
	require.Equal(t, 3, s.Len())
	require.Equal(t, []int64{1, 2, 3}, s.Int64s())
	require.Equal(t, []int64{7}, s.Mark.Int64s())
	part := s.Slice(1, 3)
	require.Equal(t, []int64{2, 3}, part.Int64s())
	require.Equal(t, s.Mark, part.Mark, "parts share the mark")
	none := npu.NewSums(npu.HostBuffer([]int64{7}))
	require.True(t, none.IsNil())
	require.Equal(t, []int64{7}, none.Mark.Int64s())
}
