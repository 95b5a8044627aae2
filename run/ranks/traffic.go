package ranks

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/easyrl/easyrl/parallel"
)

// counters count the bytes of a rank by purpose.
type counters struct {
	tensor, pipeline, data atomic.Int64 // bytes sent on the axes tp, pp and dp
	values                 atomic.Int64 // bytes of weights and moments received from other processes
}

// counted is a transport of one rank that counts bytes.
type counted struct {
	parallel.Transport
	*counters
}

// Send implements parallel.Transport.
func (c counted) Send(ctx context.Context, to parallel.Envelope, data []byte) error {
	switch strings.TrimSuffix(to.Channel, "/send") { // names of the groups of tri_model/sharded
	case "tp":
		c.tensor.Add(int64(len(data)))
	case "pp", "tied":
		c.pipeline.Add(int64(len(data)))
	case "dp", "zero":
		c.data.Add(int64(len(data)))
	}
	return c.Transport.Send(ctx, to, data)
}

// Recv implements parallel.Transport.
func (c counted) Recv(ctx context.Context, from parallel.Envelope, into []byte) error {
	if strings.HasPrefix(from.Channel, "values") {
		c.values.Add(int64(len(into)))
	}
	return c.Transport.Recv(ctx, from, into)
}

// viewed is a counted transport within this process, whose receivers may view messages in place instead of copying
// them. Views need not be counted: groups view only what they add up, never weights or moments.
type viewed struct {
	counted
	parallel.Viewer
}

// countBytes wraps the transports of this process's ranks so that they count. counts has the counters in the same
// order.
func countBytes(ends []parallel.Transport) (counting []parallel.Transport, counts []*counters) {
	for _, end := range ends {
		c := &counters{}
		counts = append(counts, c)
		counting = append(counting, c.count(end))
	}
	return counting, counts
}

// count wraps a transport of the rank so that it counts.
func (c *counters) count(end parallel.Transport) parallel.Transport {
	if v, ok := end.(parallel.Viewer); ok {
		return viewed{counted{end, c}, v}
	}
	return counted{end, c}
}

// Traffic returns the bytes since the last call, by purpose. "tp", "pp" and "dp" are the maximum that a rank of this
// process sent on that axis; an axis of one rank is missing. "publish" is what rank 0 received from other processes
// to publish and save.
func (m *Mesh) Traffic() map[string]int64 {
	all := map[string]int64{"publish": m.counts[0].values.Swap(0)}
	for _, c := range m.counts {
		all["tp"] = max(all["tp"], c.tensor.Swap(0))
		all["pp"] = max(all["pp"], c.pipeline.Swap(0))
		all["dp"] = max(all["dp"], c.data.Swap(0))
	}
	for axis, ranks := range map[string]int{"tp": m.mesh.TP, "pp": m.mesh.PP, "dp": m.mesh.DP} {
		if ranks == 1 {
			delete(all, axis)
		}
	}
	return all
}
