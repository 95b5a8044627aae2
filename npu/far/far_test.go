package far_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/device"
	"github.com/easyrl/easyrl/npu/far"
	"github.com/easyrl/easyrl/npu/nputest"
)

func TestConformance(t *testing.T) {
	lib := far.Library(t)
	for _, numerics := range []npu.Numerics{npu.FP32, npu.BF16} {
		t.Run(numerics.String(), func(t *testing.T) {
			nputest.Run(t, func(threads int) (npu.Device, error) { return device.Open(lib, numerics, threads) })
		})
	}
}

func open(t *testing.T) npu.Device {
	t.Helper()
	d, err := device.Open(far.Library(t), npu.FP32, 1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func alloc(t *testing.T, d npu.Device, dtype npu.DType, n int) npu.Buffer {
	t.Helper()
	b, err := d.Alloc(dtype, n, npu.Activations)
	require.NoError(t, err)
	return b
}

// put returns a buffer with values.
func put(t *testing.T, d npu.Device, x ...float32) npu.Buffer {
	t.Helper()
	b := alloc(t, d, npu.Float32, len(x))
	d.Upload(b, x)
	return b
}

func get(t *testing.T, d npu.Device, b npu.Buffer) []float32 {
	t.Helper()
	x := make([]float32, b.Len())
	d.Download(x, b)
	require.NoError(t, d.Sync())
	return x
}

// alias returns b as a buffer that the host does not know to be freed.
func alias(b npu.Buffer) npu.Buffer { return npu.DeviceBuffer(b.Addr(), b.DType(), b.Len(), b.Space()) }

func TestOpen(t *testing.T) {
	t.Parallel()
	d := open(t)
	require.Contains(t, d.Info().Name, "far/")
	require.True(t, d.Info().Exact)
	require.NotSame(t, npu.Host, d.Space())
	_, isCores := d.(npu.Cores)
	require.False(t, isCores)
	require.Equal(t, 1, npu.Threads(d))
	b := alloc(t, d, npu.Int64, 3)
	require.Nil(t, b.Int64s())
	require.Equal(t, d.Space(), b.Space())
	require.Equal(t, int64(24), d.Allocated()[npu.Activations])
	require.NotZero(t, b.Addr()>>48, "no address of the host")
}

func TestWaits(t *testing.T) { // not parallel: counters are the library's
	lib := far.Library(t)
	d := open(t)
	far.Reset(lib)
	x, y := put(t, d, 1, 2, 3), put(t, d, 10, 20, 30)
	d.Add(y, x)
	require.Equal(t, far.Counters{Uploads: 2, BytesUp: 24, Kernels: 1}, far.Read(lib))
	got := []float32{7, 7, 7}
	d.Download(got, y)
	require.Equal(t, []float32{7, 7, 7}, got, "nothing has run")
	require.NoError(t, d.Sync())
	require.Equal(t, []float32{11, 22, 33}, got)
	require.NoError(t, d.Sync())
	want := far.Counters{Waits: 1, Uploads: 2, Downloads: 1, BytesUp: 24, BytesDown: 12, Kernels: 1}
	require.Equal(t, want, far.Read(lib), "the second Sync found an empty queue")

	var sums [1]float64
	require.NoError(t, d.SumSquares(sums[:], []npu.Buffer{x}))
	require.Equal(t, 14.0, sums[0])
	w := npu.Matrix{Buffer: alloc(t, d, npu.Float32, d.MatrixLen(2, 3)), Rows: 2, Cols: 3}
	values := []float32{1, 2, 3, 4, 5, 6}
	d.PackMatrix(w, values)
	clear(values)
	d.UnpackMatrix(values, w)
	require.Equal(t, make([]float32, 6), values, "nothing has run")
	require.NoError(t, d.Sync())
	require.Equal(t, []float32{1, 2, 3, 4, 5, 6}, values)
	want.Waits, want.Kernels = 3, 4
	want.Uploads, want.Downloads, want.BytesUp, want.BytesDown = 3, 2, want.BytesUp+24, want.BytesDown+24
	require.Equal(t, want, far.Read(lib))
	far.Reset(lib)
	require.Zero(t, far.Read(lib))
}

// Nothing may depend on memory that was not written.
func TestPoison(t *testing.T) {
	t.Parallel()
	d := open(t)
	for _, v := range get(t, d, alloc(t, d, npu.Float32, 5)) {
		require.True(t, math.IsNaN(float64(v)))
	}
	table, y := put(t, d, 1, 2, 3, 4), alloc(t, d, npu.Float32, 2)
	d.GatherRows(y, table, npu.Ints{Buffer: alloc(t, d, npu.Int32, 1)}, 2)
	require.ErrorContains(t, d.Sync(), "gather_rows: rows: value 0 is 2147483647, expected 0 to ")
}

// Units have at most npu.UnitRows rows and cover all rows.
func TestUnits(t *testing.T) {
	t.Parallel()
	d := open(t)
	const rows = npu.UnitRows + 1
	x, w, sums := alloc(t, d, npu.Float32, rows), put(t, d, 1), npu.NewSums(alloc(t, d, npu.Int64, 2))
	d.Zero(x)
	d.Zero(sums.Buffer)
	d.Zero(sums.Mark)
	b := npu.NewBatch(d)
	require.NoError(t, b.Begin(1+npu.MaxUnits(1, rows)+2))
	good := b.Leaves(npu.FixedPoint{Scale: 1, Limit: 1}, []int32{rows}, rows)
	long, short := b.Ints([]int32{rows}), b.Ints([]int32{rows - 1})
	b.Upload()
	for units, want := range map[npu.Ints]string{
		good.Units: "",
		long:       "rms_norm_backward: leaves.units: unit 0 ends at row 257, expected 0 to 256",
		short:      "rms_norm_backward: leaves.units: units end at row 256, expected 257",
	} {
		l := good
		l.Units = units
		d.RMSNormBackward(x, sums, x, x, w, 1, 1, false, &l)
		if err := d.Sync(); want != "" {
			require.ErrorContains(t, err, want)
		} else {
			require.NoError(t, err)
		}
	}
}

func TestUseAfterFree(t *testing.T) {
	t.Parallel()
	d := open(t)
	x, y, z := put(t, d, 1, 2), put(t, d, 3, 4), put(t, d, 5, 6)
	d.Add(y, x)
	d.Free(x)
	require.NoError(t, d.Sync(), "x is free after the kernels called so far")
	require.PanicsWithValue(t, "npu: add: x: memory is free (device "+d.Info().Name+")", func() { d.Add(y, x) })
	d.Add(y, alias(x))
	d.Add(z, y)
	require.EqualError(t, d.Sync(), "device "+d.Info().Name+": add: x: memory is free")
	require.NoError(t, d.Sync(), "the failure is cleared")
	require.Equal(t, []float32{9, 12}, get(t, d, z), "a kernel whose arguments are not valid does not run")
}

func TestBadAddresses(t *testing.T) {
	t.Parallel()
	d := open(t)
	x, y := put(t, d, 1, 2), put(t, d, 3, 4, 5)
	foreign := make([]int32, 2)
	host := npu.HostBuffer(foreign)
	for name, c := range map[string]struct {
		call func()
		want string
	}{
		"beyond": {func() {
			d.Add(y, npu.DeviceBuffer(x.Addr(), npu.Float32, 3, d.Space()))
		}, "add: x: 12 bytes at the last 8 of an allocation"},
		"nowhere": {func() {
			d.Zero(npu.DeviceBuffer(x.Addr()^1<<40, npu.Float32, 2, d.Space()))
		}, "zero: x: no memory of the device"},
		"host": {func() {
			d.GatherRows(x, y, npu.Ints{Buffer: npu.DeviceBuffer(host.Addr(), npu.Int32, 2, d.Space())}, 1)
		}, "gather_rows: rows: address of the host"},
	} {
		c.call()
		require.ErrorContains(t, d.Sync(), c.want, name)
	}
	require.Equal(t, []float32{3, 4, 5}, get(t, d, y))
}

// Replay refuses freed memory, also that of another queue.
func TestGraph(t *testing.T) { // not parallel: counters are the library's
	lib := far.Library(t)
	d := open(t)
	fork, err := d.Fork(1)
	require.NoError(t, err)
	x, y, z := put(t, d, 1, 2), put(t, d, 10, 20), put(t, fork, 0, 0)
	require.NoError(t, fork.Sync())
	far.Reset(lib)
	g, err := d.Capture(func() {
		d.Add(y, x)
		d.Copy(z, y)
	})
	require.NoError(t, err)
	require.True(t, g.Replay())
	require.Equal(t, []float32{12, 24}, get(t, d, z))
	c := far.Read(lib)
	require.Equal(t, []int64{1, 2}, []int64{c.Captures, c.Replays})
	fork.Free(z)
	require.False(t, g.Replay())
	g.Free()
	require.NoError(t, fork.Close())

	g, err = d.Capture(func() { d.Add(y, alias(x)) })
	require.NoError(t, err)
	require.NoError(t, d.Sync())
	d.Free(x)
	require.True(t, g.Replay(), "the host does not know")
	require.ErrorContains(t, d.Sync(), "add: x: memory is free")
}

// A queue that waits for an event of another runs that queue up to it.
func TestEvents(t *testing.T) {
	t.Parallel()
	d := open(t)
	fork, err := d.Fork(1)
	require.NoError(t, err)
	x, y := put(t, d, 1, 2), alloc(t, d, npu.Float32, 2)
	e, err := d.Record()
	require.NoError(t, err)
	fork.Await(e)
	e.Free()
	fork.Copy(y, x)
	require.Equal(t, []float32{1, 2}, get(t, fork, y))
	d.Add(x, x)
	fork.Copy(y, x)
	require.Equal(t, []float32{1, 2}, get(t, fork, y), "without an event, the other queue has not run")
	require.NoError(t, d.Sync())
	require.NoError(t, fork.Close())
}

// A buffer of another space is a programmer's error.
func TestForeignBuffers(t *testing.T) {
	t.Parallel()
	d := open(t)
	x := put(t, d, 1, 2)
	want := "npu: add: x: buffer belongs to host, expected one of " + d.Space().String() + " (device " +
		d.Info().Name + ")"
	require.PanicsWithValue(t, want, func() { d.Add(x, npu.HostBuffer([]float32{1, 2})) })
	other := open(t)
	require.Panics(t, func() { d.Copy(x, put(t, other, 1, 2)) }, "another device's memory")
	require.Panics(t, func() { other.Free(x) })
}

func TestFork(t *testing.T) {
	t.Parallel()
	d := open(t)
	fork, err := d.Fork(1)
	require.NoError(t, err)
	require.Same(t, d.Space(), fork.Space())
	require.Zero(t, fork.Allocated())
	x := put(t, d, 1, 2)
	require.NoError(t, d.Sync())
	y := put(t, fork, 10, 20)
	fork.Add(y, x)
	require.Equal(t, []float32{11, 22}, get(t, fork, y))
	require.Equal(t, []float32{11, 22}, get(t, d, y), "the memory is the same")

	fork.Add(y, npu.DeviceBuffer(x.Addr()^1<<40, npu.Float32, 2, d.Space()))
	require.NoError(t, d.Sync(), "each queue has its own failure")
	require.Error(t, fork.Sync())
	require.NoError(t, fork.Close())
	require.Panics(t, func() { d.Add(x, y) })
	d.Add(x, alias(y))
	require.ErrorContains(t, d.Sync(), "add: x: memory is free", "Close frees what the fork allocated")
}

// Transfers of any size and number leave the source alone and arrive in order.
func TestTransfers(t *testing.T) {
	t.Parallel()
	d := open(t)
	const n = 21 << 20 // 84 MiB, more than a device stages
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(i)
	}
	want := slices.Clone(x)
	b := alloc(t, d, npu.Float32, n)
	d.Upload(b, x)
	clear(x)
	d.Add(b.Slice(0, 1), put(t, d, 5))
	d.Download(x, b)
	require.NoError(t, d.Sync())
	want[0] = 5
	require.True(t, slices.Equal(want, x))

	// A wait within a transfer keeps the failure for Sync.
	d.Zero(npu.DeviceBuffer(b.Addr()^1<<40, npu.Float32, 2, d.Space()))
	d.Upload(b, x)
	require.ErrorContains(t, d.Sync(), "zero: x: no memory of the device")
	ints := alloc(t, d, npu.Int32, 1000)
	sent, got := make([]int32, 1000), make([]int32, 1000)
	for i := range sent {
		sent[i] = int32(i)
		d.UploadInts(ints.Slice(i, i+1), sent[i:i+1])
		d.DownloadInts(got[i:i+1], ints.Slice(i, i+1))
		sent[i] = 0
	}
	require.NoError(t, d.Sync())
	for i, v := range got {
		require.Equal(t, int32(i), v)
	}
}
