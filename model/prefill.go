package model

import (
	"fmt"
	"slices"

	"github.com/easyrl/easyrl/attention/cache"
	"github.com/easyrl/easyrl/model/layer"
	"github.com/easyrl/easyrl/npu"
)

// Chunk is a run of tokens of a sequence.
type Chunk struct {
	Tokens []int32
	First  int     // position of the first token; the cache has the keys and values of those before
	Pages  []int32 // the sequence's pages in the cache, from position 0 on
}

// Prefill runs chunks of different sequences, writes their keys and values to the cache, and returns the
// logits [len(want), V] of the rows in want. Rows are the tokens of all chunks, in order. The
// logits are valid until the next call. The device's next Sync reports failures.
func (r *Runner) Prefill(w *Weights, c *cache.Cache, chunks []Chunk, want []int32) (npu.Buffer, error) {
	s := &r.chunks
	if err := s.fill(chunks, c.Pages); err != nil {
		return npu.Buffer{}, err
	}
	n := len(s.ids)
	if err := r.check(n); err != nil {
		return npu.Buffer{}, err
	}
	if len(want) > n {
		return npu.Buffer{}, fmt.Errorf("logits requested for %d rows, expected at most the %d that run", len(want), n)
	}
	if err := checkTokens(r.cfg.VocabSize, s.ids); err != nil {
		return npu.Buffer{}, err
	}
	if err := r.batch.Begin(6*n + 1 + len(want) + len(s.pages)); err != nil {
		return npu.Buffer{}, err
	}
	logits, err := r.begin(n, len(want), slices.Max(s.positions))
	if err != nil {
		return npu.Buffer{}, err
	}
	r.runRows = n
	b, d := r.batch, r.cfg.HiddenSize
	ids, wanted, slots := b.Ints(s.ids), b.Ints(want), b.Ints(s.slots)
	tables := b.Tables(b.Ints(s.pages), len(s.pages)/len(chunks), s.sequences, s.lens)
	r.pass.Positions = b.Ints(s.positions)
	b.Upload()
	r.kv = layer.Cache{K: c.K, V: c.V, Slots: slots, Tables: &tables}
	out := r.layers(w, ids)
	x := r.last.Slice(0, len(want)*d)
	r.dev.GatherRows(x, out, wanted, d)
	r.project(w, logits, x, len(want))
	return logits, nil
}

// chunkArrays holds the index arrays of chunks on the host.
type chunkArrays struct {
	ids, positions, slots, sequences, lens []int32 // by row; a sequence is the index of a chunk
	pages                                  []int32 // [chunks, stride]
}

// fill sets the arrays from chunks, whose pages are those of a cache of a number of pages.
func (a *chunkArrays) fill(chunks []Chunk, pages int) error {
	a.ids, a.positions, a.slots = a.ids[:0], a.positions[:0], a.slots[:0]
	a.sequences, a.lens, a.pages = a.sequences[:0], a.lens[:0], a.pages[:0]
	stride := 0
	for i := range chunks {
		chunk := &chunks[i]
		used := (chunk.First + len(chunk.Tokens) + npu.PageSize - 1) / npu.PageSize
		if chunk.First < 0 || used > len(chunk.Pages) {
			return fmt.Errorf("chunk %d has positions from %d to %d in %d pages", i, chunk.First,
				chunk.First+len(chunk.Tokens)-1, len(chunk.Pages))
		}
		for _, page := range chunk.Pages[:used] {
			if page < 0 || int(page) >= pages {
				return fmt.Errorf("chunk %d has page %d, expected 0 to %d", i, page, pages-1)
			}
		}
		stride = max(stride, used)
	}
	for i := range chunks {
		chunk := &chunks[i]
		for j, id := range chunk.Tokens {
			p := chunk.First + j
			a.ids = append(a.ids, id)
			a.positions = append(a.positions, int32(p))
			a.slots = append(a.slots, chunk.Pages[p/npu.PageSize]*npu.PageSize+int32(p%npu.PageSize))
			a.sequences = append(a.sequences, int32(i))
			a.lens = append(a.lens, int32(p+1))
		}
		own := chunk.Pages[:min(stride, len(chunk.Pages))]
		a.pages = append(a.pages, own...)
		for range stride - len(own) {
			a.pages = append(a.pages, 0)
		}
	}
	return nil
}
