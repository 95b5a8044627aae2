//go:build cgo

package ctable

// #include "table.h"
import "C"

import (
	"fmt"

	"github.com/easyrl/easyrl/npu"
)

// event is a point in a queue. It does not refer to the device, because Free may run on another
// goroutine.
type event struct {
	t C.table
	e C.event
}

// Free implements npu.Event.
func (e *event) Free() { C.t_event_free(e.t, e.e) }

// Record implements npu.Device.
func (d *device) Record() (npu.Event, error) {
	d.check.OutsideCapture("event")
	if !d.events {
		return nil, nil
	}
	e := C.t_record(d.t, d.d)
	if e == 0 {
		return nil, fmt.Errorf("device %s: event: out of memory", d.name)
	}
	return &event{d.t, e}, nil
}

// Await implements npu.Device.
func (d *device) Await(e npu.Event) {
	d.check.OutsideCapture("event")
	if e != nil {
		C.t_await(d.t, d.d, e.(*event).e)
	}
}

// graph is a list of recorded calls.
type graph struct {
	*device
	g    C.graph                  // freed by Free or by the device's Close
	used map[*npu.Allocation]bool // memory that the calls use
}

// Capture implements npu.Device.
func (d *device) Capture(record func()) (npu.Graph, error) {
	if !d.graphs {
		d.check.Capture(record)
		return nil, nil
	}
	g := &graph{device: d}
	complete := false // record returned
	g.used = d.check.CaptureUses(func() {
		C.t_capture(d.t, d.d)
		defer func() {
			g.g = C.t_captured(d.t, d.d, d.err, errLen) // ends the capture, also after a panic
			if g.g != 0 && !complete {
				g.Free()
			}
		}()
		record()
		complete = true
	})
	if g.g == 0 {
		return nil, fmt.Errorf("device %s: capture: %s", d.name, C.GoString(d.err))
	}
	if !g.Replay() { // record freed nothing, but another queue may have
		g.Free()
		return nil, fmt.Errorf("device %s: capture: memory that the kernels use has been freed", d.name)
	}
	return g, nil
}

// Replay implements npu.Graph. It returns false after the device's Close too.
func (g *graph) Replay() bool {
	g.check.OutsideCapture("replay")
	if g.d == 0 {
		return false
	}
	for a := range g.used {
		if a.Freed() {
			return false
		}
	}
	C.t_replay(g.t, g.d, g.g)
	return true
}

// Free implements npu.Graph.
func (g *graph) Free() {
	if g.d != 0 { // else Close has freed it
		C.t_graph_free(g.t, g.d, g.g)
	}
}
