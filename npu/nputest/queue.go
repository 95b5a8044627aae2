package nputest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
)

// testMemory checks allocation and transfers.
func testMemory(t *testing.T, open func(threads int) (npu.Device, error)) {
	d := device(t, open, 2)
	require.NotEmpty(t, d.Info().Name)
	require.Positive(t, npu.Threads(d))
	require.Zero(t, d.Allocated())

	b, err := d.Alloc(npu.Float32, 1001, npu.Weights)
	require.NoError(t, err)
	require.Equal(t, 1001, b.Len())
	c, err := d.Alloc(npu.Float32, 17, npu.KV)
	require.NoError(t, err)
	ids, err := d.Alloc(npu.Int32, 3, npu.KV)
	require.NoError(t, err)
	longs, err := d.Alloc(npu.Int64, 5, npu.Gradients)
	require.NoError(t, err)
	require.Equal(t, [npu.NumPurposes]int64{npu.Weights: 4004, npu.KV: 68 + 12, npu.Gradients: 40}, d.Allocated())
	for dtype, of := range map[npu.DType][]npu.Buffer{npu.Float32: {b, c}, npu.Int32: {ids}, npu.Int64: {longs}} {
		for _, x := range of {
			require.Equal(t, dtype, x.DType())
			require.Same(t, d.Space(), x.Space())
			require.Zero(t, x.Addr()%64, "address %#x", x.Addr())
		}
	}
	none, err := d.Alloc(npu.Int64, 0, npu.KV)
	require.NoError(t, err)
	require.True(t, none.IsNil())
	d.Free(none)
	_, err = d.Alloc(npu.Float32, -1, npu.KV)
	require.ErrorContains(t, err, "allocate -1 values of float32 for kv")

	m, x := newMemory(t, d), ramp(1001)
	d.Upload(b, x)
	require.Equal(t, x, m.get(b))
	if d.Space() == npu.Host {
		require.Equal(t, x, b.Float32s())
	} else {
		require.Nil(t, b.Float32s())
	}
	d.Copy(c, b.Slice(100, 117))
	require.Equal(t, x[100:117], m.get(c))
	d.Add(c, b.Slice(3, 20))
	for i, v := range m.get(c) {
		require.Equal(t, x[100+i]+x[3+i], v)
	}
	d.Zero(b.Slice(500, 1001))
	require.Equal(t, append(ramp(500), make([]float32, 501)...), m.get(b))
	testIntegers(t, m, ids, longs)
	for _, held := range []npu.Buffer{b, c, ids, longs} {
		d.Free(held)
	}
	require.Zero(t, d.Allocated())
}

// testIntegers copies 3 values of type Int32 and 5 of type Int64.
func testIntegers(t *testing.T, m *memory, ids, longs npu.Buffer) {
	t.Helper()
	m.d.UploadInts(ids, []int32{7, -1 << 31, 9})
	require.Equal(t, []int32{7, -1 << 31, 9}, m.getInts(ids))
	m.d.Copy(ids.Slice(0, 1), ids.Slice(2, 3))
	m.d.Zero(ids.Slice(2, 3))
	require.Equal(t, []int32{9, -1 << 31, 0}, m.getInts(ids))
	m.putLongs(longs, []int64{1 << 40, -2, 3, -1 << 63, 5})
	m.d.Copy(longs.Slice(1, 3), longs.Slice(3, 5))
	m.d.Zero(longs.Slice(3, 4))
	require.Equal(t, []int64{1 << 40, -1 << 63, 5, 0, 5}, m.getLongs(longs))
}

// ramp returns n ascending values.
func ramp(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(i) - 7.5
	}
	return x
}

// testQueue checks the order of calls that may run later.
func testQueue(t *testing.T, open func(threads int) (npu.Device, error)) {
	d := device(t, open, 2)
	t.Run("transfers", func(t *testing.T) { testTransfers(t, d) })
	t.Run("lists", func(t *testing.T) { testLists(t, d) })
	t.Run("waiting calls", func(t *testing.T) { testWaiting(t, d) })
	t.Run("free", func(t *testing.T) { testFree(t, d) })
	t.Run("batch", func(t *testing.T) { testBatch(t, d) })
	t.Run("fork", func(t *testing.T) { testFork(t, d) })
}

// testTransfers changes the source of each copy right after the call, which must not affect the copy.
func testTransfers(t *testing.T, d npu.Device) {
	m := newMemory(t, d)
	defer m.free()
	b, ids := m.nan(40), m.ints(make([]int32, 40)...)
	src, list := ramp(40), []int32{1: 3, 39: 5}
	before, after, listBefore, listAfter := make([]float32, 40), make([]float32, 40), make([]int32, 40),
		make([]int32, 40)
	d.Upload(b, src)
	d.UploadInts(ids.Buffer, list)
	clear(src)
	clear(list)
	d.Download(before, b)
	d.DownloadInts(listBefore, ids.Buffer)
	d.Zero(b)
	d.Zero(ids.Buffer)
	d.Download(after, b)
	d.DownloadInts(listAfter, ids.Buffer)
	d.Upload(b, ramp(40))
	require.NoError(t, d.Sync())
	require.Equal(t, ramp(40), before)
	require.Equal(t, []int32{1: 3, 39: 5}, listBefore)
	require.Equal(t, make([]float32, 40), after)
	require.Equal(t, make([]int32, 40), listAfter)
}

