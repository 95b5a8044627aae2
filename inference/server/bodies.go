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

	"github.com/easyrl/easyrl/inference/server/internal/api"
	"github.com/easyrl/easyrl/inference/server/internal/wire"
)

const (
	longText   = 1 << 20 // bytes; longer texts are tokenized one at a time
	bodiesHeld = 16      // bodies of the largest size held at once; smaller ones count by size
)

// bodies reads the bodies of requests and bounds their total size.
type bodies struct {
	ctx    context.Context // the server's
	most   int64           // bytes of one body
	within time.Duration   // to read one body
	held   atomic.Int64    // bytes of all bodies
	long   sync.Mutex      // held while a long text is tokenized
}

// alone admits one long text at a time, because its tokens and their texts take many
// times its size. done admits the next.
func (b *bodies) alone(bytes int) (done func(), err error) {
	if bytes <= longText {
		return func() {}, nil
	}
	if !b.long.TryLock() {
		return nil, &api.Failure{
			Status: fasthttp.StatusTooManyRequests, Kind: "rate_limit_error", Code: "long_text", Retry: true,
			Message: fmt.Sprintf("text of %d bytes while another long text is being tokenized, "+
				"expected one text of more than %d bytes at a time", bytes, longText),
		}
	}
	return b.long.Unlock, nil
}

// read reads a body of at most the configured size. The body counts towards the total
// until release.
func (b *bodies) read(ctx *fasthttp.RequestCtx) (data []byte, release func(), err error) {
	tooLarge := func(size string) error {
		return &api.Failure{Status: fasthttp.StatusRequestEntityTooLarge, Kind: api.InvalidRequest,
			Message: fmt.Sprintf("body has %s bytes, expected at most %d", size, b.most)}
	}
	size := int64(ctx.Request.Header.ContentLength())
	switch {
	case !ctx.Request.IsBodyStream():
		return nil, nil, api.Invalid("", "no body, expected a JSON object")
	case size > b.most:
		return nil, nil, tooLarge(strconv.FormatInt(size, 10))
	}
	conn := ctx.Conn()
	if err := conn.SetReadDeadline(time.Now().Add(b.within)); err != nil {
		return nil, nil, wire.ErrGone
	}
	// Close does not wait for bodies.
	stop := context.AfterFunc(b.ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	body := &wire.Counted{Reader: io.LimitReader(wire.RequestBody(ctx), b.most+1), Held: &b.held,
		Most: bodiesHeld * b.most}
	release = body.Release
	data, err = io.ReadAll(body)
	var timeout net.Error
	switch {
	case err != nil && b.ctx.Err() != nil:
		err = context.Cause(b.ctx)
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = wire.ErrGone
	case errors.As(err, &timeout) && timeout.Timeout():
		err = late("timed out reading the body")
	case errors.Is(err, wire.ErrFull):
		err = &api.Failure{Status: fasthttp.StatusTooManyRequests, Kind: "rate_limit_error", Code: "bodies_full",
			Message: "too many bodies are being read", Retry: true}
	case err != nil:
		err = api.Invalid("", "cannot read the body, expected as many bytes as Content-Length, or complete chunks")
	case int64(len(data)) > b.most:
		err = tooLarge("more than " + strconv.FormatInt(b.most, 10))
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return data, release, nil
}
