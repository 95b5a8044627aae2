package server

import (
	"context"
	"encoding/json"
	"errors"
	"net"

	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/server/internal/api"
	"github.com/easyrl/easyrl/inference/server/internal/wire"
)

const statusGone = 499 // nginx's status for a client that has disconnected

// failureOf returns err as clients see it.
func failureOf(err error) *api.Failure {
	var f *api.Failure
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, wire.ErrGone):
		return &api.Failure{Status: statusGone, Kind: "client_closed_request", Message: err.Error()}
	case errors.Is(err, inference.ErrInvalid):
		return api.Invalid("", "%v", err)
	case errors.Is(err, inference.ErrStale):
		return api.Stale("%v", err)
	case errors.Is(err, inference.ErrClosed), errors.Is(err, context.Canceled):
		return &api.Failure{Status: fasthttp.StatusServiceUnavailable, Kind: "unavailable", Message: err.Error(),
			Retry: true}
	}
	return &api.Failure{Status: fasthttp.StatusInternalServerError, Kind: "server_error", Message: err.Error()}
}

// late returns a 408, for a client that sends too slowly.
func late(message string) *api.Failure {
	return &api.Failure{Status: fasthttp.StatusRequestTimeout, Kind: api.InvalidRequest, Message: message}
}

// refuse answers with err.
func refuse(ctx *fasthttp.RequestCtx, err error) {
	f := failureOf(err)
	ctx.Response.Reset()
	writeJSON(ctx, f.Status, f.Body())
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

// refuseUnread answers a request that could not be read.
func refuseUnread(ctx *fasthttp.RequestCtx, err error) {
	var small *fasthttp.ErrSmallBuffer
	var timeout net.Error
	switch {
	case errors.As(err, &small):
		err = &api.Failure{Status: fasthttp.StatusRequestHeaderFieldsTooLarge, Kind: api.InvalidRequest,
			Message: "header too large"}
	case errors.As(err, &timeout) && timeout.Timeout():
		err = late("timed out reading the request")
	default:
		err = api.Invalid("", "malformed HTTP request")
	}
	refuse(ctx, err)
	if c, ok := ctx.Conn().(*wire.Conn); ok {
		c.Linger()
	}
}

// writeJSON answers with value, which must be encodable.
func writeJSON(ctx *fasthttp.RequestCtx, status int, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		status, data = fasthttp.StatusInternalServerError, []byte(api.NotJSON)
	}
	ctx.SetStatusCode(status)
	ctx.SetContentType("application/json")
	ctx.SetBody(data)
}
