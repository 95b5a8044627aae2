// Package replay runs kernels again by replaying them, on devices that can.
package replay

import "github.com/easyrl/easyrl/npu"

// most is the maximum number of graphs that Runs keeps.
const most = 128

// Runs keeps the graphs of earlier runs of kernels. A key stands for all arguments of a run's
// kernels, but not for the content of memory. Runs is not safe for concurrent use.
type Runs[K comparable] struct {
	dev    npu.Device
	graphs map[K]npu.Graph // nil on a device without graphs
}

// New returns an empty Runs. A nil device has no graphs.
func New[K comparable](dev npu.Device) *Runs[K] {
	r := &Runs[K]{dev: dev}
	if dev != nil && dev.Info().Graphs {
		r.graphs = map[K]npu.Graph{}
	}
	return r
}

// Captures reports whether the device captures kernels.
func (r *Runs[K]) Captures() bool { return r.graphs != nil }

// Run runs the kernels that record calls. It does not call record if it can replay them.
func (r *Runs[K]) Run(key K, record func()) error {
	if !r.Captures() {
		_, err := r.dev.Capture(record)
		return err
	}
	if g := r.graphs[key]; g != nil {
		if g.Replay() {
			return nil
		}
		g.Free()
		delete(r.graphs, key)
	}
	if len(r.graphs) == most {
		r.Free()
	}
	g, err := r.dev.Capture(record)
	if err == nil {
		r.graphs[key] = g
	}
	return err
}

// Free frees all graphs.
func (r *Runs[K]) Free() {
	for _, g := range r.graphs {
		g.Free()
	}
	clear(r.graphs)
}
