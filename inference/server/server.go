// Package server exposes an engine over HTTP. It speaks vLLM's dialect of
// OpenAI's interface, and takes new weights over it.
//
// A request goes through these gates in order, each of which answers for itself:
// the token, the size of its body, what the fields mean, the queue, the backend.
package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/server/internal/lease"
	"github.com/easyrl/easyrl/inference/server/internal/wire"
)

// Config says where a server listens and how much it takes.
type Config struct {
	Listen string // host:port
	// Token, where set, is needed by every call but GET /health, as
	// Authorization: Bearer.
	Token string
	// Insecure allows to listen beyond loopback without a token.
	Insecure bool
	// MaxBody is the size of a request's body in bytes at most; weights have no
	// limit.
	MaxBody int64
	// MaxConns is the number of open connections at most.
	MaxConns int
	// MaxConcurrent is the number of requests that are given to the backend at
	// once, and MaxQueue how many more wait; a further one is answered 429.
	MaxConcurrent, MaxQueue int
	// HeaderTimeout is how long a client may take to send a request's header and
	// the first 8 KiB behind it, which fasthttp reads with it; all of a body may
	// take six times as long.
	HeaderTimeout time.Duration
	// DrainTimeout is how long Drain waits for requests that run.
	DrainTimeout time.Duration
}

// DefaultConfig suits a server on loopback.
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

// Server answers for one backend. Its methods may be called concurrently.
type Server struct {
	cfg      Config
	backend  Backend
	text     Text // may be nil
	boot     string
	listener *wire.Listener
	http     *fasthttp.Server
	ctx      context.Context // ends with Close
	cancel   context.CancelCauseFunc
	slots    chan struct{} // one for each request that the backend has
	waiting  atomic.Int64  // requests that wait for a slot
	bodies   atomic.Int64  // bytes of bodies that are held
	served   counters
	lease    lease.Lease   // of the trainer whose weights are taken
	updating chan struct{} // one for the update of the weights that runs
	long     sync.Mutex    // held while a long text is made tokens

	mu       sync.Mutex
	draining bool
	closed   bool
	active   int           // requests for completions
	idle     chan struct{} // closed when active falls to 0; nil unless waited for
}

// New listens for backend, which stays the caller's. text may be nil: then only
// token ids are served.
func New(cfg Config, backend Backend, text Text) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	inner, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	tcp, ok := inner.Addr().(*net.TCPAddr)
	if loopback := ok && tcp.IP.IsLoopback(); !loopback && cfg.Token == "" && !cfg.Insecure {
		err := fmt.Errorf("server: %s is beyond loopback, expected a token for it, or to be told that it is insecure", inner.Addr())
		return nil, errors.Join(err, inner.Close())
	}
	boot := make([]byte, 16)
	_, _ = rand.Read(boot) // never fails
	s := &Server{cfg: cfg, backend: backend, text: text, boot: hex.EncodeToString(boot),
		listener: wire.NewListener(inner), slots: make(chan struct{}, cfg.MaxConcurrent), updating: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.http = &fasthttp.Server{
		Handler: s.handle, ErrorHandler: refuseUnread, Name: "easyrl", Logger: silent{},
		Concurrency: cfg.MaxConns, ReadTimeout: cfg.HeaderTimeout, IdleTimeout: 2 * time.Minute,
		ConnState: answered, StreamRequestBody: true, DisablePreParseMultipartForm: true, ReadBufferSize: 16 << 10, CloseOnShutdown: true,
	}
	return s, nil
}

// answered is told what becomes of connections: one that waits for its next
// request, or is closed, is owed no answer.
func answered(c net.Conn, state fasthttp.ConnState) {
	if c, ok := c.(*wire.Conn); ok && state != fasthttp.StateActive {
		c.Busy(false)
	}
}

// silent drops the log of connections that misbehave.
type silent struct{}

func (silent) Printf(string, ...any) {}

// Addr is the address that is listened on.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Serve answers requests until Close.
func (s *Server) Serve() error {
	err := s.http.Serve(s.listener)
	if s.ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("server: %w", err)
}

// Drain takes no new requests and waits for those that run, up to the
// configured time.
func (s *Server) Drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.DrainTimeout)
	defer cancel()
	s.drain()
	for _, ended := range []func() <-chan struct{}{s.whenIdle, s.listener.WhenQuiet} {
		select {
		case <-ended():
			continue
		case <-ctx.Done():
		}
		return fmt.Errorf("server: drain: %d requests still run: %w", s.Running(), context.Cause(ctx))
	}
	return nil
}

// answerTime is how long Close lets clients take the answers that are ready.
const answerTime = 5 * time.Second

// Close ends all requests and connections and waits for them.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed, s.draining = true, true
	s.mu.Unlock()
	s.cancel(fmt.Errorf("server %w", inference.ErrClosed))
	err := s.listener.Close()
	<-s.whenIdle()
	answers := time.NewTimer(answerTime)
	defer answers.Stop()
	select {
	case <-s.listener.WhenQuiet():
	case <-answers.C:
	}
	s.listener.End()
	return err
}

