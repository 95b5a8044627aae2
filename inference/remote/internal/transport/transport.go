// Package transport makes HTTP calls to one inference server. It ends calls that stall
// and repeats calls that a busy server postpones.
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
	"github.com/easyrl/easyrl/internal/peer"
)

const (
	// SmallBody is the maximum size of the answer to a control call.
	SmallBody = 1 << 20
	// LargeBody is the maximum size of any answer.
	LargeBody = 1 << 30
	// MaxPauses is the maximum number of pauses that a busy server may ask for per call.
	MaxPauses = 5
	// idleTimeout is how long an unused connection is kept. vLLM and SGLang close one after 5
	// seconds, and a call sent at that moment would fail.
	idleTimeout = 4 * time.Second
)

// ErrBody reports an answer that is not JSON of the expected shape.
var ErrBody = errors.New("unexpected response body")

// StatusError reports an answer whose status is not 200.
type StatusError struct {
	Status int
	call   string // method and path
	text   string // the server's message; may be empty
	kind   string // the server's error.type; may be empty
}

func (e *StatusError) Error() string {
	out := fmt.Sprintf("%s: status %d", e.call, e.Status)
	if e.text != "" {
		out += ": " + e.text
	}
	if e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden {
		out += ". Set inference.token_file to the server's bearer token"
	}
	return out
}

// Is maps the status to the sentinels of package inference.
func (e *StatusError) Is(target error) bool {
	switch target {
	case inference.ErrInvalid:
		return e.Status == 400 || e.Status == 413 || e.Status == 422 // 404 is a fault of the server, not of the request
	case inference.ErrStale:
		return e.Status == 409
	}
	return false
}

// NoRoute reports whether err means that the server has no such path, or not with this method.
func NoRoute(err error) bool {
	var s *StatusError
	return errors.As(err, &s) && (s.Status == 404 || s.Status == 405)
}

// Config names a server and limits how long to wait for it.
type Config struct {
	URL     string        // without a trailing slash
	Token   string        // bearer token of all calls; may be empty
	Connect time.Duration // limits the set-up of a connection
	Stall   time.Duration // limits the time for 64 KiB of a body, and for the answer to a call that is not Long
	// Dial, if set, opens connections.
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

// New returns a client. It does not connect to the server.
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
				MaxIdleConnsPerHost: 64, IdleConnTimeout: idleTimeout, WriteBufferSize: 256 << 10,
				MaxResponseHeaderBytes: window, DisableCompression: true,
			},
			// Do not follow redirects, because the token is for this server only.
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
	Body         []byte              // JSON; nil for a call without a body or with a Stream
	Stream       io.Reader           // body that can be read only once; nil for other calls
	Prepare      func(*http.Request) // changes the request before it is sent; may be nil
	Limit        int64               // maximum size of the answer in bytes, at least SmallBody
	// Long means that the answer may take any time. Instead of limiting it, the client checks the
	// server's health meanwhile.
	Long bool
	// Each, if set, gets each JSON value of an answer as it arrives. There may be any time between
	// two values, so the call must be Long. Each must not keep value.
	Each func(value []byte) error
}

// Get decodes the JSON at path into out, which may be nil.
func (c *Client) Get(ctx context.Context, path string, out any) error {
	return c.Do(ctx, Call{Method: http.MethodGet, Path: path}, out)
}

// Post sends in as JSON and decodes the answer into out, which may be nil. The answer may take any
// time; see Call.Long.
func (c *Client) Post(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	return c.Do(ctx, Call{Method: http.MethodPost, Path: path, Body: body, Long: true}, out)
}

// Command posts a call without a body; its parameters are in the query of path.
func (c *Client) Command(ctx context.Context, path string) error {
	return c.Do(ctx, Call{Method: http.MethodPost, Path: path, Body: []byte{}, Long: true}, nil)
}

// Do makes one call like Once. If the server is busy, Do repeats the call after the pause that the
// server asks for, except for a call with a Stream, which can be read only once.
func (c *Client) Do(ctx context.Context, call Call, out any) error {
	if call.Stream != nil {
		return c.Once(ctx, call, out)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) }) // ends a pause too
	defer stop()
	return Patiently(ctx, func() error { return c.Once(ctx, call, out) })
}

// Patiently calls do, and again after each *inference.BusyError that it returns and the pause that
// the error asks for, at most MaxPauses times. It returns the last error of do.
func Patiently(ctx context.Context, do func() error) error {
	for pause := 0; ; pause++ {
		err := do()
		var busy *inference.BusyError
		if !errors.As(err, &busy) || pause == MaxPauses {
			return err
		}
		t := time.NewTimer(busy.RetryDelay())
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return err
		}
	}
}

