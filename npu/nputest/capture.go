package nputest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
)

// testEvents reads on one queue what another queue has written. The queues await each other's events; the
// host does not wait in between.
func testEvents(t *testing.T, open func(threads int) (npu.Device, error)) {
	d := device(t, open, 1)
	f, err := d.Fork(1)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	m, mf := newMemory(t, d), newMemory(t, f)
	defer m.free()
	defer mf.free()
	x, y, z := m.put(ramp(1001)), m.zero(npu.Float32, 1001), mf.nan(1001)
	want := make([]float32, 1001)
	for range 3 {
		d.Add(y, x)
		written, err := d.Record()
		require.NoError(t, err)
		f.Await(written)
		f.Copy(z, y)
		read, err := f.Record()
		require.NoError(t, err)
		got := make([]float32, 1001)
		f.Download(got, z)
		d.Await(read) // before y changes
		for i, v := range ramp(1001) {
			want[i] += v
		}
		require.NoError(t, f.Sync())
		require.Equal(t, want, got)
		for _, e := range []npu.Event{written, read} {
			if e != nil {
				e.Free()
			}
		}
	}
	require.NoError(t, d.Sync())
	f.Await(nil)
}

// captureCase gathers rows of x, adds x and multiplies by w, in buffers whose content may change between
// runs.
type captureCase struct {
	m        *memory
	rows     npu.Ints
	x, sum   npu.Buffer
	dy       npu.Buffer // sum as activations
	w        npu.Matrix
	out      npu.Buffer
	products []npu.Product
}

func newCaptureCase(m *memory) *captureCase {
	c := &captureCase{m: m, rows: m.ints(2, 0, 1), x: m.put(ramp(12)), sum: m.zero(npu.Float32, 12), out: m.nan(9)}
	c.w, c.dy = m.weights(ramp(12), 4, 3), m.nanValues(12)
	c.products = []npu.Product{{DY: c.dy, W: c.w, Block: 4}}
	return c
}

// run calls the kernels that a graph captures.
func (c *captureCase) run() {
	gathered := c.sum
	c.m.d.GatherRows(gathered, c.x, c.rows, 4)
	c.m.d.Add(gathered, c.x)
	c.m.d.Convert(c.dy, gathered)
	c.m.d.LinearBackwardInput(c.out, c.products, 3, false)
}

// want returns the output for the given inputs.
func (c *captureCase) want(x []float32, rows []int32) []float32 {
	w, out := ramp(12), make([]float32, 9)
	for t, row := range rows {
		for i := range 3 {
			for k := range 4 {
				out[3*t+i] += (x[4*int(row)+k] + x[4*t+k]) * w[3*k+i]
			}
		}
	}
	return out
}

// testCapture replays captured kernels after their memory has changed.
func testCapture(t *testing.T, open func(threads int) (npu.Device, error)) {
	d := device(t, open, 1)
	m := newMemory(t, d)
	defer m.free()
	c := newCaptureCase(m)
	spare := m.zero(npu.Float32, 8)
	g, err := d.Capture(c.run)
	require.NoError(t, err)
	require.Equal(t, c.want(ramp(12), []int32{2, 0, 1}), m.get(c.out), "the kernels ran once")
	c.products[0] = npu.Product{} // a graph keeps the arguments
	for name, call := range inCapture(m, spare, g) {
		require.Panics(t, func() { _, _ = d.Capture(call) }, name)
	}
	require.Equal(t, d.Info().Graphs, g != nil)
	if g == nil {
		return
	}
	x := ramp(12)
	for i, rows := range [][]int32{{0, 0, 0}, {1, 2, 0}, {2, 2, 2}} {
		x[i] = 20
		d.Upload(c.x, x)
		d.UploadInts(c.rows.Buffer, rows)
		require.True(t, g.Replay())
		d.Upload(c.x, ramp(12)) // after the kernels
		require.Equal(t, c.want(x, rows), m.get(c.out))
		d.Upload(c.out, ramp(9))
	}
	d.Free(spare)
	m.held = m.held[:len(m.held)-1]
	require.True(t, g.Replay(), "memory of no captured kernel is free")
	require.NoError(t, d.Sync())
	m.free()
	require.False(t, g.Replay(), "its memory is free")
	g.Free()
	require.NoError(t, d.Sync())
}

// inCapture returns the calls that must not be captured.
func inCapture(m *memory, b npu.Buffer, g npu.Graph) map[string]func() {
	d := m.d
	calls := map[string]func(){
		"upload":        func() { d.Upload(b, ramp(8)) },
		"download":      func() { d.Download(make([]float32, 8), b) },
		"pack":          func() { d.PackMatrix(npu.Matrix{Buffer: b, Rows: 1, Cols: 8}, ramp(8)) },
		"wait":          func() { _ = d.Sync() },
		"sum":           func() { _ = d.SumSquares(make([]float64, 1), []npu.Buffer{b}) },
		"event":         func() { _, _ = d.Record() },
		"other event":   func() { d.Await(nil) },
		"allocation":    func() { _, _ = d.Alloc(npu.Float32, 1, npu.Weights) },
		"free":          func() { d.Free(b) },
		"other capture": func() { _, _ = d.Capture(func() {}) },
	}
	if g != nil {
		calls["replay"] = func() { g.Replay() }
	}
	return calls
}
