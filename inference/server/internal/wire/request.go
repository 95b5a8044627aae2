package wire

import (
	"io"
	"net"

	"github.com/valyala/fasthttp"
)

// bodyReader is a request's body that records whether it was read to its end.
type bodyReader struct {
	io.Reader
	conn  net.Conn
	ended bool
}

func (b *bodyReader) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF { //nolint:errorlint // a wrapped io.EOF means a truncated body
		if c, ok := b.conn.(*Conn); ok && c.Ended() {
			return n, io.ErrUnexpectedEOF
		}
		b.ended = true
	}
	return n, err
}

// RequestBody returns the body of ctx's request, the same reader at each call.
func RequestBody(ctx *fasthttp.RequestCtx) io.Reader { return bodyOf(ctx) }

func bodyOf(ctx *fasthttp.RequestCtx) *bodyReader {
	const key = "body"
	if b, ok := ctx.UserValue(key).(*bodyReader); ok {
		return b
	}
	b := &bodyReader{Reader: ctx.RequestBodyStream(), conn: ctx.Conn()}
	ctx.SetUserValue(key, b)
	return b
}

// CloseIfUnread makes the server close the connection of a request whose body was not read to its end,
// because the rest of the body would be taken for the next request.
func CloseIfUnread(ctx *fasthttp.RequestCtx) {
	if !ctx.Request.IsBodyStream() || ctx.Request.Header.ContentLength() == 0 || bodyOf(ctx).ended {
		return
	}
	ctx.SetConnectionClose()
	if c, ok := ctx.Conn().(*Conn); ok {
		c.Linger()
	}
}
