package server

import (
	"sync"

	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/inference/server/internal/reply"
	"github.com/easyrl/easyrl/inference/server/internal/wire"
)

// gate counts the requests for completions that run, and lets in no more when the
// server drains. Its zero value is open.
type gate struct {
	mu       sync.Mutex
	draining bool
	active   int           // requests for completions
	idle     chan struct{} // closed when active falls to 0; nil unless waited for
}

// drain lets in no more requests.
func (g *gate) drain() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.draining = true
}

// drains reports whether no more requests are let in.
func (g *gate) drains() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.draining
}

// running is the number of requests that have begun and not finished.
func (g *gate) running() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.active
}

// whenIdle is closed when no request runs.
func (g *gate) whenIdle() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.idle == nil {
		g.idle = make(chan struct{})
		if g.active == 0 {
			close(g.idle)
		}
	}
	return g.idle
}

// begin counts a request for completions, which ends with finish; its connection
// is busy until the answer is out.
func (g *gate) begin(ctx *fasthttp.RequestCtx) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.draining {
		return &reply.Failure{Status: fasthttp.StatusServiceUnavailable, Kind: "draining", Message: "the server takes no new requests", Retry: true}
	}
	g.active++
	if c, ok := ctx.Conn().(*wire.Conn); ok {
		c.Busy(true)
	}
	return nil
}

// finish ends what begin began.
func (g *gate) finish() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.active--
	if g.active == 0 && g.idle != nil && g.draining {
		close(g.idle)
	}
}
