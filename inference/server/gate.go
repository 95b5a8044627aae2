package server

import (
	"sync"

	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/inference/server/internal/api"
	"github.com/easyrl/easyrl/inference/server/internal/wire"
)

// gate counts running completion requests and refuses new ones while the server drains.
// Its zero value is open.
type gate struct {
	mu       sync.Mutex
	draining bool
	active   int           // number of requests between begin and finish
	idle     chan struct{} // closed once active is 0; nil before whenIdle
}

// drain makes the gate refuse new requests.
func (g *gate) drain() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.draining = true
}

// drains reports whether the gate refuses new requests.
func (g *gate) drains() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.draining
}

// running returns the number of requests that have started and not ended.
func (g *gate) running() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.active
}

// whenIdle returns a channel that is closed when no request runs. Call it after drain, so that none
// can start later.
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

// begin counts a completion request until finish, or returns an error if the server drains. It marks
// the connection as busy until the answer has been sent.
func (g *gate) begin(ctx *fasthttp.RequestCtx) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.draining {
		return &api.Failure{Status: fasthttp.StatusServiceUnavailable, Kind: "draining",
			Message: "the server is draining and accepts no new requests", Retry: true}
	}
	g.active++
	if c, ok := ctx.Conn().(*wire.Conn); ok {
		c.Busy(true)
	}
	return nil
}

// finish ends a request counted by begin.
func (g *gate) finish() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.active--
	if g.active == 0 && g.idle != nil && g.draining {
		close(g.idle)
	}
}
