// Package service posts JSON to services and reads what they answer, within limits
// of time and size.
package service

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

	"github.com/easyrl/easyrl/reward/program"
)

// maxReply is how long an answer may be, in bytes.
const maxReply = 64 << 20

// Client posts to services. It is safe for concurrent use.
type Client struct {
	http    *http.Client
	timeout time.Duration
}

// NewClient makes a client of services that have timeout for each answer. It keeps
// that many connections to each.
func NewClient(connections int, timeout time.Duration) *Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = connections
	return &Client{timeout: timeout, http: &http.Client{
		Transport: transport,
		// A redirected POST would arrive as a GET without its body.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close closes connections that are not in use.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Post returns the answer to a JSON body, or an error and whether it may pass:
// status 408, 429 and 5xx, a lost connection and a missed deadline may, other
// statuses, redirects among them, may not.
func (c *Client) Post(ctx context.Context, at string, body []byte) (answer []byte, again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at, bytes.NewReader(body))
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
		return nil, passes(reply.StatusCode), statusError(reply, text)
	case err != nil:
		return nil, true, c.plain(ctx, err)
	case len(text) > maxReply:
		return nil, true, fmt.Errorf("answer is longer than %d bytes", maxReply)
	}
	return text, true, nil
}

// plain is an error without the URL, which is said elsewhere.
func (c *Client) plain(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: %v", program.ErrTimeout, c.timeout)
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

// passes reports whether a status may be another one next time.
func passes(code int) bool {
	return code >= 500 || code == http.StatusRequestTimeout || code == http.StatusTooManyRequests
}

// statusError is a status that is not 200, with what the service says about it.
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

// Shown is a URL without its password.
func Shown(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "the scorer"
	}
	return u.Redacted()
}
