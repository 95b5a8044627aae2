// Package server exposes an engine over HTTP. It speaks vLLM's dialect of OpenAI's
// interface and accepts new weights.
//
// A request is checked in this order: by the guard (package guard), by the size of its
// body, by the meaning of its fields, and by the queue. Each check refuses requests with its own
// HTTP status. Then the backend samples.
package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/server/internal/api"
	"github.com/easyrl/easyrl/inference/server/internal/wire"
	"github.com/easyrl/easyrl/internal/guard"
)

// Config sets where a server listens and its limits.
type Config struct {
	Listen string // host:port
	// Token, if set, must be sent as "Authorization: Bearer TOKEN" with every request except
	// GET /health.
	Token string
	// Insecure allows listening beyond loopback without a token.
	Insecure bool
	// MaxBody is the maximum size of a request's body in bytes. Weights have no limit.
	MaxBody int64
	// MaxConns is the maximum number of open connections.
	MaxConns int
	// MaxConcurrent is the maximum number of requests that the backend gets at once.
	MaxConcurrent int
	// MaxQueue is the maximum number of further requests that wait. Others are answered 429.
	MaxQueue int
	// HeaderTimeout limits the time to send a request's header and the first 8 KiB of its
	// body, which fasthttp reads together. The complete body may take six times as long (bodyTimes).
	HeaderTimeout time.Duration
	// DrainTimeout limits how long Drain waits for running requests.
	DrainTimeout time.Duration
}

// DefaultConfig returns a configuration for a server on loopback.
func DefaultConfig() Config {
	return Config{Listen: "127.0.0.1:8000", MaxBody: 16 << 20, MaxConns: 4096, MaxConcurrent: 1024, MaxQueue: 4096,
		HeaderTimeout: 10 * time.Second, DrainTimeout: 10 * time.Minute}
}

// Validate reports all faults of c.
func (c *Config) Validate() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf("server: "+format, args...))
		}
	}
	_, _, err := net.SplitHostPort(c.Listen)
	fault(err != nil, "listen %q, expected host:port", c.Listen)
	fault(c.MaxBody < 1, "max body %d, expected at least 1", c.MaxBody)
	fault(c.MaxConns < 1, "max connections %d, expected at least 1", c.MaxConns)
	fault(c.MaxConcurrent < 1, "max concurrent %d, expected at least 1", c.MaxConcurrent)
	fault(c.MaxQueue < 0, "max queue %d, expected 0 or more", c.MaxQueue)
	fault(c.HeaderTimeout <= 0, "header timeout %v, expected more than 0", c.HeaderTimeout)
	fault(c.DrainTimeout <= 0, "drain timeout %v, expected more than 0", c.DrainTimeout)
	return errors.Join(faults...)
}

// Server serves one backend. Its methods may be called concurrently.
type Server struct {
	cfg      Config
	backend  Backend
	text     Text // may be nil
	listener *wire.Listener
	http     *fasthttp.Server
	ctx      context.Context // ends with Close
	cancel   context.CancelCauseFunc
	guard    *guard.Guard

	// Handlers, and the state that they share.
	gate        *gate
	bodies      *bodies
	served      *counters
	completions *completions
	weights     *weights
	models      *models
	paths       map[string]methods

	mu     sync.Mutex
	closed bool
}

// New starts to listen for requests to backend, which the caller still owns. Without text, the
// server accepts only token IDs. New calls no method of backend, so the caller may load the weights
// after New and before Serve.
func New(cfg Config, backend Backend, text Text) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	inner, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	tcp, ok := inner.Addr().(*net.TCPAddr)
	loopback := ok && tcp.IP.IsLoopback()
	if !loopback && cfg.Token == "" && !cfg.Insecure {
		err := fmt.Errorf("server: %s is beyond loopback. Set a token, or allow insecure access", inner.Addr())
		return nil, errors.Join(err, inner.Close())
	}
	s := &Server{cfg: cfg, backend: backend, text: text, listener: wire.NewListener(inner),
		guard: guard.New(cfg.Listen, cfg.Token)}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.createHandlers()
	s.http = &fasthttp.Server{
		Handler: s.handle, ErrorHandler: refuseUnread, Name: "easyrl", Logger: silent{},
		Concurrency: cfg.MaxConns, ReadTimeout: cfg.HeaderTimeout, IdleTimeout: 2 * time.Minute,
		ConnState: markIdle, StreamRequestBody: true, DisablePreParseMultipartForm: true,
		ReadBufferSize: 16 << 10, CloseOnShutdown: true,
	}
	return s, nil
}

