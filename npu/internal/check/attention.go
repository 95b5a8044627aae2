package check

import "github.com/easyrl/easyrl/npu"

// StatsLen returns the number of values in the statistics [T, Q, 2] of an attention whose
// queries are q.
func StatsLen(q npu.Buffer, h npu.Heads) int { return q.Len() / h.Dim * 2 }

// heads requires positive dimensions and the same number of query heads per key-value head.
func heads(h npu.Heads) {
	if h.Window < 0 {
		fail("attention: a window of %d, expected at least 1, or 0 for all keys", h.Window)
	}
	if h.Q <= 0 || h.KV <= 0 || h.Dim <= 0 || h.Q%h.KV != 0 {
		fail("attention: %d query and %d key-value heads of %d, expected Q to be a multiple of KV", h.Q, h.KV, h.Dim)
	}
}

// Attention checks the operands of Attention except stats. The number of rows follows from q.
func (d *Device) Attention(out, q, k, v npu.Buffer, s npu.Segments, h npu.Heads) {
	heads(h)
	t := q.Len() / (h.Q * h.Dim)
	d.Values("attention: q", q, t*h.Q*h.Dim)
	d.Values("attention: out", out, q.Len())
	d.Values("attention: k", k, t*h.KV*h.Dim)
	d.Values("attention: v", v, t*h.KV*h.Dim)
	d.Buffer("attention: segments", s.Buffer, npu.Int32, 4*s.N)
	d.Buffer("attention: tiles", s.Tiles, npu.Int32, s.Tiles.Len())
	if s.Rows > t {
		fail("attention: segments of %d rows, expected at most %d", s.Rows, t)
	}
}

// cache requires keys and values to consist of the same number of complete pages and returns
// that number.
func (d *Device) cache(cacheK, cacheV npu.Buffer, h npu.Heads) int {
	heads(h)
	page := npu.PageSize * h.KV * h.Dim
	d.Values("cache: keys", cacheK, cacheK.Len())
	d.Values("cache: values", cacheV, cacheK.Len())
	if cacheK.Len()%page != 0 {
		fail("cache: %d values, expected a multiple of the page size %d", cacheK.Len(), page)
	}
	return cacheK.Len() / page
}

// CacheWrite checks the operands of CacheWrite.
func (d *Device) CacheWrite(cacheK, cacheV, k, v npu.Buffer, slots npu.Ints, h npu.Heads) {
	pages := d.cache(cacheK, cacheV, h)
	d.Values("cache write: k", k, slots.Len()*h.KV*h.Dim)
	d.Values("cache write: v", v, slots.Len()*h.KV*h.Dim)
	d.Indices("cache write: slots", slots, pages*npu.PageSize)
}

// AttentionCached checks the operands of AttentionCached. Batch.Tables has checked the bounds
// of t.Lens and made t.Blocks.
func (d *Device) AttentionCached(out, q, cacheK, cacheV npu.Buffer, t *npu.Tables, h npu.Heads) {
	pages, n := d.cache(cacheK, cacheV, h), t.Lens.Len()
	d.Values("cached attention: q", q, n*h.Q*h.Dim)
	d.Values("cached attention: out", out, n*h.Q*h.Dim)
	d.Indices("cached attention: pages", t.Pages, pages)
	same("cached attention: rows", t.Rows.Len(), n)
	d.Indices("cached attention: rows", t.Rows, t.Pages.Len()/t.Stride)
	d.Buffer("cached attention: lengths", t.Lens.Buffer, npu.Int32, n)
	d.Buffer("cached attention: blocks", t.Blocks.Buffer, npu.Int32, n+1)
}
