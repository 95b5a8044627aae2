package membership

import (
	"context"
	"time"

	"github.com/easyrl/easyrl/inference/fleet"
	"github.com/easyrl/easyrl/internal/notice"
)

const (
	// evictAfter is how long a server may be silent before it is evicted.
	evictAfter = 10 * time.Minute
	// monitorInterval is the pause between checks.
	monitorInterval = time.Minute
)

// monitor evicts silent servers that joined at the control address. One goroutine uses it.
type monitor struct {
	servers  *servers
	isWanted func(url string) bool // reports whether the configuration or the watched list names a server
}

// run checks the servers until ctx ends.
func (m *monitor) run(ctx context.Context) {
	tick := time.NewTicker(monitorInterval)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			for _, srv := range m.unreachable(now) {
				m.evict(ctx, srv)
			}
		case <-ctx.Done():
			return
		}
	}
}

// unreachable returns the servers to evict: those that have been silent for evictAfter. A server is
// silent if the fleet has declared it DEAD or RETIRED, or if it has not taken the last weights.
func (m *monitor) unreachable(now time.Time) []*server {
	var all []*server
	for _, st := range m.servers.fleet.Status().Instances {
		srv := m.servers.get(st.ID)
		if srv == nil || m.isWanted(st.ID) {
			continue
		}
		silent := st.State == fleet.Dead || st.State == fleet.Retired || st.State == fleet.Stale && st.PublishFail != ""
		switch {
		case !silent:
			srv.silentSince = time.Time{}
		case srv.silentSince.IsZero():
			srv.silentSince = now
		case now.Sub(srv.silentSince) >= evictAfter:
			all = append(all, srv)
		}
	}
	return all
}

// evict removes a server. It may rejoin unless the fleet has retired it.
func (m *monitor) evict(ctx context.Context, srv *server) {
	in, ok := m.servers.instance(srv.ID())
	if !ok {
		return
	}
	m.servers.announcer.notes.Say(notice.Warning, "instance %s has been %s for %v; removing it", srv.ID(),
		in.State, evictAfter)
	if in.State != fleet.Retired.String() {
		m.servers.setEvicted(srv.ID())
	}
	m.servers.drop(ctx, srv)
}
