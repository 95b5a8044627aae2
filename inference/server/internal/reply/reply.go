// Package reply answers a request with JSON or refuses it in the format of OpenAI's
// errors.
package reply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"

	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/server/internal/fields"
	"github.com/easyrl/easyrl/inference/server/internal/openai"
	"github.com/easyrl/easyrl/inference/server/internal/wire"
)

const (
	// InvalidRequest is the kind of most failures.
	InvalidRequest = "invalid_request_error"
	// NotJSON replaces an answer that cannot be encoded.
	NotJSON = `{"error":{"message":"the answer has a value that JSON cannot represent","type":"server_error","param":null,"code":null}}`

	statusGone = 499 // the client has left
)

// Failure is an error as clients see it.
type Failure struct {
	Status              int
	Kind, Message, Code string
	Param               string
	Allow               string // methods that a 405 lists
	Retry               bool   // adds Retry-After
}

func (f *Failure) Error() string { return f.Message }

// Invalid returns a 400 that names the faulty field.
func Invalid(param, format string, args ...any) *Failure {
	return &Failure{Status: fasthttp.StatusBadRequest, Kind: InvalidRequest, Param: param, Message: fmt.Sprintf(format, args...)}
}

// Of converts err to a Failure.
func Of(err error) *Failure {
	var f *Failure
	var field *fields.Error
	switch {
	case errors.As(err, &field):
		return Invalid(field.Param, "%s", field.Message)
	case errors.As(err, &f):
		return f
	case errors.Is(err, wire.ErrGone):
		return &Failure{Status: statusGone, Kind: "client_closed_request", Message: err.Error()}
	case errors.Is(err, inference.ErrInvalid):
		return Invalid("", "%v", err)
	case errors.Is(err, inference.ErrStale):
		return Stale("%v", err)
	case errors.Is(err, inference.ErrClosed), errors.Is(err, context.Canceled):
		return &Failure{Status: fasthttp.StatusServiceUnavailable, Kind: "unavailable", Message: err.Error(), Retry: true}
	}
	return &Failure{Status: fasthttp.StatusInternalServerError, Kind: "server_error", Message: err.Error()}
}

// Late returns a 408.
func Late(message string) *Failure {
	return &Failure{Status: fasthttp.StatusRequestTimeout, Kind: InvalidRequest, Message: message}
}

// Stale returns a 409 for a request for other weights.
func Stale(format string, args ...any) *Failure {
	return &Failure{Status: fasthttp.StatusConflict, Kind: "stale_weights", Code: "stale_weights", Message: fmt.Sprintf(format, args...)}
}

// Body returns the failure in OpenAI's format.
func (f *Failure) Body() openai.ErrorAnswer {
	orNull := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	return openai.ErrorAnswer{Error: openai.Error{Message: f.Message, Type: f.Kind, Param: orNull(f.Param), Code: orNull(f.Code)}}
}

// Line returns the failure for an answer that has begun: its status is in the body.
func (f *Failure) Line() any {
	body := f.Body()
	body.Status = f.Status
	return body
}

// Refuse answers with err.
func Refuse(ctx *fasthttp.RequestCtx, err error) {
	f := Of(err)
	ctx.Response.Reset()
	JSON(ctx, f.Status, f.Body())
	if f.Retry {
		ctx.Response.Header.Set(fasthttp.HeaderRetryAfter, "1")
	}
	if f.Allow != "" {
		ctx.Response.Header.Set(fasthttp.HeaderAllow, f.Allow)
	}
	if f.Status == fasthttp.StatusUnauthorized {
		ctx.Response.Header.Set(fasthttp.HeaderWWWAuthenticate, "Bearer")
	}
}

// RefuseUnread answers a request that could not be read.
func RefuseUnread(ctx *fasthttp.RequestCtx, err error) {
	var small *fasthttp.ErrSmallBuffer
	var timeout net.Error
	switch {
	case errors.As(err, &small):
		err = &Failure{Status: fasthttp.StatusRequestHeaderFieldsTooLarge, Kind: InvalidRequest, Message: "header too large"}
	case errors.As(err, &timeout) && timeout.Timeout():
		err = Late("timed out reading the request")
	default:
		err = Invalid("", "malformed HTTP request")
	}
	Refuse(ctx, err)
	if c, ok := ctx.Conn().(*wire.Conn); ok {
		c.Linger()
	}
}

// JSON answers with value, which must be encodable.
func JSON(ctx *fasthttp.RequestCtx, status int, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		status, data = fasthttp.StatusInternalServerError, []byte(NotJSON)
	}
	ctx.SetStatusCode(status)
	ctx.SetContentType("application/json")
	ctx.SetBody(data)
}
