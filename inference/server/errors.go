package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/server/internal/fields"
	"github.com/easyrl/easyrl/inference/server/internal/wire"
)

const (
	invalidRequest = "invalid_request_error"
	bodyTimes      = 6       // as long as a header a body may take
	longText       = 1 << 20 // bytes; more are made tokens alone
	bodiesHeld     = 16      // bodies of the largest size may be held at once, or more smaller ones
	statusGone     = 499     // nobody reads it
	// notJSON is the answer in place of one that cannot be encoded.
	notJSON = `{"error":{"message":"the answer has a value that JSON cannot carry","type":"server_error","param":null,"code":null}}`
)

// failure is an error as clients see it.
type failure struct {
	status              int
	kind, message, code string
	param               string
	allow               string // methods, of a 405
	retry               bool   // with a Retry-After
}

func (f *failure) Error() string { return f.message }

// invalid is a 400 that names what is wrong.
func invalid(param, format string, args ...any) *failure {
	return &failure{status: fasthttp.StatusBadRequest, kind: invalidRequest, param: param, message: fmt.Sprintf(format, args...)}
}

// asFailure is err as clients see it.
func asFailure(err error) *failure {
	var f *failure
	var field *fields.Error
	switch {
	case errors.As(err, &field):
		return invalid(field.Param, "%s", field.Message)
	case errors.As(err, &f):
		return f
	case errors.Is(err, wire.ErrGone):
		return &failure{status: statusGone, kind: "client_closed_request", message: err.Error()}
	case errors.Is(err, inference.ErrInvalid):
		return invalid("", "%v", err)
	case errors.Is(err, inference.ErrStale):
		return stale("%v", err)
	case errors.Is(err, inference.ErrClosed), errors.Is(err, context.Canceled):
		return &failure{status: fasthttp.StatusServiceUnavailable, kind: "unavailable", message: err.Error(), retry: true}
	}
	return &failure{status: fasthttp.StatusInternalServerError, kind: "server_error", message: err.Error()}
}

func late(message string) *failure {
	return &failure{status: fasthttp.StatusRequestTimeout, kind: invalidRequest, message: message}
}

func stale(format string, args ...any) *failure {
	return &failure{status: fasthttp.StatusConflict, kind: "stale_weights", code: "stale_weights", message: fmt.Sprintf(format, args...)}
}

// body is the failure in OpenAI's shape.
func (f *failure) body() any {
	orNull := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	return map[string]any{"error": map[string]any{"message": f.message, "type": f.kind, "param": orNull(f.param), "code": orNull(f.code)}}
}

// refuse answers with err.
func refuse(ctx *fasthttp.RequestCtx, err error) {
	f := asFailure(err)
	ctx.Response.Reset()
	writeJSON(ctx, f.status, f.body())
	if f.retry {
		ctx.Response.Header.Set(fasthttp.HeaderRetryAfter, "1")
	}
	if f.allow != "" {
		ctx.Response.Header.Set(fasthttp.HeaderAllow, f.allow)
	}
	if f.status == fasthttp.StatusUnauthorized {
		ctx.Response.Header.Set(fasthttp.HeaderWWWAuthenticate, "Bearer")
	}
}

// refuseUnread answers a request that could not be read.
func refuseUnread(ctx *fasthttp.RequestCtx, err error) {
	var small *fasthttp.ErrSmallBuffer
	var timeout net.Error
	switch {
	case errors.As(err, &small):
		err = &failure{status: fasthttp.StatusRequestHeaderFieldsTooLarge, kind: invalidRequest, message: "header too large"}
	case errors.As(err, &timeout) && timeout.Timeout():
		err = late("the request did not come in time")
	default:
		err = invalid("", "not an HTTP request that can be read")
	}
	refuse(ctx, err)
	if c, ok := ctx.Conn().(*wire.Conn); ok {
		c.Linger()
	}
}

// writeJSON answers with value, which can be marshalled.
func writeJSON(ctx *fasthttp.RequestCtx, status int, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		status, data = fasthttp.StatusInternalServerError, []byte(notJSON)
	}
	ctx.SetStatusCode(status)
	ctx.SetContentType("application/json")
	ctx.SetBody(data)
}

// alone is given to one long text at a time: its tokens and their texts take
// many times the room of its bytes. done gives it back.
func (s *Server) alone(bytes int) (done func(), err error) {
	if bytes <= longText {
		return func() {}, nil
	}
	if !s.long.TryLock() {
		return nil, &failure{status: fasthttp.StatusTooManyRequests, kind: "rate_limit_error", code: "long_text", retry: true,
			message: fmt.Sprintf("text of %d bytes while another is made tokens, expected one of more than %d at a time", bytes, longText)}
	}
	return s.long.Unlock, nil
}

// readBody reads a body of the configured size at most. What it holds counts
// until release.
func (s *Server) readBody(ctx *fasthttp.RequestCtx) (data []byte, release func(), err error) {
	tooLarge := func(size string) error {
		return &failure{status: fasthttp.StatusRequestEntityTooLarge, kind: invalidRequest,
			message: fmt.Sprintf("body of %s bytes, expected at most %d", size, s.cfg.MaxBody)}
	}
	size := int64(ctx.Request.Header.ContentLength())
	switch {
	case !ctx.Request.IsBodyStream():
		return nil, nil, invalid("", "no body, expected JSON")
	case size > s.cfg.MaxBody:
		return nil, nil, tooLarge(strconv.FormatInt(size, 10))
	}
	conn := ctx.Conn()
	if err := conn.SetReadDeadline(time.Now().Add(bodyTimes * s.cfg.HeaderTimeout)); err != nil {
		return nil, nil, wire.ErrGone
	}
	stop := context.AfterFunc(s.ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) }) // Close waits for no body
	defer stop()
	body := &wire.Counted{Reader: io.LimitReader(wire.RequestBody(ctx), s.cfg.MaxBody+1), Held: &s.bodies, Most: bodiesHeld * s.cfg.MaxBody}
	release = body.Release
	data, err = io.ReadAll(body)
	var timeout net.Error
	switch {
	case err != nil && s.ctx.Err() != nil:
		err = context.Cause(s.ctx)
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = wire.ErrGone
	case errors.As(err, &timeout) && timeout.Timeout():
		err = late("the body did not come in time")
	case errors.Is(err, wire.ErrFull):
		err = &failure{status: fasthttp.StatusTooManyRequests, kind: "rate_limit_error", code: "bodies_full",
			message: "too many bodies are being read", retry: true}
	case err != nil:
		err = invalid("", "body cannot be read, expected so many bytes as Content-Length says, or chunks and their end")
	case int64(len(data)) > s.cfg.MaxBody:
		err = tooLarge("more than " + strconv.FormatInt(s.cfg.MaxBody, 10))
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return data, release, nil
}
