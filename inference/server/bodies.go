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
	bodiesHeld = 16      // limit of the total size of bodies in memory, in bodies of the maximum size
)

// bodies reads the bodies of requests and limits their total size. Its methods may be called
// concurrently.
type bodies struct {
	ctx     context.Context // ends with the server
	maxBody int64           // maximum size of one body in bytes
	timeout time.Duration   // limits the time to read one body
	held    atomic.Int64    // total bytes of bodies in memory
	long    sync.Mutex      // held while a long text is tokenized
}

// alone admits a text of this size to the tokenizer. It admits one long text at a time, because a
// text's tokens take many times its memory, and returns an error for another. After a nil error the
// caller must call done when it has tokenized the text.
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

// read reads a body of at most maxBody bytes. The body counts towards the total until the caller
// calls release. Errors are *api.Failure, wire.ErrGone or the cause of b.ctx.
func (b *bodies) read(ctx *fasthttp.RequestCtx) (data []byte, release func(), err error) {
	tooLarge := func(size string) error {
		return &api.Failure{Status: fasthttp.StatusRequestEntityTooLarge, Kind: api.InvalidRequest,
			Message: fmt.Sprintf("body has %s bytes, expected at most %d", size, b.maxBody)}
	}
	size := int64(ctx.Request.Header.ContentLength())
	switch {
	case !ctx.Request.IsBodyStream():
		return nil, nil, api.Invalid("", "no body, expected a JSON object")
	case size > b.maxBody:
		return nil, nil, tooLarge(strconv.FormatInt(size, 10))
	}
	conn := ctx.Conn()
	if err := conn.SetReadDeadline(time.Now().Add(b.timeout)); err != nil {
		return nil, nil, wire.ErrGone
	}
	// Close does not wait for bodies: a deadline in the past ends the read.
	stop := context.AfterFunc(b.ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	body := &wire.Counted{Reader: io.LimitReader(wire.RequestBody(ctx), b.maxBody+1), Held: &b.held,
		Limit: bodiesHeld * b.maxBody}
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
	case int64(len(data)) > b.maxBody:
		err = tooLarge("more than " + strconv.FormatInt(b.maxBody, 10))
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return data, release, nil
}