// bodyTimes is the time limit of a body as a multiple of HeaderTimeout.
const bodyTimes = 6

// newModel describes backend's model for package api.
func newModel(backend Backend, text Text, b *bodies) *api.Model {
	info := backend.Info()
	return &api.Model{ID: backend.ID(), Context: info.Context, Vocab: info.Vocab, Text: text, Held: backend.Held,
		Alone: b.alone}
}

// createHandlers creates the handlers and the state that they share. Serve sets their model.
func (s *Server) createHandlers() {
	boot := make([]byte, 16)
	_, _ = rand.Read(boot) // never fails
	s.gate, s.served = &gate{}, &counters{}
	s.bodies = &bodies{ctx: s.ctx, maxBody: s.cfg.MaxBody, timeout: bodyTimes * s.cfg.HeaderTimeout}
	s.completions = &completions{ctx: s.ctx, backend: s.backend, bodies: s.bodies, gate: s.gate, served: s.served,
		slots: make(chan struct{}, s.cfg.MaxConcurrent), maxQueue: s.cfg.MaxQueue}
	s.weights = &weights{ctx: s.ctx, backend: s.backend, bodies: s.bodies, served: s.served,
		boot: hex.EncodeToString(boot), updating: make(chan struct{}, 1)}
	s.models = &models{backend: s.backend, bodies: s.bodies}
	s.paths = s.routes()
}

// markIdle is fasthttp's ConnState hook: it marks a connection that has closed or waits for its next
// request as not busy.
func markIdle(c net.Conn, state fasthttp.ConnState) {
	if c, ok := c.(*wire.Conn); ok && state != fasthttp.StateActive {
		c.Busy(false)
	}
}

// silent discards fasthttp's log of misbehaving connections.
type silent struct{}

func (silent) Printf(string, ...any) {}

// Addr returns the address that the server listens on.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Serve answers requests until Close, and then returns nil. Call it once.
func (s *Server) Serve() error {
	model := newModel(s.backend, s.text, s.bodies)
	s.completions.model, s.models.model = model, model
	err := s.http.Serve(s.listener)
	if s.ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("server: %w", err)
}

// Drain refuses new completion requests and waits until running ones have been answered. It returns
// an error if that takes longer than DrainTimeout or ctx ends first.
func (s *Server) Drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.DrainTimeout)
	defer cancel()
	s.gate.drain()
	for _, ended := range []func() <-chan struct{}{s.gate.whenIdle, s.listener.WhenQuiet} {
		select {
		case <-ended():
			continue
		case <-ctx.Done():
		}
		if n := s.Running(); n > 0 {
			return fmt.Errorf("server: drain: %d requests are still running: %w", n, context.Cause(ctx))
		}
		return fmt.Errorf("server: drain: answers are still being sent: %w", context.Cause(ctx))
	}
	return nil
}

// answerTime is how long Close lets clients receive finished answers.
const answerTime = 5 * time.Second

// Close ends all requests and connections and waits for them. Later calls do nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.gate.drain()
	s.cancel(fmt.Errorf("server %w", inference.ErrClosed))
	err := s.listener.Close()
	<-s.gate.whenIdle()
	answers := time.NewTimer(answerTime)
	defer answers.Stop()
	select {
	case <-s.listener.WhenQuiet():
	case <-answers.C:
	}
	s.listener.CloseConns()
	return err
}

// Running returns the number of completion requests that have started and not ended.
func (s *Server) Running() int { return s.gate.running() }

