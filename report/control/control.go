// Package control answers for a run over HTTP while it goes: its page, its numbers
// and its instances.
package control

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/internal/accept"
	"github.com/easyrl/easyrl/report"
)

// Server answers for a run while it goes: GET / is its live page, which calls
// what is below /page/, GET /status the last step's values as JSON, GET /metrics
// the same for Prometheus, and GET /events sends them as they come. /instances
// lists, adds and takes away instances. It is safe for concurrent use; all methods
// of a nil *Server do nothing.
type Server struct {
	dir      string
	token    string // every request but that of the empty page needs it where it is not empty
	boot     string // tells this process from the next one of the run
	server   *fasthttp.Server
	listener net.Listener
	served   sync.WaitGroup
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc

	history history
	shell   []byte           // the live page without what it shows
	parts   map[string]*part // and what it shows, by name

	mu        sync.Mutex
	last      report.Values
	left      string    // that the steps after last take
	instances Instances // nil where the run has none
	kinds     []string  // of the servers that can be added to them
	listeners map[chan []byte]struct{}
	log       []entry
	noted     int // entries of the log so far
}

const (
	// controlBody is the longest body of a request, in bytes.
	controlBody = 1 << 16
	// controlRead is how long a client may take to send a request.
	controlRead = 10 * time.Second
	// controlWrite is how long a client may take to take what it is sent.
	controlWrite = 30 * time.Second
)

// New listens on addr for the run in dir. Requests need "Authorization:
// Bearer token" where token is not empty; beyond loopback it must not be.
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
		return nil, errors.Join(fmt.Errorf("control address %s is beyond loopback, expected a token for it", addr), listener.Close())
	}
	boot := make([]byte, 16)
	_, _ = rand.Read(boot) // never fails
	c := &Server{dir: dir, token: token, boot: hex.EncodeToString(boot), listener: accept.New(listener), listeners: map[chan []byte]struct{}{},
		shell: empty, parts: liveParts()}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.server = &fasthttp.Server{Handler: c.handle, Name: "easyrl", ReadTimeout: controlRead, WriteTimeout: controlWrite,
		IdleTimeout: time.Minute, MaxRequestBodySize: controlBody, CloseOnShutdown: true, Logger: silent{}, ErrorHandler: refuseMalformed}
	c.served.Go(func() { _ = c.server.Serve(c.listener) }) // ends with Close
	return c, nil
}

// refuseMalformed answers what is no request that is taken. A browser that has
// opened a connection before it needs one asks anew where the time for a request
// was over, but not where the request was bad.
func refuseMalformed(ctx *fasthttp.RequestCtx, err error) {
	var late net.Error
	switch {
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		refuse(ctx, fasthttp.StatusRequestEntityTooLarge, "body too large, expected %d bytes at most", controlBody)
		return
	case errors.As(err, &late) && late.Timeout():
		refuse(ctx, fasthttp.StatusRequestTimeout, "no request in %v", controlRead)
		return
	}
	refuse(ctx, fasthttp.StatusBadRequest, "request: %v", err)
}

// silent drops the server's log of connections that misbehave.
type silent struct{}

func (silent) Printf(string, ...any) {}

// Addr is the address listened on, empty for none.
func (c *Server) Addr() string {
	if c == nil {
		return ""
	}
	return c.listener.Addr().String()
}

// Step tells of a finished step, and how long those that are left will take, in
// words or empty.
func (c *Server) Step(values report.Values, left string) {
	if c == nil {
		return
	}
	c.history.add(values)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.left = values, left
	c.tell("step", values.Line())
}

// file is a file's path in the run's folder.
func (c *Server) file(name string) string { return filepath.Join(c.dir, name) }

// Close ends all connections and waits for them.
func (c *Server) Close() {
	if c == nil {
		return
	}
	c.cancel()
	_ = c.server.Shutdown() // the listener's error has nobody to tell
	_ = c.listener.Close()  // where serving had not begun
	c.served.Wait()
}

func (c *Server) handle(ctx *fasthttp.RequestCtx) {
	if host := string(ctx.Host()); c.token == "" && !local(host) {
		refuse(ctx, fasthttp.StatusForbidden, "request for host %.100q, expected localhost or an IP address where there is no token", host)
		return
	}
	path := string(ctx.URI().PathOriginal())
	if c.serveShell(ctx, path) {
		return
	}
	given := []byte(strings.TrimPrefix(string(ctx.Request.Header.Peek("Authorization")), "Bearer "))
	if c.token != "" && subtle.ConstantTimeCompare(given, []byte(c.token)) != 1 {
		refuse(ctx, fasthttp.StatusUnauthorized, "expected the control token as Authorization: Bearer")
		return
	}
	switch {
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
	switch string(ctx.Path()) {
	case "/status":
		ctx.SetContentType("application/json")
		ctx.SetBody(last.Line())
	case "/metrics":
		ctx.SetContentType("text/plain; version=0.0.4")
		ctx.SetBodyString(prometheus(last))
	default:
		refuse(ctx, fasthttp.StatusNotFound, "%s: expected /, /status, /metrics, /events or /instances", path)
	}
}
