// Package cache holds the keys and values of sequences in pages of a device's memory.
package cache

import (
	"fmt"

	"github.com/easyrl/easyrl/npu"
)

// Shape is the size of a cache.
type Shape struct {
	Layers    int
	Heads     npu.Heads
	Pages     int // of npu.PageSize positions
	Sequences int
	Positions int // maximum length of a sequence
}

// page returns the number of values of a page in the keys, or the values, of a layer.
func (s Shape) page() int { return npu.PageSize * s.Heads.KV * s.Heads.Dim }

// stride returns the maximum number of pages of a sequence.
func (s Shape) stride() int { return (s.Positions + npu.PageSize - 1) / npu.PageSize }

// Bytes returns the size of a cache.
func (s Shape) Bytes() int64 {
	return 4 * (2*int64(s.Layers)*int64(s.Pages)*int64(s.page()) + int64(s.Sequences)*int64(s.stride()))
}

// Cache holds keys and values in pages, and the table of the pages of each sequence. It is
// not safe for concurrent use.
type Cache struct {
	Shape
	K, V []npu.Buffer // of each layer

	dev         npu.Device
	buffer      npu.Buffer
	table       npu.Buffer // Int32 [Sequences, stride]
	at, changed []int32    // changes of the table that Load sends
	apply       [2]npu.Ints
	last        int32 // greatest page in the table
}

// New allocates a cache.
func New(dev npu.Device, s Shape) (*Cache, error) {
	n := s.Pages * s.page()
	buf, err := dev.Alloc(npu.Float32, 2*s.Layers*n, npu.KV)
	if err != nil {
		return nil, fmt.Errorf("allocate key-value cache of %d pages: %w", s.Pages, err)
	}
	table, err := dev.Alloc(npu.Int32, s.Sequences*s.stride(), npu.KV)
	if err != nil {
		dev.Free(buf)
		return nil, fmt.Errorf("allocate table of pages of %d sequences: %w", s.Sequences, err)
	}
	c := &Cache{Shape: s, dev: dev, buffer: buf, table: table}
	for l := range s.Layers {
		at := 2 * l * n
		c.K, c.V = append(c.K, buf.Slice(at, at+n)), append(c.V, buf.Slice(at+n, at+2*n))
	}
	return c, nil
}

// CopyPage copies page src to page dst in all layers.
func (c *Cache) CopyPage(dst, src int32) {
	n := c.page()
	d, s := int(dst)*n, int(src)*n
	for l := range c.K {
		c.dev.Copy(c.K[l].Slice(d, d+n), c.K[l].Slice(s, s+n))
		c.dev.Copy(c.V[l].Slice(d, d+n), c.V[l].Slice(s, s+n))
	}
}

// SetPages sets page first of a sequence, and those that follow, from the next Load on. It
// panics if a sequence or a page does not exist.
func (c *Cache) SetPages(sequence int32, first int, pages []int32) {
	if sequence < 0 || int(sequence) >= c.Sequences || first < 0 || first+len(pages) > c.stride() {
		panic(fmt.Sprintf("cache: pages %d to %d of sequence %d, expected %d pages of %d sequences", first, first+len(pages)-1, sequence, c.stride(), c.Sequences))
	}
	for i, page := range pages {
		if page < 0 || int(page) >= c.Pages {
			panic(fmt.Sprintf("cache: page %d, expected 0 to %d", page, c.Pages-1))
		}
		c.at, c.changed = append(c.at, sequence*int32(c.stride())+int32(first+i)), append(c.changed, page)
		c.last = max(c.last, page)
	}
}

// Changes returns the number of values that Load adds.
func (c *Cache) Changes() int { return 2 * len(c.at) }

// Load adds the changed pages to b. Apply follows b's Upload.
func (c *Cache) Load(b *npu.Batch) {
	c.apply = [2]npu.Ints{b.Ints(c.at), b.Ints(c.changed)}
	c.at, c.changed = c.at[:0], c.changed[:0]
}

// Apply writes the loaded changes to the table of pages.
func (c *Cache) Apply() {
	if c.apply[0].Len() > 0 {
		c.dev.SetInts(c.table, c.apply[0], c.apply[1])
	}
}

// Tables adds to b the sequences of a decode step and their lengths in positions.
func (c *Cache) Tables(b *npu.Batch, sequences, lens []int32) npu.Tables {
	return b.Tables(npu.Ints{Buffer: c.table, Max: c.last}, c.stride(), sequences, lens)
}

// Close frees the cache.
func (c *Cache) Close() {
	c.dev.Free(c.buffer)
	c.dev.Free(c.table)
}
