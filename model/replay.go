package model

import "github.com/easyrl/easyrl/npu"

// maxGraphs is the maximum number of graphs in a graphCache.
const maxGraphs = 128

// graphCache keeps the graphs of earlier runs of kernels by a key. A key must determine every
// argument of the kernels, because a replay repeats them; the values in memory may differ. A key need
// not change when memory is freed and allocated again: Graph.Replay refuses, and run records the
// kernels again. The cache owns the graphs. When it is full or memory is short, it frees all of them.
// A graphCache is not safe for concurrent use.
type graphCache[K comparable] struct {
	dev    npu.Device
	graphs map[K]npu.Graph // nil on a device without graphs
}

// newGraphCache returns an empty cache. A nil device has no graphs.
func newGraphCache[K comparable](dev npu.Device) *graphCache[K] {
	c := &graphCache[K]{dev: dev}
	if dev != nil && dev.Info().Graphs {
		c.graphs = map[K]npu.Graph{}
	}
	return c
}

// captures reports whether the device captures kernels.
func (c *graphCache[K]) captures() bool { return c.graphs != nil }

// run runs the kernels that record calls, or replays the graph of an earlier run with this key.
func (c *graphCache[K]) run(key K, record func()) error {
	if !c.captures() {
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
	if len(c.graphs) == maxGraphs {
		c.free()
	}
	g, err := c.dev.Capture(record)
	if err != nil { // perhaps for lack of memory
		c.free()
		g, err = c.dev.Capture(record)
		if err != nil {
			return err
		}
	}
	c.graphs[key] = g
	return nil
}

// free frees all graphs.
func (c *graphCache[K]) free() {
	for _, g := range c.graphs {
		g.Free()
	}
	clear(c.graphs)
}
