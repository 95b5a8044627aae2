package reward

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/easyrl/easyrl/internal/bytesize"
	"github.com/easyrl/easyrl/internal/peer"
	"github.com/easyrl/easyrl/reward/program"
)

// maxReply is the maximum size of an answer in bytes, 64 MiB.
const maxReply = 64 << 20

// client posts JSON to services and reads their answers. It is safe for concurrent use.
type client struct {
	http    *http.Client
	timeout time.Duration
}

// newClient returns a client that allows timeout for each answer and keeps up to
// connections idle connections per service.
func newClient(connections int, timeout time.Duration) *client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = connections
	return &client{timeout: timeout, http: &http.Client{
		Transport: transport,
		// A redirected POST would arrive as a GET without its body.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// close closes idle connections.
func (c *client) close() { c.http.CloseIdleConnections() }

// post posts a JSON body to a URL and returns the answer. transient reports whether a retry may succeed. It
// is true after statuses 408, 429 and 5xx, lost connections, missed deadlines and replies that are too
// long, but false after other statuses, including redirects. Without an error it is true, for callers that
// find the answer malformed.
func (c *client) post(ctx context.Context, to string, body []byte) (answer []byte, transient bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return nil, false, err
	}
	r.Header.Set("Content-Type", "application/json")
	reply, err := c.http.Do(r)
	if err != nil {
		return nil, true, c.plain(ctx, err)
	}
	defer reply.Body.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(io.LimitReader(reply.Body, maxReply+1))
	switch {
	case reply.StatusCode != http.StatusOK:
		return nil, isTransient(reply.StatusCode), statusError(reply, text)
	case err != nil:
		return nil, true, c.plain(ctx, err)
	case len(text) > maxReply:
		return nil, true, fmt.Errorf("reply is longer than %s", bytesize.Text(maxReply))
	}
	return text, true, nil
}

// plain strips the URL from an error, since callers add it.
func (c *client) plain(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: %v", program.ErrTimeout, c.timeout)
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return peer.Fault(err)
}

// isTransient reports whether a request with this status may succeed when it is repeated.
func isTransient(code int) bool {
	return code >= 500 || code == http.StatusRequestTimeout || code == http.StatusTooManyRequests
}

// statusError describes a status other than 200 together with the service's message.
func statusError(reply *http.Response, text []byte) error {
	said := strconv.Itoa(reply.StatusCode) + " " + http.StatusText(reply.StatusCode)
	if to := reply.Header.Get("Location"); to != "" {
		said += " to " + program.OneLine([]byte(to))
	}
	if line := program.OneLine(text); line != "" {
		said += ": " + line
	}
	return fmt.Errorf("status %s, expected 200", said)
}

// shownURL returns a URL without its password.
func shownURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "the scorer"
	}
	return u.Redacted()
}
