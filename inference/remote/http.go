package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/remote/internal/flow"
)

const (
	smallBody = 1 << 20 // of control calls
	largeBody = 1 << 30 // of any answer
	// A server that is full may ask for so many pauses, each so long at most.
	maxPauses = 5
	maxPause  = time.Minute
	// idle is how long a connection without a call is kept. Servers of vLLM and
	// SGLang close one after 5 seconds, which fails the call that is on its way.
	idle = 4 * time.Second
)

// errBody is an answer that is no JSON of the shape that was expected.
var errBody = errors.New("unexpected answer")

// statusError is an answer that is not 200.
type statusError struct {
	status int
	call   string
	text   string // what the server said
	kind   string // its error.type, where there is one
	after  time.Duration
}

func (e *statusError) Error() string {
	if e.text == "" {
		return fmt.Sprintf("%s: status %d", e.call, e.status)
	}
	return fmt.Sprintf("%s: status %d: %s", e.call, e.status, e.text)
}

// Is makes the sentinels of inference of what the status says.
func (e *statusError) Is(target error) bool {
	switch target {
	case inference.ErrInvalid:
		return e.status == 400 || e.status == 413 || e.status == 422 // 404 is of the server, not of what it is asked
	case inference.ErrStale:
		return e.status == 409
	}
	return false
}

// noRoute reports whether err says that the server has no such call.
func noRoute(err error) bool {
	var s *statusError
	return errors.As(err, &s) && (s.status == 404 || s.status == 405)
}

// client is what all kinds share. Its fields do not change after Dial.
type client struct {
	url      string
	kind     Kind
	token    string
	model    string
	context  int // positions; 0 where the server does not say
	needs    int // positions; 0 for any
	computes string
	capacity int
	stall    time.Duration
	store    *Store
	canary   *Canary
	http     *http.Client
	ctx      context.Context // ends with Close
	cancel   context.CancelCauseFunc
}

func newClient(cfg Config) *client {
	dial := cfg.dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: cfg.Connect, KeepAlive: 15 * time.Second}).DialContext
	}
	c := &client{
		url: cfg.URL, kind: cfg.Kind, token: cfg.Token, model: cfg.Model, capacity: cfg.Capacity,
		stall: cfg.Stall, store: cfg.Store, canary: cfg.Canary, needs: cfg.Context, computes: cfg.Computes,
		http: &http.Client{
			Transport: &http.Transport{
				DialContext: dial, TLSHandshakeTimeout: cfg.Connect, ExpectContinueTimeout: time.Second,
				MaxIdleConnsPerHost: 64, IdleConnTimeout: idle, WriteBufferSize: 256 << 10,
				MaxResponseHeaderBytes: flow.Window, DisableCompression: true,
			},
			// The token is for this server only.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c
}

// ID is the server's address.
func (c *client) ID() string { return c.url }

// Kind is what the server is.
func (c *client) Kind() Kind { return c.kind }

// Capacity is the number of responses that the server samples at once.
func (c *client) Capacity() int { return c.capacity }

// Probe asks the server whether it is well.
func (c *client) Probe(ctx context.Context) error {
	if err := c.get(ctx, "/health", nil); err != nil {
		return fmt.Errorf("instance %s: %w", c.url, err)
	}
	return nil
}

// Close ends all calls with inference.ErrClosed. The server goes on.
func (c *client) Close() error {
	c.cancel(fmt.Errorf("instance %s: %w", c.url, inference.ErrClosed))
	c.http.CloseIdleConnections()
	return nil
}

// call is one exchange.
type call struct {
	method, path string
	body         []byte    // JSON, or
	stream       io.Reader // of unknown length
	prepare      func(*http.Request)
	limit        int64 // of the answer; 0 is smallBody
	long         bool  // the answer may take as long as the context: the server's health is watched meanwhile
}

// get reads the JSON at path into out.
func (c *client) get(ctx context.Context, path string, out any) error {
	return c.do(ctx, call{method: http.MethodGet, path: path}, out)
}

// post sends in and reads the answer into out, which may be nil.
func (c *client) post(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	return c.do(ctx, call{method: http.MethodPost, path: path, body: body, long: true}, out)
}

// command posts a call whose parameters are in its query.
func (c *client) command(ctx context.Context, path string) error {
	return c.do(ctx, call{method: http.MethodPost, path: path, body: []byte{}, long: true}, nil)
}

// do exchanges one call. An answer of 429 is tried again after the pause that
// it asks for.
func (c *client) do(ctx context.Context, k call, out any) error {
	for pause := 0; ; pause++ {
		err := c.exchange(ctx, k, out)
		var full *statusError
		if !errors.As(err, &full) || full.status != http.StatusTooManyRequests || full.after == 0 || pause == maxPauses || k.stream != nil {
			return err
		}
		t := time.NewTimer(min(full.after, maxPause))
		select {
		case <-t.C:
		case <-ctx.Done():
		case <-c.ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil || c.ctx.Err() != nil {
			return err
		}
	}
}

func (c *client) exchange(ctx context.Context, k call, out any) error {
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	name := k.method + " " + k.path
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })
	defer stop()
	progress := flow.NewProgress(c.stall, func() { cancel(fmt.Errorf("%s: less than %d bytes moved in %v", name, flow.Window, c.stall)) })
	defer progress.Stop()
	data, err := c.roundTrip(ctx, cancel, k, progress)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		return err
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("%s: %w: %w", name, errBody, err)
	}
	return nil
}

