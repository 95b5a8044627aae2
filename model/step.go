package model

import (
	"fmt"
	"math/bits"

	"github.com/easyrl/easyrl/attention/cache"
	"github.com/easyrl/easyrl/model/layer"
	"github.com/easyrl/easyrl/npu"
)

// Row is the next token of a sequence in a decode step. Its keys and values go to Slot; it
// attends to positions 0 to Position of the sequence's pages.
type Row struct {
	Sequence, ID, Position, Slot int32
}

// stepKey identifies the kernel calls of a decode step: equal keys mean equal arguments.
type stepKey struct {
	weights *Weights
	cache   *cache.Cache
	rows    int // number of rows, padding included
	longest int // maximum number of positions of a sequence
}

// step holds the index arrays of a decode step on the host.
type step struct {
	ids, positions, slots, sequences, lens []int32
	params                                 []npu.SampleParams
}

// Step runs one token of each of several sequences through w and samples the next, with
// params[i] for row i as npu.Device.Sample does, into ids and logp. It waits once. It returns the
// logits [len(rows), V], valid until the next call.
//
// On a device with graphs, Step replays an earlier step of similar size. It pads to at most a
// third more rows by repeating the last row; the copies write the same values.
func (r *Runner) Step(w *Weights, c *cache.Cache, rows []Row, params []npu.SampleParams, ids []int32, logp []float32) (
	npu.Buffer, error) {
	n := len(rows)
	key, err := r.stepKey(w, c, rows)
	if err != nil {
		return npu.Buffer{}, err
	}
	s, b := &r.step, r.batch
	s.fill(rows, params, key.rows)
	if err := b.Begin(11*key.rows + 1 + c.Changes()); err != nil { // 6 lists, and 5 values of sampling parameters
		return npu.Buffer{}, err
	}
	logits, err := r.begin(key.rows, key.rows, int32(key.longest-1))
	if err != nil {
		return npu.Buffer{}, err
	}
	r.runRows = n
	tokens, slots, tables, list := b.Ints(s.ids), b.Ints(s.slots), c.Tables(b, s.sequences, s.lens), b.Params(s.params)
	tables.Lens.Max = int32(key.longest) // rounded up, because it is an argument that a replay repeats
	r.pass.Positions = b.Ints(s.positions)
	places, values := c.Load(b)
	b.Upload()
	c.Apply(places, values)
	r.kv = layer.Cache{K: c.K, V: c.V, Slots: slots, Tables: &tables}
	sampled, scores := r.ids.Slice(0, key.rows), r.scores.Slice(0, key.rows)
	err = r.steps.run(key, func() {
		r.project(w, logits, r.layers(w, tokens), key.rows)
		r.dev.Sample(sampled, scores, logits, r.cfg.VocabSize, list)
	})
	if err != nil {
		return npu.Buffer{}, err
	}
	r.dev.DownloadInts(ids, sampled.Slice(0, n))
	r.dev.Download(logp, scores.Slice(0, n))
	return logits.Slice(0, n*r.cfg.VocabSize), r.dev.Sync()
}

// stepKey checks rows and returns the key of their step. On a device with graphs it rounds up the
// number of rows and the longest sequence, so that similar steps share a graph.
func (r *Runner) stepKey(w *Weights, c *cache.Cache, rows []Row) (stepKey, error) {
	key := stepKey{weights: w, cache: c, rows: len(rows)}
	if err := r.check(key.rows); err != nil {
		return key, err
	}
	for i := range rows {
		row := &rows[i]
		switch {
		case row.ID < 0 || int(row.ID) >= r.cfg.VocabSize:
			return key, fmt.Errorf("token %d at row %d is outside the vocabulary of %d", row.ID, i, r.cfg.VocabSize)
		case row.Sequence < 0 || int(row.Sequence) >= c.Sequences:
			return key, fmt.Errorf("sequence %d at row %d, expected 0 to %d", row.Sequence, i, c.Sequences-1)
		case row.Position < 0 || int(row.Position) >= c.Positions:
			return key, fmt.Errorf("position %d at row %d, expected 0 to %d", row.Position, i, c.Positions-1)
		case !c.Holds(row.Sequence, row.Position):
			return key, fmt.Errorf("position %d at row %d has no page in sequence %d", row.Position, i, row.Sequence)
		case row.Slot < 0 || int(row.Slot) >= c.Pages*npu.PageSize:
			return key, fmt.Errorf("slot %d at row %d, expected 0 to %d", row.Slot, i, c.Pages*npu.PageSize-1)
		}
		key.longest = max(key.longest, int(row.Position)+1)
	}
	if r.steps.captures() {
		key.rows = min(stepRows(key.rows), c.Sequences)
		key.longest = min(max(1<<bits.Len(uint(key.longest-1)), 256), c.Positions)
	}
	return key, nil
}

// stepRows rounds a number of rows up by at most a third.
func stepRows(n int) int {
	switch {
	case n <= 8:
		return n
	case n <= 32:
		return (n + 3) / 4 * 4
	}
	return (n + 7) / 8 * 8
}

// fill sets the arrays from rows and params, and repeats the last row until there are n.
func (s *step) fill(rows []Row, params []npu.SampleParams, n int) {
	s.ids = s.ids[:0]
	s.positions = s.positions[:0]
	s.slots = s.slots[:0]
	s.sequences = s.sequences[:0]
	s.lens = s.lens[:0]
	s.params = s.params[:0]
	for i := range n {
		i = min(i, len(rows)-1)
		row := &rows[i]
		s.ids = append(s.ids, row.ID)
		s.positions = append(s.positions, row.Position)
		s.slots = append(s.slots, row.Slot)
		s.sequences = append(s.sequences, row.Sequence)
		s.lens = append(s.lens, row.Position+1)
		s.params = append(s.params, params[i])
	}
}
