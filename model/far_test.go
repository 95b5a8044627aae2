package model

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention/cache"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/device"
	"github.com/easyrl/easyrl/npu/far"
)

// sampler samples from sequences that grow by a token a step.
type sampler struct {
	r    *Runner
	held *cache.Cache
	rows []Row
	ids  []int32
	logp []float32
}

func newDecoder(t *testing.T, dev npu.Device, c *Config, sequences int) *sampler {
	t.Helper()
	r, err := NewRunner(dev, c, sequences)
	require.NoError(t, err)
	held, err := cache.New(dev, c.Cache(4*sequences, sequences, 4*npu.PageSize))
	require.NoError(t, err)
	d := &sampler{r: r, held: held, rows: make([]Row, sequences), ids: make([]int32, sequences),
		logp: make([]float32, sequences)}
	for i := range d.rows {
		d.rows[i] = Row{Sequence: int32(sequences - 1 - i), ID: int32(i % c.VocabSize)}
	}
	return d
}

func (d *sampler) close() {
	d.r.Close()
	d.held.Close()
}

// step runs the first n sequences and returns the number of pages that they begin.
func (d *sampler) step(t *testing.T, w *Weights, n int) (pages int) {
	t.Helper()
	params := make([]npu.SampleParams, n)
	for i := range n {
		row := &d.rows[i]
		page := 4*row.Sequence + row.Position/npu.PageSize
		if row.Position%npu.PageSize == 0 {
			d.held.SetPages(row.Sequence, int(row.Position)/npu.PageSize, []int32{page})
			pages++
		}
		row.Slot = page*npu.PageSize + row.Position%npu.PageSize
		params[i] = npu.SampleParams{Temperature: 1, TopP: 1, Uniform: float32(i%7) / 7}
	}
	_, err := d.r.Step(w, d.held, d.rows[:n], params, d.ids[:n], d.logp[:n])
	require.NoError(t, err)
	for i := range n {
		d.rows[i].ID = d.ids[i]
		d.rows[i].Position++
	}
	return pages
}

func openFar(t *testing.T) (dev npu.Device, library string) {
	t.Helper()
	library = far.Library(t)
	dev, err := device.Open(library, npu.FP32, 1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	return dev, library
}

// A decode step waits once and moves at most 64 bytes a sequence and 8 a new page. It replays
// the kernels of an earlier step of similar size, with either of two published versions.
func TestDecodeStep(t *testing.T) {
	dev, library := openFar(t)
	c := shapes()["qwen3"]
	two := []*Weights{testWeights(t, dev, c), testWeights(t, dev, c)}
	host := openCPU(t, 1)
	want := newDecoder(t, host, c, 37)
	defer want.close()
	same := testWeights(t, host, c)
	d := newDecoder(t, dev, c, 37)
	defer d.close()
	captures := int64(0)
	for step := range 40 {
		n := []int{37, 34, 1, 5, 11}[step%5]
		require.NoError(t, dev.Sync())
		far.Reset(library)
		pages := d.step(t, two[step/5%2], n)
		count := far.Read(library)
		require.EqualValues(t, 1, count.Waits, "step %d", step)
		if step >= 5 { // the first steps also send the table of rotary positions and allocate
			require.LessOrEqual(t, count.BytesUp+count.BytesDown, int64(64*n+8*pages), "step %d of %d rows", step, n)
		}
		require.EqualValues(t, 1, count.Replays, "step %d", step)
		captures += count.Captures
		want.step(t, same, n)
		require.Equal(t, want.ids, d.ids, "step %d", step)
		require.Equal(t, want.logp, d.logp, "step %d", step)
	}
	require.EqualValues(t, 2*4, captures, "of each version: 37 rows for 37 and 34, 1, 5, and 12 for 11")
}

// A step is captured again after memory that it uses has moved.
func TestStaleSteps(t *testing.T) {
	dev, library := openFar(t)
	c := shapes()["llama"]
	w := testWeights(t, dev, c)
	d := newDecoder(t, dev, c, 9)
	defer d.close()
	captured := func(n int) int64 {
		far.Reset(library)
		d.step(t, w, n)
		return far.Read(library).Captures
	}
	require.EqualValues(t, 1, captured(2))
	require.EqualValues(t, 0, captured(2))
	require.EqualValues(t, 1, captured(9), "another number of rows; the logits grow")
	require.EqualValues(t, 1, captured(2), "the logits have moved")
	require.EqualValues(t, 0, captured(2))
	err := d.r.branches.prepare(5000)
	require.NoError(t, err)
	require.EqualValues(t, 1, captured(2), "the table of rotary positions has moved")
	w.Free()
	w = testWeights(t, dev, c)
	require.EqualValues(t, 1, captured(2), "other weights")
}

func TestStepRefuses(t *testing.T) {
	t.Parallel()
	dev := openCPU(t, 1)
	c := shapes()["llama"]
	w := testWeights(t, dev, c)
	d := newDecoder(t, dev, c, 2)
	defer d.close()
	d.held.SetPages(1, 0, []int32{7, 6})
	for want, row := range map[string]Row{
		"token 5000 at row 0 is outside the vocabulary":  {ID: 5000},
		"sequence 2 at row 0, expected 0 to 1":           {Sequence: 2},
		"position 64 at row 0, expected 0 to 63":         {Position: 64},
		"slot 128 at row 0, expected 0 to 127":           {Sequence: 1, Slot: 128},
		"slot -1 at row 0, expected 0 to 127":            {Sequence: 1, Slot: -1},
		"position 0 at row 0 has no page in sequence 0":  {},
		"position 32 at row 0 has no page in sequence 1": {Sequence: 1, Position: 32},
	} {
		_, err := d.r.Step(w, d.held, []Row{row}, make([]npu.SampleParams, 1), make([]int32, 1), make([]float32, 1))
		require.ErrorContains(t, err, want)
	}
	_, err := d.r.Step(w, d.held, make([]Row, 3), make([]npu.SampleParams, 3), make([]int32, 3), make([]float32, 3))
	require.ErrorContains(t, err, "run 3 rows, expected 1 to 2")
	d.step(t, w, 1)
	require.ErrorContains(t, d.r.Logits(w, make([]float32, c.VocabSize), []int32{1}),
		"row 1 of the last pass, expected 0 to 0")
	require.Panics(t, func() { d.held.SetPages(0, 0, []int32{8}) })
	require.Panics(t, func() { d.held.SetPages(2, 0, []int32{0}) })
	require.Panics(t, func() { d.held.SetPages(0, 4, []int32{0}) })
	require.Panics(t, func() { d.held.SetPages(0, 2, []int32{0}) }, "a gap")
	d.held.SetPages(1, 1, []int32{5})
	d.held.SetPages(1, 1, []int32{4})
	require.Equal(t, 2, d.held.Changes(), "the last page counts")
}