// roundTrip returns the body of an answer of status 200.
func (c *client) roundTrip(ctx context.Context, cancel context.CancelCauseFunc, k call, p *flow.Progress) ([]byte, error) {
	var body io.Reader
	if k.body != nil {
		body = bytes.NewReader(k.body)
	} else if k.stream != nil {
		p.Start()
		body = &flow.Reader{From: k.stream, To: p}
	}
	req, err := http.NewRequestWithContext(ctx, k.method, c.url+k.path, body)
	if err != nil {
		return nil, err
	}
	if k.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if k.prepare != nil {
		k.prepare(req)
	}
	if k.long {
		defer c.watch(ctx, cancel)()
	} else {
		p.Start() // an answer at once
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	p.Start()
	limit := max(k.limit, smallBody)
	data, err := io.ReadAll(io.LimitReader(&flow.Reader{From: resp.Body, To: p}, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s %s: body: %w", k.method, k.path, err)
	case int64(len(data)) > limit:
		return nil, fmt.Errorf("%s %s: %w: body of more than %d bytes", k.method, k.path, errBody, limit)
	case resp.StatusCode != http.StatusOK:
		return nil, newStatusError(k, resp, data)
	}
	return data, nil
}

// watch asks for the server's health while a call waits, and ends the call when
// there is no answer at all. Any status is one: what drains still samples.
func (c *client) watch(ctx context.Context, cancel context.CancelCauseFunc) (stop func()) {
	ctx, end := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(c.stall)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
			err := c.get(ctx, "/health", nil)
			var status *statusError
			if err != nil && !errors.As(err, &status) && ctx.Err() == nil {
				cancel(fmt.Errorf("server does not answer: %w", err))
				return
			}
		}
	}()
	return func() {
		end()
		<-done
	}
}

// newStatusError reads what the server says of its refusal: OpenAI's shape, or
// a plain field of one of the names in use.
func newStatusError(k call, resp *http.Response, data []byte) error {
	e := &statusError{status: resp.StatusCode, call: k.method + " " + k.path}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
		e.after = time.Duration(min(s, 3600)) * time.Second
	}
	var body struct {
		Error   json.RawMessage `json:"error"`
		Detail  json.RawMessage `json:"detail"`
		Message json.RawMessage `json:"message"`
	}
	if json.Unmarshal(data, &body) == nil {
		for _, raw := range []json.RawMessage{body.Error, body.Detail, body.Message} {
			var inner struct {
				Message string `json:"message"`
				Type    string `json:"type"`
			}
			if json.Unmarshal(raw, &inner) == nil && e.text == "" {
				e.text, e.kind = inner.Message, inner.Type
			}
			if e.text == "" {
				e.text = label(raw)
			}
		}
	} else {
		e.text = string(data)
	}
	e.text = strings.Join(strings.Fields(strings.ToValidUTF8(e.text, "?")), " ")
	if len(e.text) > 300 {
		e.text = strings.ToValidUTF8(e.text[:300], "") + "…"
	}
	return e
}
