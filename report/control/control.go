// Package control serves a live run over HTTP: its page, its metrics and its
// instances.
package control

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/internal/accept"
	"github.com/easyrl/easyrl/internal/guard"
	"github.com/easyrl/easyrl/report"
)

// Server serves a live run. GET / is the live page, which calls paths below /page/.
// GET /status returns the last step's values as JSON, GET /metrics returns them for Prometheus, and GET
// /events streams steps, warnings and changes of instances. /instances lists, adds, drains and removes
// instances. A Server is safe for concurrent use. All methods of a nil *Server do nothing.
type Server struct {
	guard    *guard.Guard
	server   *fasthttp.Server
	listener net.Listener
	served   sync.WaitGroup  // the goroutine of server
	ctx      context.Context // canceled by Close
	cancel   context.CancelFunc

	dir     string // folder of the run
	boot    string // random ID, new whenever the run restarts
	history history
	shell   []byte           // the page without content
	parts   map[string]*part // the page's content, by name

	mu        sync.Mutex    // guards the following
	last      report.Values // values of the last step; nil before the first
	left      string        // estimated time for the steps after last, in words
	instances Instances     // nil if the run has no instances that clients can change
	kinds     []string      // kinds of server that can be added to instances
	stateList []string      // states that instances can have
	listeners listeners
	journal   journal
}

const (
	controlBody  = 1 << 16          // max. bytes of a request's body
	controlRead  = 10 * time.Second // how long a client may take to send a request
	controlWrite = 30 * time.Second // how long a client may take to read a response
)

// New listens on addr for the run in dir and serves until Close. If token is not empty, requests other
// than those for the empty page and its script need "Authorization: Bearer token". An address other
// than loopback requires a token.
func New(addr, token, dir string) (*Server, error) {
	empty, err := shell(token != "")
	if err != nil {
		return nil, fmt.Errorf("live page: %w", err)
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("control address: %w", err)
	}
	if tcp, ok := listener.Addr().(*net.TCPAddr); ok && token == "" && !tcp.IP.IsLoopback() {
		return nil, errors.Join(fmt.Errorf(
			"control address %s is beyond loopback and needs a token. Set control.token_file", addr), listener.Close())
	}
	boot := make([]byte, 16)
	_, _ = rand.Read(boot) // never fails
	c := &Server{guard: guard.New(addr, token), listener: accept.New(listener), listeners: listeners{},
		dir: dir, boot: hex.EncodeToString(boot), shell: empty, parts: liveParts()}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.server = &fasthttp.Server{Handler: c.handle, Name: "easyrl", ReadTimeout: controlRead, WriteTimeout: controlWrite,
		IdleTimeout: time.Minute, MaxRequestBodySize: controlBody, DisablePreParseMultipartForm: true,
		CloseOnShutdown: true, Logger: silent{}, ErrorHandler: refuseMalformed}
	c.served.Go(func() { _ = c.server.Serve(c.listener) }) // Close ends it
	return c, nil
}

// refuseMalformed answers a request that could not be read. A timeout gets status
// 408: a browser that opens a connection in advance retries after 408, but not
// after 400.
func refuseMalformed(ctx *fasthttp.RequestCtx, err error) {
	var late net.Error
	switch {
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		refuse(ctx, fasthttp.StatusRequestEntityTooLarge, "body is too large, expected at most %d bytes", controlBody)
		return
	case errors.As(err, &late) && late.Timeout():
		refuse(ctx, fasthttp.StatusRequestTimeout, "no request within %v", controlRead)
		return
	}
	refuse(ctx, fasthttp.StatusBadRequest, "malformed request: %v", err)
}

// silent discards the server's log of bad connections.
type silent struct{}

func (silent) Printf(string, ...any) {}

// Addr returns the address listened on, or "" for a nil Server.
func (c *Server) Addr() string {
	if c == nil {
		return ""
	}
	return c.listener.Addr().String()
}

// Step publishes a finished step. It keeps values, which must not change afterwards. left is the estimated
// time for the remaining steps, in words, or "".
func (c *Server) Step(values report.Values, left string) {
	if c == nil {
		return
	}
	c.history.add(values)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.left = values, left
	c.listeners.broadcast("step", values.Line())
}

// Close stops serving, closes all connections and waits until the server's goroutine has ended.
func (c *Server) Close() {
	if c == nil {
		return
	}
	c.cancel()
	_ = c.server.Shutdown() // fails only if closing the listener does
	_ = c.listener.Close()  // Shutdown does not know the listener if Serve has not started
	c.served.Wait()
}

// handle answers a request.
func (c *Server) handle(ctx *fasthttp.RequestCtx) {
	path := string(ctx.URI().PathOriginal())
	if denied := c.guard.Check(ctx, isShell(ctx, path)); denied != nil {
		refuse(ctx, denied.Status, "%s", denied.Message)
		return
	}
	switch {
	case isShell(ctx, path):
		c.serveShell(ctx, path)
		return
	case path == "/instances" || strings.HasPrefix(path, "/instances/"):
		c.serveInstances(ctx, path)
		return
	case path == "/events":
		c.serveEvents(ctx)
		return
	}
	if !ctx.IsGet() && !ctx.IsHead() {
		refuse(ctx, fasthttp.StatusMethodNotAllowed, "%s %s: expected GET", ctx.Method(), path)
		return
	}
	if name, ok := strings.CutPrefix(path, "/page/"); ok {
		c.servePage(ctx, name)
		return
	}
	c.mu.Lock()
	last := c.last
	c.mu.Unlock()
	now := c.states()
	switch string(ctx.Path()) {
	case "/status":
		ctx.SetContentType("application/json")
		values := report.Values{}
		maps.Copy(values, last)
		maps.Copy(values, now)
		ctx.SetBody(values.Line())
	case "/metrics":
		ctx.SetContentType("text/plain; version=0.0.4")
		ctx.SetBodyString(prometheus(last, "of the last step") + prometheus(now, "now"))
	default:
		refuse(ctx, fasthttp.StatusNotFound, "%s not found, expected /, /status, /metrics, /events or /instances", path)
	}
}

// states returns the current number of instances in each state, under names such as fleet/updating. It
// returns nil if the run has no instances.
func (c *Server) states() report.Values {
	c.mu.Lock()
	instances, states := c.instances, c.stateList
	c.mu.Unlock()
	if instances == nil {
		return nil
	}
	counts := report.Values{}
	for _, state := range states {
		counts["fleet/"+strings.ToLower(state)] = 0
	}
	for _, m := range instances.List() {
		counts["fleet/"+strings.ToLower(m.State)]++
	}
	return counts
}
