package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// patience is how long a client waits for a response.
const patience = 5 * time.Minute

// client is one member of the crowd.
type client struct {
	l    *load
	rng  *rand.Rand
	kept *connection // from the last successful request; may be nil
}

// connection is a connection to the server with buffered reads.
type connection struct {
	*net.TCPConn
	r *bufio.Reader
}

// crowd runs the clients for d while the weights change, and waits for them.
func (l *load) crowd(ctx context.Context, d time.Duration) error {
	within, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	end := time.Now().Add(d)
	kinds := kinds()
	sum := 0
	for _, k := range kinds {
		sum += k.share
	}
	var all sync.WaitGroup
	if len(l.server.weights) > 0 {
		all.Go(func() { l.update(within) })
	}
	for i := range l.connections {
		all.Go(func() {
			c := &client{l: l, rng: rand.New(rand.NewPCG(l.seed, uint64(i)))}
			defer c.drop()
			for within.Err() == nil {
				at := c.rng.IntN(sum)
				k := kinds[0]
				for _, k = range kinds {
					if at -= k.share; at < 0 {
						break
					}
				}
				if time.Now().Add(k.lasts).Before(end) {
					c.do(k)
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// do performs one action and counts its outcome.
func (c *client) do(k kind) {
	if !k.keeps {
		c.drop()
	}
	outcome, err := k.do(c)
	var no *refusal
	switch {
	case err == nil:
		c.l.tally.count(k.name, outcome)
	case errors.As(err, &no) && (no.status == http.StatusTooManyRequests || no.kind == "stale_weights"):
		c.l.tally.count(k.name, no.Error()) // any client may get these
	default:
		c.drop()
		c.l.tally.fault(k.name, err)
	}
}

// drop closes the kept connection.
func (c *client) drop() {
	if c.kept != nil {
		_ = c.kept.Close()
		c.kept = nil
	}
}

// isBroken reports whether a connection ended before the answer was read.
func isBroken(err error) bool {
	var fault *net.OpError
	return errors.As(err, &fault) && !fault.Timeout()
}

// dial opens a connection. The caller closes it.
func (c *client) dial() (*connection, error) {
	conn, err := net.DialTimeout("tcp", c.l.server.addr, time.Minute)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &connection{conn.(*net.TCPConn), bufio.NewReader(conn)}, nil
}

// head formats a request header with fields, including the empty line.
func (c *client) head(method, path, proto, fields string) string {
	token := ""
	if c.l.server.token != "" {
		token = "Authorization: Bearer " + c.l.server.token + "\r\n"
	}
	return method + " " + path + " " + proto + "\r\nHost: localhost\r\nContent-Type: application/json\r\n" + token + fields + "\r\n"
}

// post formats a complete POST request.
func (c *client) post(path, body string) string {
	return c.head(http.MethodPost, path, "HTTP/1.1", fmt.Sprintf("Content-Length: %d\r\n", len(body))) + body
}

// question returns a random question with known answers.
func (c *client) question() *question { return c.l.questions[c.rng.IntN(len(c.l.questions))] }

// hear reads the answer to q and compares it with the expected one.
func (c *client) hear(conn *connection, q *question) (string, error) {
	res, err := http.ReadResponse(conn.r, nil)
	if err != nil {
		return "", fmt.Errorf("no response: %w", err)
	}
	if res.Close {
		c.drop()
	}
	a, err := read(res)
	if err != nil {
		return "", err
	}
	if want := q.want[c.l.server.weightsOf(a.version)]; a.text != want {
		return "", fmt.Errorf("%s, version %d: got %.300s, expected %.300s", q.name, a.version, a.text, want)
	}
	return right, nil
}

// refusedWith sends a request on a new connection. The server must refuse it with one
// of statuses.
func (c *client) refusedWith(request string, statuses ...int) (string, error) {
	conn, err := c.dial()
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // the answer has been read
	if _, err := io.WriteString(conn, request); err != nil {
		return "", err
	}
	return conn.refusal(statuses...)
}

// refusal reads a response that must have one of statuses.
func (conn *connection) refusal(statuses ...int) (string, error) {
	res, err := http.ReadResponse(conn.r, nil)
	if err != nil {
		return "", fmt.Errorf("no response: %w", err)
	}
	_, err = read(res)
	var no *refusal
	if !errors.As(err, &no) {
		return "", errors.Join(fmt.Errorf("status is %d, expected %v", res.StatusCode, statuses), err)
	}
	if slices.Contains(statuses, no.status) {
		return no.Error(), nil
	}
	return "", err
}