// Once makes one call. It decodes the answer into out unless that is nil, or copies the answer if out
// is a *string. Errors are an *inference.BusyError if the server is busy, a *StatusError for any other
// status but 200, an error that wraps ErrBody, or the cause of ctx or of Close.
func (c *Client) Once(ctx context.Context, call Call, out any) error {
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	name := call.Method + " " + call.Path
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })
	defer stop()
	moving := newProgress(c.stall, func() {
		cancel(fmt.Errorf("%s: moved fewer than %d bytes in %v", name, window, c.stall))
	})
	defer moving.stop()
	data, err := c.roundTrip(ctx, cancel, call, moving)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		return peer.Fault(err)
	}
	if out == nil || call.Each != nil {
		return nil
	}
	if text, ok := out.(*string); ok {
		*text = string(data)
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("%s: %w: %w", name, ErrBody, err)
	}
	return nil
}

// roundTrip makes a call and returns the body of an answer of status 200, or passes it to k.Each. p
// limits the time; cancel ends ctx.
func (c *Client) roundTrip(ctx context.Context, cancel context.CancelCauseFunc, k Call, p *progress) ([]byte, error) {
	var body io.Reader
	if k.Body != nil {
		body = bytes.NewReader(k.Body)
	} else if k.Stream != nil {
		p.start()
		body = &progressReader{from: k.Stream, progress: p}
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
	// Every call may be repeated. This header makes net/http repeat one for which the server closes
	// an idle connection at the same moment. Without a value, the header is not sent.
	req.Header["Idempotency-Key"] = nil
	if k.Long {
		defer c.watch(ctx, cancel)()
	} else {
		p.start() // limits the wait for the answer
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	limit := max(k.Limit, SmallBody)
	if k.Each != nil && resp.StatusCode == http.StatusOK {
		return nil, k.values(resp.Body, limit, p)
	}
	p.start()
	data, err := io.ReadAll(io.LimitReader(&progressReader{from: resp.Body, progress: p}, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s %s: body: %w", k.Method, k.Path, err)
	case int64(len(data)) > limit:
		return nil, fmt.Errorf("%s %s: %w: body has more than %d bytes", k.Method, k.Path, ErrBody, limit)
	case resp.StatusCode != http.StatusOK:
		return nil, refusal(k, resp, data)
	}
	return data, nil
}

// values calls k.Each for each JSON value of a body with at most limit bytes. p limits the time
// within a value, not between two.
func (k *Call) values(body io.Reader, limit int64, p *progress) error {
	limited := &io.LimitedReader{R: &progressReader{from: body, progress: p, lazy: true}, N: limit + 1}
	values := json.NewDecoder(limited)
	for {
		if rest, _ := io.ReadAll(values.Buffered()); len(bytes.TrimSpace(rest)) == 0 {
			p.stop() // no part of the next value has arrived
		}
		var value json.RawMessage
		err := values.Decode(&value)
		var syntax *json.SyntaxError
		switch {
		case limited.N == 0:
			return fmt.Errorf("%s %s: %w: body has more than %d bytes", k.Method, k.Path, ErrBody, limit)
		case err == io.EOF: //nolint:errorlint // as the decoder documents
			return nil
		case errors.As(err, &syntax):
			return fmt.Errorf("%s %s: %w: %w", k.Method, k.Path, ErrBody, err)
		case err != nil:
			return fmt.Errorf("%s %s: body: %w", k.Method, k.Path, err)
		}
		if err := k.Each(value); err != nil {
			return err
		}
	}
}

// watch checks the server's health every c.stall while a call waits, and cancels the call if the
// server does not answer. Any status counts as an answer, because a draining server still samples.
// stop ends the checks and waits for them.
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
				cancel(fmt.Errorf("server is not responding: %w", err))
				return
			}
		}
	}()
	return func() {
		end()
		<-done
	}
}

// refusal returns the error of an answer to k whose status is not 200 and whose body is data: an
// *inference.BusyError or a *StatusError.
func refusal(k Call, resp *http.Response, data []byte) error {
	e := Refusal(k.Method+" "+k.Path, resp.StatusCode, data)
	after := resp.Header.Get("Retry-After")
	switch {
	case e.Status == http.StatusTooManyRequests:
	case e.Status == http.StatusServiceUnavailable && after != "" && e.kind != "draining" && e.kind != "unavailable":
		// These two kinds are easyrl's. Waiting does not help: the server ends or needs weights.
	default:
		return e
	}
	return &inference.BusyError{After: retryAfter(after, resp.Header.Get("Date")), Err: e}
}

// retryAfter returns the pause that a Retry-After header asks for, in seconds or as a date, or 0 if
// there is none. date is the answer's Date header, from which the pause until a date is measured.
func retryAfter(header, date string) time.Duration {
	if s, err := strconv.Atoi(header); err == nil {
		const longest = 3600 // keeps the product in range; callers wait less anyway
		return time.Duration(min(max(s, 0), longest)) * time.Second
	}
	until, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(date)
	if err != nil {
		now = time.Now()
	}
	return max(until.Sub(now), 0)
}

// Refusal returns the error of a call, named by its method and path, that a server refused with a
// status and a body. It takes the message from the forms that OpenAI, FastAPI and SGLang use, and cuts
// it to 300 bytes.
func Refusal(name string, status int, data []byte) *StatusError {
	e := &StatusError{Status: status, call: name}
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

// Text returns the value of a JSON string, or any other JSON value as written.
func Text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}
