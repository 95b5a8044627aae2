package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/inference/server/internal/reply"
	"github.com/easyrl/easyrl/inference/server/internal/wire"
)

const (
	longText   = 1 << 20 // bytes; more are made tokens alone
	bodiesHeld = 16      // bodies of the largest size may be held at once, or more smaller ones
)

// bodies reads the bodies of requests and bounds what all of them hold.
type bodies struct {
	ctx    context.Context // the server's
	most   int64           // bytes of one
	within time.Duration   // to read one
	held   atomic.Int64    // bytes of all
	long   sync.Mutex      // held while a long text is made tokens
}

// alone is given to one long text at a time: its tokens and their texts take
// many times the room of its bytes. done gives it back.
func (b *bodies) alone(bytes int) (done func(), err error) {
	if bytes <= longText {
		return func() {}, nil
	}
	if !b.long.TryLock() {
		return nil, &reply.Failure{Status: fasthttp.StatusTooManyRequests, Kind: "rate_limit_error", Code: "long_text", Retry: true,
			Message: fmt.Sprintf("text of %d bytes while another is made tokens, expected one of more than %d at a time", bytes, longText)}
	}
	return b.long.Unlock, nil
}

// read reads a body of the configured size at most. What it holds counts
// until release.
func (b *bodies) read(ctx *fasthttp.RequestCtx) (data []byte, release func(), err error) {
	tooLarge := func(size string) error {
		return &reply.Failure{Status: fasthttp.StatusRequestEntityTooLarge, Kind: reply.InvalidRequest,
			Message: fmt.Sprintf("body of %s bytes, expected at most %d", size, b.most)}
	}
	size := int64(ctx.Request.Header.ContentLength())
	switch {
	case !ctx.Request.IsBodyStream():
		return nil, nil, reply.Invalid("", "no body, expected JSON")
	case size > b.most:
		return nil, nil, tooLarge(strconv.FormatInt(size, 10))
	}
	conn := ctx.Conn()
	if err := conn.SetReadDeadline(time.Now().Add(b.within)); err != nil {
		return nil, nil, wire.ErrGone
	}
	stop := context.AfterFunc(b.ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) }) // Close waits for no body
	defer stop()
	body := &wire.Counted{Reader: io.LimitReader(wire.RequestBody(ctx), b.most+1), Held: &b.held, Most: bodiesHeld * b.most}
	release = body.Release
	data, err = io.ReadAll(body)
	var timeout net.Error
	switch {
	case err != nil && b.ctx.Err() != nil:
		err = context.Cause(b.ctx)
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = wire.ErrGone
	case errors.As(err, &timeout) && timeout.Timeout():
		err = reply.Late("the body did not come in time")
	case errors.Is(err, wire.ErrFull):
		err = &reply.Failure{Status: fasthttp.StatusTooManyRequests, Kind: "rate_limit_error", Code: "bodies_full",
			Message: "too many bodies are being read", Retry: true}
	case err != nil:
		err = reply.Invalid("", "body cannot be read, expected so many bytes as Content-Length says, or chunks and their end")
	case int64(len(data)) > b.most:
		err = tooLarge("more than " + strconv.FormatInt(b.most, 10))
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return data, release, nil
}