// testLists clears the list of each call right after the call, which must not affect the call.
func testLists(t *testing.T, d npu.Device) {
	m := newMemory(t, d)
	defer m.free()
	w, x := m.weights(ramp(6), 2, 3), m.values([]float32{1, 2})
	dx, products := m.nan(3), []npu.Product{{DY: x, W: w, Block: 2}}
	d.LinearBackwardInput(dx, products, 1, false)
	clear(products)
	require.Equal(t, []float32{-16.5, -13.5, -10.5}, m.get(dx))
	y, outputs := m.nanValues(2), []npu.Projection{{W: w}}
	outputs[0].Y = y
	d.NormLinear(outputs, m.nanValues(3), m.put([]float32{2, 2, 2}), m.values([]float32{1, 1, 1}), 1, 0)
	clear(outputs)
	require.Equal(t, []float32{-19.5, -10.5}, m.get(y))
	weight := m.nan(4)
	updates := []npu.Update{{W: weight, G: m.sums(4), M: m.zero(npu.Float32, 4), V: m.zero(npu.Float32, 4)}}
	d.Upload(weight, ramp(4))
	d.AdamW(updates, npu.AdamWParams{LR: 1, Eps: 1, WeightDecay: 0, GradScale: 1, Step: 1})
	clear(updates)
	require.Equal(t, ramp(4), m.get(weight), "a gradient of 0")
}

// testWaiting checks sums, which are valid when the call returns, and copies, which are valid after a wait.
func testWaiting(t *testing.T, d npu.Device) {
	m := newMemory(t, d)
	defer m.free()
	b, src, got := m.put(ramp(6)), ramp(6), make([]float32, 6)
	d.Add(b, b)
	d.Download(got, b)
	require.NoError(t, d.Sync())
	require.Equal(t, []float32{-15, -13, -11, -9, -7, -5}, got)
	w := npu.Matrix{Buffer: m.nan(d.MatrixLen(2, 3)), Rows: 2, Cols: 3}
	d.PackMatrix(w, src)
	clear(src)
	d.UnpackMatrix(got, w)
	require.NoError(t, d.Sync())
	require.Equal(t, ramp(6), got)
	d.Zero(b)
	d.Upload(b.Slice(2, 4), []float32{3, 4})
	sum := []float64{-1}
	require.NoError(t, d.SumSquares(sum, []npu.Buffer{b}))
	require.Equal(t, []float64{25}, sum)
	s := m.sums(2)
	m.putLongs(s.Buffer, []int64{1, -2})
	squares := make([]npu.Squares, 1)
	require.NoError(t, d.SumSquaresExact(squares, []npu.Sums{s}))
	require.Equal(t, []npu.Squares{{Sum: npu.Wide{5}}}, squares)
}

// testFree frees a buffer while kernels in the queue use it, then allocates memory that the device may have
// taken back too early.
func testFree(t *testing.T, d npu.Device) {
	m := newMemory(t, d)
	defer m.free()
	to := m.zero(npu.Float32, 1001)
	for range 20 {
		b, err := d.Alloc(npu.Float32, 1001, npu.Activations)
		require.NoError(t, err)
		d.Upload(b, ramp(1001))
		d.Add(to, b)
		d.Free(b)
	}
	want := ramp(1001)
	for i := range want {
		want[i] *= 20
	}
	require.Equal(t, want, m.get(to))
}

// testBatch fills a batch again, with more or fewer values, while kernels in the queue use its old content.
func testBatch(t *testing.T, d npu.Device) {
	m, b := newMemory(t, d), npu.NewBatch(d)
	defer m.free()
	defer b.Free()
	from := m.put(ramp(50))
	var want [][]float32
	var got []npu.Buffer
	for _, n := range []int{4, 3, 50, 50, 1} {
		require.NoError(t, b.Begin(2*n))
		rows := make([]int32, n)
		for i := range rows {
			rows[i] = int32((7*i + n) % 50)
		}
		b.Ints(rows[:n/2])
		list, to := b.Ints(rows), m.nan(n)
		b.Upload()
		d.GatherRows(to, from, list, 1)
		gathered := make([]float32, n)
		for i, row := range rows {
			gathered[i] = float32(row) - 7.5
		}
		want, got = append(want, gathered), append(got, to)
	}
	for i, to := range got {
		require.Equal(t, want[i], m.get(to), "batch %d", i)
	}
}

// testFork runs the kernels of two queues on one memory at the same time.
func testFork(t *testing.T, d npu.Device) {
	f, err := d.Fork(1)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	require.Same(t, d.Space(), f.Space())
	require.Equal(t, d.Info(), f.Info())
	if c, ok := f.(npu.Cores); ok {
		require.Equal(t, 1, c.Threads())
	}
	require.Zero(t, f.Allocated(), "memory of the other queue")
	m, mf := newMemory(t, d), newMemory(t, f)
	defer m.free()
	c := newDenseCase(33, 65, 40, 1)
	x, w := m.values(c.x), m.weights(c.w, c.n, c.k)
	y, yf := m.nan(c.t*c.n), mf.nan(c.t*c.n)
	require.NoError(t, d.Sync()) // x and w are complete
	require.NoError(t, f.Sync())
	held := d.Allocated()
	require.Equal(t, [npu.NumPurposes]int64{npu.Activations: yf.Bytes()}, f.Allocated())
	work := func(d npu.Device, y npu.Buffer) error {
		for range 50 {
			d.Linear(y, x, w, npu.Buffer{}, c.t, npu.Fresh)
		}
		return d.Sync()
	}
	done := make(chan error, 1)
	go func() { done <- work(f, yf) }()
	require.NoError(t, work(d, y))
	require.NoError(t, <-done)
	got := m.get(y)
	if d.Info().Exact {
		equal(t, "y of the fork", got, mf.get(yf))
	}
	equal(t, "y of the fork, read by the origin", mf.get(yf), m.get(yf))
	require.False(t, slices.ContainsFunc(got, func(v float32) bool { return v != v }))
	mf.free()
	require.Zero(t, f.Allocated())
	require.Equal(t, held, d.Allocated())
}