func (s *Server) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
}

// Running is the number of requests for completions that have begun and not ended.
func (s *Server) Running() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active
}

// whenIdle is closed when no request runs.
func (s *Server) whenIdle() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle == nil {
		s.idle = make(chan struct{})
		if s.active == 0 {
			close(s.idle)
		}
	}
	return s.idle
}

// begin counts a request for completions, which ends with finish; its connection
// is busy until the answer is out.
func (s *Server) begin(ctx *fasthttp.RequestCtx) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return &failure{status: fasthttp.StatusServiceUnavailable, kind: "draining", message: "the server takes no new requests", retry: true}
	}
	s.active++
	if c, ok := ctx.Conn().(*wire.Conn); ok {
		c.Busy(true)
	}
	return nil
}

func (s *Server) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
	if s.active == 0 && s.idle != nil && s.draining {
		close(s.idle)
	}
}

// handle answers one request.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	err := s.authorize(ctx)
	if err == nil {
		err = uncoded(ctx)
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
	wire.LeftOver(ctx)
}

// authorize compares digests, whose comparison tells nothing of the token.
// Whether requests are taken is no secret: who starts and balances servers asks
// for it, and has no token.
func (s *Server) authorize(ctx *fasthttp.RequestCtx) error {
	if s.cfg.Token == "" || string(ctx.Path()) == "/health" {
		return nil
	}
	scheme, given, _ := strings.Cut(string(ctx.Request.Header.Peek("Authorization")), " ")
	got, want := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(s.cfg.Token))
	if strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(got[:], want[:]) == 1 {
		return nil
	}
	return &failure{status: fasthttp.StatusUnauthorized, kind: "authentication_error", code: "invalid_api_key",
		message: "expected the server's token as Authorization: Bearer, which a trainer takes from inference.token_file"}
}

// uncoded refuses a body that is compressed.
func uncoded(ctx *fasthttp.RequestCtx) error {
	coding := ctx.Request.Header.ContentEncoding()
	if len(coding) == 0 || strings.EqualFold(string(coding), "identity") {
		return nil
	}
	return &failure{status: fasthttp.StatusUnsupportedMediaType, kind: invalidRequest,
		message: fmt.Sprintf("Content-Encoding %.40q is not supported, expected a body without one", coding)}
}

// route gives the request to what answers it.
func (s *Server) route(ctx *fasthttp.RequestCtx) error {
	path := string(ctx.Path())
	var get, post, put, del func(*fasthttp.RequestCtx) error
	switch path {
	case "/health":
		get = s.health
	case "/version":
		get = s.version
	case "/load":
		get = s.load
	case "/metrics":
		get = s.metrics
	case "/v1/models":
		get = s.models
	case "/v1/completions":
		post = func(ctx *fasthttp.RequestCtx) error { return s.complete(ctx, false) }
	case "/v1/chat/completions":
		post = func(ctx *fasthttp.RequestCtx) error { return s.complete(ctx, true) }
	case "/tokenize":
		post = s.tokenize
	case "/detokenize":
		post = s.detokenize
	case "/v1/weights":
		get, put = s.held, s.update
	case "/v1/trainer":
		post, del = s.take, s.free
	case "/v1/drain":
		post = s.drained
	default:
		if name, ok := strings.CutPrefix(path, "/v1/models/"); ok {
			get = func(ctx *fasthttp.RequestCtx) error { return s.model(ctx, name) }
			break
		}
		return &failure{status: fasthttp.StatusNotFound, kind: invalidRequest, message: fmt.Sprintf("no such path: %.200q", path)}
	}
	return byMethod(ctx, []method{{[]string{fasthttp.MethodGet, fasthttp.MethodHead}, get}, {[]string{fasthttp.MethodPost}, post},
		{[]string{fasthttp.MethodPut}, put}, {[]string{fasthttp.MethodDelete}, del}})
}

// method is what answers requests of some methods; do is nil where nothing does.
type method struct {
	names []string
	do    func(*fasthttp.RequestCtx) error
}

// byMethod gives the request to the one of a path's methods that answers it.
func byMethod(ctx *fasthttp.RequestCtx, methods []method) error {
	var allowed []string
	for _, m := range methods {
		switch {
		case m.do == nil:
		case slices.Contains(m.names, string(ctx.Method())):
			return m.do(ctx)
		default:
			allowed = append(allowed, m.names...)
		}
	}
	allow := strings.Join(allowed, ", ")
	return &failure{status: fasthttp.StatusMethodNotAllowed, kind: invalidRequest, allow: allow,
		message: fmt.Sprintf("method %.20q of %s, expected %s", ctx.Method(), ctx.Path(), allow)}
}
