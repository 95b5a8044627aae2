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
	Pages     int // number of pages, each of npu.PageSize positions
	Sequences int
	Positions int // maximum length of a sequence
}

// page returns the number of values of a page in the keys of a layer. Its values have as many.
func (s Shape) page() int { return npu.PageSize * s.Heads.KV * s.Heads.Dim }

// stride returns the maximum number of pages of a sequence.
func (s Shape) stride() int { return (s.Positions + npu.PageSize - 1) / npu.PageSize }

// Bytes returns the size of a cache: keys, values and page table.
func (s Shape) Bytes(n npu.Numerics) int64 {
	values, table := 2*s.Layers*s.Pages*s.page(), s.Sequences*s.stride()
	return int64(values)*int64(n.Type().Size()) + int64(table)*int64(npu.Int32.Size())
}

// Cache holds keys and values in pages, and a table of the pages of each sequence. SetPages
// changes the table on the host. Load adds the changes to a batch and, once the batch is uploaded,
// Apply writes them to the table on the device. A Cache is not safe for concurrent use.
type Cache struct {
	Shape
	K, V []npu.Buffer // keys and values by layer

	dev    npu.Device
	buffer npu.Buffer // memory of K and V
	table  npu.Buffer // Int32 [Sequences, stride]
	known  []int      // number of pages of each sequence
	last   int32      // largest page ever in the table

	changed        map[int32]int32 // changes that Load has not taken yet: pages by index in the table
	places, values []int32         // scratch of Load
}

// New allocates a cache.
func New(dev npu.Device, s Shape) (*Cache, error) {
	n := s.Pages * s.page()
	buf, err := dev.Alloc(dev.Info().Numerics.Type(), 2*s.Layers*n, npu.KV)
	if err != nil {
		return nil, fmt.Errorf("allocate key-value cache of %d pages: %w", s.Pages, err)
	}
	table, err := dev.Alloc(npu.Int32, s.Sequences*s.stride(), npu.KV)
	if err != nil {
		dev.Free(buf)
		return nil, fmt.Errorf("allocate table of pages of %d sequences: %w", s.Sequences, err)
	}
	dev.Zero(table)
	c := &Cache{Shape: s, dev: dev, buffer: buf, table: table, known: make([]int, s.Sequences),
		changed: map[int32]int32{}}
	for l := range s.Layers {
		start := 2 * l * n
		c.K = append(c.K, buf.Slice(start, start+n))
		c.V = append(c.V, buf.Slice(start+n, start+2*n))
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

// SetPages replaces the pages of a sequence from its page number first on. It panics if the
// sequence or a page does not exist, if the sequence has fewer than first pages, or if it would
// have more than its maximum.
func (c *Cache) SetPages(sequence int32, first int, pages []int32) {
	if sequence < 0 || int(sequence) >= c.Sequences || first < 0 || first > c.known[sequence] ||
		first+len(pages) > c.stride() {
		panic(fmt.Sprintf(
			"cache: pages from %d to %d of sequence %d, expected up to %d pages of %d sequences, without a gap",
			first, first+len(pages), sequence, c.stride(), c.Sequences))
	}
	for i, page := range pages {
		if page < 0 || int(page) >= c.Pages {
			panic(fmt.Sprintf("cache: page %d, expected 0 to %d", page, c.Pages-1))
		}
		c.changed[sequence*int32(c.stride())+int32(first+i)] = page
		c.last = max(c.last, page)
	}
	c.known[sequence] = first + len(pages)
}

// Holds reports whether a sequence exists and has a page for a position.
func (c *Cache) Holds(sequence, position int32) bool {
	return sequence >= 0 && int(sequence) < c.Sequences && position >= 0 &&
		int(position)/npu.PageSize < c.known[sequence]
}

// Changes returns the number of values that Load adds to a batch.
func (c *Cache) Changes() int { return 2 * len(c.changed) }

// Load adds the changes of the table to b, as arguments of Apply: indices in the table and their
// new values.
func (c *Cache) Load(b *npu.Batch) (places, values npu.Ints) {
	c.places, c.values = c.places[:0], c.values[:0]
	for place, page := range c.changed {
		c.places = append(c.places, place)
		c.values = append(c.values, page)
	}
	clear(c.changed)
	return b.Ints(c.places), b.Ints(c.values)
}

// Apply writes changes that Load returned to the table. The batch must have been uploaded.
func (c *Cache) Apply(places, values npu.Ints) {
	if places.Len() > 0 {
		c.dev.SetInts(c.table, places, values)
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
