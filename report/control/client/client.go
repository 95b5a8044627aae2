// Package client calls a run's control address.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/easyrl/easyrl/inference/fleet"
	"github.com/easyrl/easyrl/report/control"
)

// ErrInvalid means that the request is malformed or refused with status 400.
var ErrInvalid = errors.New("invalid request")

const (
	// maxResponse limits how much of a response Call reads, in bytes.
	maxResponse = 64 << 20
	// listTimeout is the timeout of a request for the list of instances.
	listTimeout = 30 * time.Second
	// drainPoll is the interval at which Drain polls.
	drainPoll = 200 * time.Millisecond
)

// Client calls a run's control address. Its methods may be called concurrently.
type Client struct {
	root, token string
	http        *http.Client
}

// New returns a client of the address at root, http://HOST:PORT. token may be empty.
func New(root, token string) *Client {
	return &Client{root: strings.TrimRight(root, "/"), token: token, http: &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true},
		// Following no redirect keeps the token from other addresses.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Call sends in as a JSON body and decodes the answer into out. Both may be nil. A status other than 2xx
// is an error with the server's message. It is ErrInvalid for status 400. Call has no timeout of its own.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.root+path, body)
	if err != nil {
		return fmt.Errorf("fleet: %w: %w", ErrInvalid, err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("fleet: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	if err != nil {
		return fmt.Errorf("fleet: %s %s: %w", method, c.root+path, err)
	}
	if resp.StatusCode/100 != 2 {
		return c.refused(method, path, resp.StatusCode, text)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("fleet: %s %s: %w, expected a response from a run's control address", method,
			c.root+path, err)
	}
	return nil
}

// refused returns the error of a failed request, with the server's message if it has
// one.
func (c *Client) refused(method, path string, status int, text []byte) error {
	var body struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal(text, &body); err != nil || body.Error.Message == "" {
		return fmt.Errorf("fleet: %s %s: status %d, expected a run's control address", method, c.root+path, status)
	}
	return &refusal{status, "fleet: " + strings.Join(strings.Fields(body.Error.Message), " ")}
}

// refusal is an error response of the control address.
type refusal struct {
	status  int
	message string
}

// Error returns the server's message.
func (r *refusal) Error() string { return r.message }

// Is reports whether target is ErrInvalid and the status is 400.
func (r *refusal) Is(target error) bool {
	return target == ErrInvalid && r.status == http.StatusBadRequest
} //nolint:errorlint // the sentinel itself

// Instances lists the run's instances.
func (c *Client) Instances(ctx context.Context) ([]control.Instance, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listTimeout,
		fmt.Errorf("fleet: GET %s/instances: no response within %v", c.root, listTimeout))
	defer cancel()
	var answer struct {
		Instances []control.Instance `json:"instances"`
	}
	err := c.Call(ctx, http.MethodGet, "/instances", nil, &answer)
	return answer.Instances, err
}

// Drain drains instance id and waits until it has no requests left. left reports whether the instance left
// the run meanwhile, even if it has joined again since.
func (c *Client) Drain(ctx context.Context, id string) (left bool, err error) {
	var m control.Instance
	if err := c.Call(ctx, http.MethodPost, "/instances/"+url.PathEscape(id)+"/drain", nil, &m); err != nil {
		return false, err
	}
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for m.Requests > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false, fmt.Errorf("fleet: %s is still draining, with %d requests left: %w", id, m.Requests,
				context.Cause(ctx))
		}
		all, err := c.Instances(ctx)
		if err != nil {
			return false, err
		}
		at := slices.IndexFunc(all, func(o control.Instance) bool { return o.ID == id })
		if at < 0 || all[at].State != fleet.Draining.String() && all[at].State != fleet.Drained { // or joined again
			return true, nil
		}
		m = all[at]
	}
	return false, nil
}