// handle answers one request.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	err := s.admit(ctx)
	if err == nil {
		err = refuseEncoded(ctx)
	}
	if err == nil {
		err = s.route(ctx)
	}
	if err != nil {
		refuse(ctx, err)
	}
	if s.ctx.Err() != nil {
		ctx.SetConnectionClose()
	}
	wire.CloseIfUnread(ctx)
}

// admit returns an error if the request breaks a rule of the server's guard. /health needs no token
// because supervisors and load balancers have none.
func (s *Server) admit(ctx *fasthttp.RequestCtx) error {
	public := string(ctx.Path()) == "/health"
	refusal := s.guard.Check(ctx, public)
	switch {
	case refusal == nil:
		return nil
	case refusal.Status == fasthttp.StatusUnauthorized:
		return &api.Failure{Status: refusal.Status, Kind: "authentication_error", Code: "invalid_api_key",
			Message: refusal.Message + ". A trainer reads it from inference.token_file"}
	}
	return &api.Failure{Status: refusal.Status, Kind: api.InvalidRequest, Message: refusal.Message}
}

// refuseEncoded returns an error if the body has a content encoding, such as gzip.
func refuseEncoded(ctx *fasthttp.RequestCtx) error {
	coding := ctx.Request.Header.ContentEncoding()
	if len(coding) == 0 || strings.EqualFold(string(coding), "identity") {
		return nil
	}
	return &api.Failure{Status: fasthttp.StatusUnsupportedMediaType, Kind: api.InvalidRequest,
		Message: fmt.Sprintf("Content-Encoding %.40q is not supported, expected none", coding)}
}

// modelPath is the path of a model, to which its name is appended.
const modelPath = "/v1/models/"

// methods holds the handlers of a path by method. GET also answers HEAD.
type methods map[string]func(*fasthttp.RequestCtx) error

// routes returns the handlers of all paths.
func (s *Server) routes() map[string]methods {
	const get, post, put, del = fasthttp.MethodGet, fasthttp.MethodPost, fasthttp.MethodPut, fasthttp.MethodDelete
	return map[string]methods{
		"/health": {get: s.health}, "/version": {get: version}, "/load": {get: s.load}, "/server_info": {get: s.info},
		"/get_world_size": {get: worldSize}, "/metrics": {get: s.metrics}, "/openapi.json": {get: document},
		"/v1/models": {get: s.models.list}, modelPath: {get: s.models.one},
		"/v1/completions": {post: s.completions.ofText}, "/v1/chat/completions": {post: s.completions.ofChat},
		"/inference/v1/generate": {post: s.completions.ofIDs},
		"/tokenize":              {post: s.models.tokenize}, "/detokenize": {post: s.models.detokenize},
		"/v1/weights": {get: s.weights.held, put: s.weights.update},
		"/v1/trainer": {post: s.weights.take, del: s.weights.free},
		"/v1/drain":   {post: s.startDrain},
	}
}

// route passes the request to the handler of its path and method.
func (s *Server) route(ctx *fasthttp.RequestCtx) error {
	path := string(ctx.Path())
	key := path
	if strings.HasPrefix(path, modelPath) {
		key = modelPath
	}
	m, ok := s.paths[key]
	if !ok {
		return &api.Failure{Status: fasthttp.StatusNotFound, Kind: api.InvalidRequest,
			Message: fmt.Sprintf("no such path: %.200q", path)}
	}
	var allowed []string
	for _, name := range []string{"GET", "HEAD", "POST", "PUT", "DELETE"} {
		handler := m[strings.Replace(name, "HEAD", "GET", 1)]
		switch {
		case handler == nil:
		case name == string(ctx.Method()):
			return handler(ctx)
		default:
			allowed = append(allowed, name)
		}
	}
	allow := strings.Join(allowed, ", ")
	return &api.Failure{Status: fasthttp.StatusMethodNotAllowed, Kind: api.InvalidRequest, Allow: allow,
		Message: fmt.Sprintf("method %.20q is not allowed for %s, expected %s", ctx.Method(), path, allow)}
}
