// Package replay caches graphs of kernel calls.
package replay

import "github.com/easyrl/easyrl/npu"

// most is the maximum number of graphs in a Cache.
const most = 128

// Cache keeps the graphs of earlier runs of kernels. A key must determine every argument of the
// kernels, but not the content of memory. A Cache is not safe for concurrent use.
type Cache[K comparable] struct {
	dev    npu.Device
	graphs map[K]npu.Graph // nil on a device without graphs
}

// New returns an empty cache. A nil device has no graphs.
func New[K comparable](dev npu.Device) *Cache[K] {
	c := &Cache[K]{dev: dev}
	if dev != nil && dev.Info().Graphs {
		c.graphs = map[K]npu.Graph{}
	}
	return c
}

// Captures reports whether the device captures kernels.
func (c *Cache[K]) Captures() bool { return c.graphs != nil }

// Run runs the kernels that record calls. It does not call record if it can replay them.
func (c *Cache[K]) Run(key K, record func()) error {
	if !c.Captures() {
		_, err := c.dev.Capture(record)
		return err
	}
	if g := c.graphs[key]; g != nil {
		if g.Replay() {
			return nil
		}
		g.Free()
		delete(c.graphs, key)
	}
	if len(c.graphs) == most {
		c.Free()
	}
	g, err := c.dev.Capture(record)
	if err != nil { // perhaps for lack of memory
		c.Free()
		if g, err = c.dev.Capture(record); err != nil {
			return err
		}
	}
	c.graphs[key] = g
	return nil
}

// Free frees all graphs.
func (c *Cache[K]) Free() {
	for _, g := range c.graphs {
		g.Free()
	}
	clear(c.graphs)
}
