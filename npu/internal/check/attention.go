package check

import "github.com/easyrl/easyrl/npu"

// StatsLen returns the length of the statistics for q.
func StatsLen(q npu.Buffer, h npu.Heads) int { return q.Len() / h.Dim * 2 }

func heads(h npu.Heads) {
	if h.Q <= 0 || h.KV <= 0 || h.Dim <= 0 || h.Q%h.KV != 0 {
		fail("attention: %d query and %d key-value heads of %d, expected Q to be a multiple of KV", h.Q, h.KV, h.Dim)
	}
}

// Attention checks the operands of an attention.
func (d *Device) Attention(out, q, k, v npu.Buffer, s npu.Segments, h npu.Heads) {
	heads(h)
	t := q.Len() / (h.Q * h.Dim)
	d.Len("attention: q", q, t*h.Q*h.Dim, false)
	d.Len("attention: out", out, q.Len(), false)
	d.Len("attention: k", k, t*h.KV*h.Dim, false)
	d.Len("attention: v", v, t*h.KV*h.Dim, false)
	d.Buffer("attention: segments", s.Buffer, npu.Int32, 3*s.N, false)
	if s.Rows > t {
		fail("attention: segments of %d rows, expected at most %d", s.Rows, t)
	}
}

// cache checks that both halves of a cache consist of whole pages and returns their number.
func (d *Device) cache(cacheK, cacheV npu.Buffer, h npu.Heads) int {
	heads(h)
	page := npu.PageSize * h.KV * h.Dim
	d.Len("cache: keys", cacheK, cacheK.Len(), false)
	d.Len("cache: values", cacheV, cacheK.Len(), false)
	if cacheK.Len()%page != 0 {
		fail("cache: %d values, expected a multiple of the page size %d", cacheK.Len(), page)
	}
	return cacheK.Len() / page
}

// CacheWrite checks a write of rows to slots.
func (d *Device) CacheWrite(cacheK, cacheV, k, v npu.Buffer, slots npu.Ints, h npu.Heads) {
	pages := d.cache(cacheK, cacheV, h)
	d.Len("cache write: k", k, slots.Len()*h.KV*h.Dim, false)
	d.Len("cache write: v", v, slots.Len()*h.KV*h.Dim, false)
	d.Indices("cache write: slots", slots, -1, pages*npu.PageSize)
}

// AttentionCached checks an attention over a cache. Batch.Tables has checked the lengths.
func (d *Device) AttentionCached(out, q, cacheK, cacheV npu.Buffer, t *npu.Tables, h npu.Heads) {
	pages, n := d.cache(cacheK, cacheV, h), t.Lens.Len()
	d.Len("cached attention: q", q, n*h.Q*h.Dim, false)
	d.Len("cached attention: out", out, n*h.Q*h.Dim, false)
	d.Indices("cached attention: pages", t.Pages, -1, pages)
	d.Indices("cached attention: rows", t.Rows, n, t.Pages.Len()/t.Stride)
	d.Buffer("cached attention: lengths", t.Lens.Buffer, npu.Int32, n, false)
}
