package membership

import (
	"context"
	"sync"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/easyrl/easyrl/inference/discover"
	"github.com/easyrl/easyrl/inference/remote"
	"github.com/easyrl/easyrl/internal/notice"
)

const (
	// reconnectInterval is the pause between attempts to reach a server.
	reconnectInterval = 5 * time.Second
	// watchInterval is the pause between reads of the watched list.
	watchInterval = 5 * time.Second
	// drainTimeout limits how long a server that left the list may finish its requests.
	drainTimeout = 5 * time.Minute
)

// connector connects to the servers in the configuration and on the watched list, and
// drains those that leave the list. connect, claim, reconnect and watch are called once, in this
// order.
type connector struct {
	cfg     *Config
	servers *servers
	ctx     context.Context // parent of its goroutines' contexts
	tasks   *conc.WaitGroup // counts its goroutines

	mu          sync.Mutex
	unreachable []remote.Endpoint             // configured servers for reconnect
	wanted      map[string]context.CancelFunc // servers to be in the fleet, by URL; cancel makes one leave
}

// connect connects to all configured servers at once and returns, at each server's index,
// why it could not be added, or nil. reconnect tries those servers again.
func (c *connector) connect(ctx context.Context) []error {
	faults := make([]error, len(c.cfg.Endpoints))
	var calls sync.WaitGroup
	for i, e := range c.cfg.Endpoints {
		calls.Go(func() { _, faults[i] = c.servers.add(ctx, e) })
	}
	calls.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, e := range c.cfg.Endpoints {
		c.wanted[e.URL] = func() {} // configured servers never leave
		if faults[i] != nil {
			c.unreachable = append(c.unreachable, e)
		}
	}
	return faults
}

// claim claims the connected servers and makes servers.add claim later ones. A server that cannot be
// claimed, for example because another run has claimed it since connect, leaves; reconnect tries it
// again.
func (c *connector) claim(ctx context.Context) {
	all := c.servers.claimAll()
	lost := make([]bool, len(all))
	var calls sync.WaitGroup
	for i, srv := range all {
		calls.Go(func() {
			lost[i] = srv.Claim(ctx) != nil // reconnect reports the error
			if lost[i] {
				c.servers.drop(ctx, srv)
			}
		})
	}
	calls.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, srv := range all {
		if lost[i] {
			c.unreachable = append(c.unreachable, srv.endpoint)
		}
	}
}

// reconnect starts connecting to the configured servers that could not be added or claimed.
func (c *connector) reconnect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.unreachable {
		c.wanted[e.URL] = c.want(e)
	}
}

// want connects to a server in the background, retrying until it succeeds. cancel ends the attempts,
// or drains and removes the server.
func (c *connector) want(e remote.Endpoint) (cancel context.CancelFunc) {
	ctx, cancel := context.WithCancel(c.ctx)
	c.tasks.Go(func() {
		if c.retry(ctx, e) {
			srv := c.servers.get(e.URL)
			<-ctx.Done()
			c.release(srv)
		}
	})
	return cancel
}

// isWanted reports whether the configuration or the list names a server.
func (c *connector) isWanted(url string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.wanted[url]
	return ok
}

// retry tries to add a server until it is in the fleet. It returns false if ctx ends first.
func (c *connector) retry(ctx context.Context, e remote.Endpoint) bool {
	last := ""
	for {
		_, err := c.servers.add(ctx, e)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if err.Error() != last {
			c.note("%s; retrying until it responds", oneLine(err.Error()))
			last = err.Error()
		}
		pause := time.NewTimer(reconnectInterval)
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
		pause.Stop()
	}
}

// watch follows the watched list, if there is one.
func (c *connector) watch() {
	if c.cfg.Watch == "" {
		return
	}
	c.tasks.Go(func() {
		check := func(text string) error {
			_, err := remote.ParseEndpoint(text, c.cfg.Kind)
			return err
		}
		err := discover.Watch(c.ctx, c.cfg.Watch, watchInterval, check, func(list []string, err error) {
			if err == nil {
				err = c.follow(list)
			}
			if err != nil {
				c.note("inference.watch: %s; keeping the current instances", oneLine(err.Error()))
			}
		})
		if err != nil && c.ctx.Err() == nil {
			c.note("inference.watch: %s", oneLine(err.Error()))
		}
	})
}

// follow connects to servers that are new in list and drains those that left it. Configured
// servers stay. An invalid list changes nothing.
func (c *connector) follow(list []string) error {
	listed := map[string]remote.Endpoint{}
	for _, text := range list {
		e, err := remote.ParseEndpoint(text, c.cfg.Kind)
		if err != nil {
			return err
		}
		listed[e.URL] = e
	}
	for _, e := range c.cfg.Endpoints {
		listed[e.URL] = e
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for url, cancel := range c.wanted {
		if _, ok := listed[url]; !ok {
			cancel()
			delete(c.wanted, url)
		}
	}
	for url, e := range listed {
		if _, ok := c.wanted[url]; !ok {
			c.wanted[url] = c.want(e)
		}
	}
	return nil
}

// release drains srv for at most drainTimeout and removes it. It does nothing if srv is nil, has been
// replaced, or c is closing.
func (c *connector) release(srv *server) {
	if srv == nil || c.ctx.Err() != nil || c.servers.get(srv.ID()) != srv {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, drainTimeout)
	defer cancel()
	c.servers.announcer.notes.Say(notice.Progress, "instance %s is no longer on the inference.watch list; draining it",
		srv.ID())
	_ = c.servers.fleet.Drain(ctx, srv) // on a timeout, drop ends its requests
	c.servers.drop(c.ctx, srv)
}

// note reports a warning.
func (c *connector) note(format string, args ...any) {
	c.servers.announcer.notes.Say(notice.Warning, format, args...)
}
