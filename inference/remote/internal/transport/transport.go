// Package transport makes HTTP calls to one inference server: it ends a call that
// stalls and repeats one that a full server puts off.
package transport

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
	// SmallBody is the most bytes of an answer to a control call.
	SmallBody = 1 << 20
	// LargeBody is the most bytes of any answer.
	LargeBody = 1 << 30
	// MaxPauses is how many pauses a full server may ask for.
	MaxPauses = 5
	maxPause  = time.Minute // how long each may be
	// idle is how long a connection without a call is kept. Servers of vLLM and
	// SGLang close one after 5 seconds, which fails the call that is on its way.
	idle = 4 * time.Second
)

// ErrBody is an answer that is not JSON of the expected shape.
var ErrBody = errors.New("unexpected answer")

// StatusError is an answer that is not 200.
type StatusError struct {
	Status int
	call   string
	text   string // what the server said
	kind   string // its error.type, where there is one
	after  time.Duration
}

func (e *StatusError) Error() string {
	if e.text == "" {
		return fmt.Sprintf("%s: status %d", e.call, e.Status)
	}
	return fmt.Sprintf("%s: status %d: %s", e.call, e.Status, e.text)
}

// Is makes the sentinels of inference of what the status says.
func (e *StatusError) Is(target error) bool {
	switch target {
	case inference.ErrInvalid:
		return e.Status == 400 || e.Status == 413 || e.Status == 422 // 404 is of the server, not of what it is asked
	case inference.ErrStale:
		return e.Status == 409
	}
	return false
}

// NoRoute reports whether err says that the server has no such call.
func NoRoute(err error) bool {
	var s *StatusError
	return errors.As(err, &s) && (s.Status == 404 || s.Status == 405)
}

// Config says which server to call and how long to wait for it.
type Config struct {
	URL     string        // without a slash at its end
	Token   string        // bearer token of all calls, where set
	Connect time.Duration // ends the set-up of a connection
	Stall   time.Duration // ends a body that does not move and a server that does not answer
	// Dial, where set, opens connections.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Client calls one server. It is safe for concurrent use.
type Client struct {
	url    string
	token  string
	stall  time.Duration
	http   *http.Client
	ctx    context.Context // ends with Close
	cancel context.CancelCauseFunc
}

// New returns a client; nothing is called yet.
func New(cfg Config) *Client {
	dial := cfg.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: cfg.Connect, KeepAlive: 15 * time.Second}).DialContext
	}
	c := &Client{
		url: cfg.URL, token: cfg.Token, stall: cfg.Stall,
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

// Close ends all calls with cause.
func (c *Client) Close(cause error) {
	c.cancel(cause)
	c.http.CloseIdleConnections()
}

// Closed reports whether Close has been called.
func (c *Client) Closed() bool { return c.ctx.Err() != nil }

// Call is one exchange.
type Call struct {
	Method, Path string
	Body         []byte              // JSON, or
	Stream       io.Reader           // of unknown length
	Prepare      func(*http.Request) // changes the request before it is sent; may be nil
	Limit        int64               // of the answer; 0 is SmallBody
	Long         bool                // the answer may take as long as the context: the server's health is watched meanwhile
}

// Get reads the JSON at path into out.
func (c *Client) Get(ctx context.Context, path string, out any) error {
	return c.Do(ctx, Call{Method: http.MethodGet, Path: path}, out)
}

// Post sends in and reads the answer into out, which may be nil.
func (c *Client) Post(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	return c.Do(ctx, Call{Method: http.MethodPost, Path: path, Body: body, Long: true}, out)
}

// Command posts a call whose parameters are in its query.
func (c *Client) Command(ctx context.Context, path string) error {
	return c.Do(ctx, Call{Method: http.MethodPost, Path: path, Body: []byte{}, Long: true}, nil)
}

// Do exchanges one call. An answer of 429 is tried again after the pause that
// it asks for.
func (c *Client) Do(ctx context.Context, k Call, out any) error {
	for pause := 0; ; pause++ {
		err := c.exchange(ctx, k, out)
		var full *StatusError
		if !errors.As(err, &full) || full.Status != http.StatusTooManyRequests || full.after == 0 || pause == MaxPauses || k.Stream != nil {
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

func (c *Client) exchange(ctx context.Context, k Call, out any) error {
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	name := k.Method + " " + k.Path
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
		return fmt.Errorf("%s: %w: %w", name, ErrBody, err)
	}
	return nil
}

// roundTrip returns the body of an answer of status 200.
func (c *Client) roundTrip(ctx context.Context, cancel context.CancelCauseFunc, k Call, p *flow.Progress) ([]byte, error) {
	var body io.Reader
	if k.Body != nil {
		body = bytes.NewReader(k.Body)
	} else if k.Stream != nil {
		p.Start()
		body = &flow.Reader{From: k.Stream, To: p}
	}
	req, err := http.NewRequestWithContext(ctx, k.Method, c.url+k.Path, body)
	if err != nil {
		return nil, err
	}
	if k.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if k.Prepare != nil {
		k.Prepare(req)
	}
	if k.Long {
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
	limit := max(k.Limit, SmallBody)
	data, err := io.ReadAll(io.LimitReader(&flow.Reader{From: resp.Body, To: p}, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s %s: body: %w", k.Method, k.Path, err)
	case int64(len(data)) > limit:
		return nil, fmt.Errorf("%s %s: %w: body of more than %d bytes", k.Method, k.Path, ErrBody, limit)
	case resp.StatusCode != http.StatusOK:
		return nil, newStatusError(k, resp, data)
	}
	return data, nil
}

// watch asks for the server's health while a call waits, and ends the call when
// there is no answer at all. Any status is one: what drains still samples.
func (c *Client) watch(ctx context.Context, cancel context.CancelCauseFunc) (stop func()) {
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
			err := c.Get(ctx, "/health", nil)
			var status *StatusError
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
func newStatusError(k Call, resp *http.Response, data []byte) error {
	e := &StatusError{Status: resp.StatusCode, call: k.Method + " " + k.Path}
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
				e.text = Text(raw)
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

// Text is a JSON value as text: what a string holds, or the value as it is written.
func Text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}
