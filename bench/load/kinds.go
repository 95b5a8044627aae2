package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// kind is an action of a client. do returns the outcome, or an error other than a right
// answer: a refusal that any client may get, or a fault.
type kind struct {
	name  string
	share int           // of roughly a thousand
	lasts time.Duration // does not start later than this before the end
	keeps bool          // uses the kept connection
	do    func(c *client) (string, error)
}

// kinds returns the actions of the crowd, most of them well-behaved.
func kinds() []kind {
	post := func(path, body string, statuses ...int) func(c *client) (string, error) {
		return func(c *client) (string, error) { return c.refusedWith(c.post(path, body), statuses...) }
	}
	const completions = "/v1/completions"
	return []kind{
		{name: "question", share: 420, keeps: true, do: func(c *client) (string, error) { return c.ask(false) }},
		{name: "question, streamed", share: 160, keeps: true, do: func(c *client) (string, error) { return c.ask(true) }},
		{name: "question, chunked", share: 30, do: chunked},
		{name: "question, slow body", share: 10, lasts: 5 * time.Second, do: slowBody},
		{name: "question, HTTP/1.0", share: 30, do: func(c *client) (string, error) { return c.old(false) }},
		{name: "question, HTTP/1.0, stream", share: 10, do: func(c *client) (string, error) { return c.old(true) }},
		{name: "three pipelined", share: 30, do: pipelined},
		{name: "half closed", share: 30, do: halfClosed},
		{name: "disconnect in stream", share: 80, do: goneInStream},
		{name: "disconnect at once", share: 40, do: goneAtOnce},
		{name: "disconnect in body", share: 20, do: goneInBody},
		{name: "invalid JSON", share: 20, do: post(completions, `{"prompt":[1,2`, http.StatusBadRequest)},
		{name: "deep JSON", share: 5, do: post(completions, `{"prompt":`+strings.Repeat("[", 100_000), http.StatusBadRequest)},
		{name: "invalid UTF-8", share: 20, do: post(completions, "{\"prompt\":\"\xff\xfe\"}", http.StatusBadRequest)},
		{name: "invalid token", share: 10, do: post(completions, `{"prompt":[-1]}`, http.StatusBadRequest)},
		{name: "too many responses", share: 10, do: post(completions, `{"prompt":[7],"n":1000000}`, http.StatusBadRequest)},
		{name: "unknown version", share: 10, do: post(completions, `{"prompt":[7],"weight_version":987654321}`, http.StatusConflict)},
		{name: "unknown path", share: 10, do: post("/v1/nothing", `{}`, http.StatusNotFound)},
		{name: "unknown method", share: 10, do: func(c *client) (string, error) {
			return c.refusedWith(c.head(http.MethodDelete, completions, "HTTP/1.1", ""), http.StatusMethodNotAllowed)
		}},
		{name: "not HTTP", share: 10, do: func(c *client) (string, error) {
			return c.refusedWith("\x16\x03\x01\x02\x00 this is no request\r\n\r\n", http.StatusBadRequest)
		}},
		{name: "wrong token", share: 20, do: wrongToken},
		{name: "100 MB", share: 20, do: large},
		{name: "100 MB, sent anyway", share: 1, do: stubborn},
		{name: "endless chunks", share: 2, do: endless},
		{name: "huge header", share: 10, do: hugeHeader},
		{name: "slow header", share: 5, lasts: 15 * time.Second, do: slowHeader},
		{name: "stalled body", share: 1, lasts: 70 * time.Second, do: stalled},
	}
}

// ask asks a question on the kept connection, or on a new one.
func (c *client) ask(stream bool) (string, error) {
	if c.kept == nil {
		conn, err := c.dial()
		if err != nil {
			return "", err
		}
		c.kept = conn
	}
	conn := c.kept
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	q := c.question()
	if _, err := io.WriteString(conn, c.post(q.path, q.body(stream))); err != nil {
		return "", err
	}
	outcome, err := c.hear(conn, q)
	if err != nil {
		c.drop() // the rest of a stream is unread
	}
	return outcome, err
}

// alone sends the pieces of a request, pausing in between, and reads the answer.
func (c *client) alone(q *question, pause time.Duration, pieces ...string) (string, error) {
	conn, err := c.dial()
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // the answer has been read
	for i, piece := range pieces {
		if i > 0 {
			time.Sleep(pause)
		}
		if _, err := io.WriteString(conn, piece); err != nil {
			return "", err
		}
	}
	return c.hear(conn, q)
}

func chunked(c *client) (string, error) {
	q := c.question()
	body := q.body(c.rng.IntN(2) == 0)
	half := len(body) / 2
	return c.alone(q, 0, c.head(http.MethodPost, q.path, "HTTP/1.1", "Transfer-Encoding: chunked\r\n"),
		fmt.Sprintf("%x\r\n%s\r\n", half, body[:half]), fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body)-half, body[half:]))
}

func slowBody(c *client) (string, error) {
	q := c.question()
	request := c.post(q.path, q.body(false))
	n := len(request)
	return c.alone(q, time.Second, request[:n-30], request[n-30:n-20], request[n-20:n-10], request[n-10:])
}

// old asks like an HTTP/1.0 client, which does not support chunks: the server closes
// the connection.
func (c *client) old(stream bool) (string, error) {
	q := c.question()
	body := q.body(stream)
	conn, err := c.dial()
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // the answer has been read
	if _, err := io.WriteString(conn, c.head(http.MethodPost, q.path, "HTTP/1.0", fmt.Sprintf("Content-Length: %d\r\n", len(body)))+body); err != nil {
		return "", err
	}
	start, err := conn.r.Peek(len("HTTP/1.1 200 OK\r\n"))
	if err != nil {
		return "", err
	}
	outcome, err := c.hear(conn, q)
	if err != nil {
		return "", err
	}
	if _, err := conn.r.ReadByte(); err != io.EOF {
		return "", fmt.Errorf("connection after the response, starting with %q: %w, expected EOF", start, err)
	}
	return outcome, nil
}

func pipelined(c *client) (string, error) {
	conn, err := c.dial()
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // the answers have been read
	var list []*question
	var all strings.Builder
	for range 3 {
		q := c.question()
		list = append(list, q)
		all.WriteString(c.post(q.path, q.body(false)))
	}
	if _, err := io.WriteString(conn, all.String()); err != nil {
		return "", err
	}
	for _, q := range list {
		if _, err := c.hear(conn, q); err != nil {
			return "", err
		}
	}
	return right, nil
}

// halfClosed closes its writing side after the request. The server cancels the request,
// unless it has answered before it notices.
func halfClosed(c *client) (string, error) {
	q := c.question()
	conn, err := c.dial()
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // the answer has been read
	if _, err := io.WriteString(conn, c.post(q.path, q.body(false))); err != nil {
		return "", err
	}
	if err := conn.CloseWrite(); err != nil {
		return "", err
	}
	outcome, err := c.hear(conn, q)
	var no *refusal
	if errors.As(err, &no) && no.kind == "client_closed_request" {
		return no.Error(), nil
	}
	return outcome, err
}

// vanish closes a connection, half of the time with a reset.
func (c *client) vanish(conn *connection) (string, error) {
	if c.rng.IntN(2) == 0 {
		_ = conn.SetLinger(0)
	}
	_ = conn.Close()
	return "gone", nil
}

func goneInStream(c *client) (string, error) {
	q := c.question()
	conn, err := c.dial()
	if err != nil {
		return "", err
	}
	defer c.vanish(conn) //nolint:errcheck // always nil
	if _, err := io.WriteString(conn, c.post(q.path, q.body(true))); err != nil {
		return "", err
	}
	res, err := http.ReadResponse(conn.r, nil)
	if err != nil {
		return "", fmt.Errorf("no response: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		_, err := read(res)
		return "", err
	}
	_, err = io.ReadFull(res.Body, make([]byte, 200))
	return "gone", err
}

func goneAtOnce(c *client) (string, error) {
	q := c.question()
	conn, err := c.dial()
	if err != nil {
		return "", err
	}
	_, _ = io.WriteString(conn, c.post(q.path, q.body(c.rng.IntN(2) == 0)))
	return c.vanish(conn)
}

func goneInBody(c *client) (string, error) {
	conn, err := c.dial()
	if err != nil {
		return "", err
	}
	request := c.post("/v1/completions", strings.Repeat(" ", 100_000))
	_, _ = io.WriteString(conn, request[:len(request)-c.rng.IntN(100_000)])
	return c.vanish(conn)
}

func wrongToken(c *client) (string, error) {
	if c.l.server.token == "" {
		return "not asked for", nil
	}
	body := `{"prompt":[7]}`
	return c.refusedWith(fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %x\r\nContent-Length: %d\r\n\r\n%s",
		c.rng.Uint64(), len(body), body), http.StatusUnauthorized)
}

// large announces 100 MB and sends at most 64 KiB of them before the answer.
func large(c *client) (string, error) {
	return c.refusedWith(c.head(http.MethodPost, "/v1/completions", "HTTP/1.1", "Content-Length: 104857600\r\n")+strings.Repeat(" ", 64<<10),
		http.StatusRequestEntityTooLarge)
}

// send writes pieces until limit bytes are sent or the connection fails, and reads the
// answer at the same time. The answer must have one of statuses, unless the connection
// broke before it arrived.
func (c *client) send(fields, piece string, limit int, statuses ...int) (string, error) {
	conn, err := c.dial()
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // the answer has been read
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, err := io.WriteString(conn, c.head(http.MethodPost, "/v1/completions", "HTTP/1.1", fields))
		for n := 0; err == nil && n < limit; n += len(piece) {
			_, err = io.WriteString(conn, piece)
		}
	}()
	outcome, err := conn.refusal(statuses...)
	_ = conn.Close() // ends the sender
	<-sent
	if isBroken(err) {
		return "cut off", nil
	}
	return outcome, err
}

func stubborn(c *client) (string, error) {
	return c.send("Content-Length: 104857600\r\n", strings.Repeat(" ", 64<<10), 100<<20, http.StatusRequestEntityTooLarge)
}

func endless(c *client) (string, error) {
	return c.send("Transfer-Encoding: chunked\r\n", "10000\r\n"+strings.Repeat(" ", 64<<10)+"\r\n", 1<<30, http.StatusRequestEntityTooLarge)
}

func hugeHeader(c *client) (string, error) {
	return c.send("X-A: "+strings.Repeat("a", 128<<10)+"\r\n", "", 0, http.StatusRequestHeaderFieldsTooLarge)
}

// slowHeader sends a byte per second until the server rejects the request.
func slowHeader(c *client) (string, error) {
	conn, err := c.dial()
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // the server has closed it
	began := time.Now()
	answered := make(chan error, 1)
	var outcome string
	go func() {
		var err error
		outcome, err = conn.refusal(http.StatusRequestTimeout)
		answered <- err
	}()
	_, _ = io.WriteString(conn, "POST /v1/completions HTTP/1.1\r\nX-A: ") // if writing fails, reading fails too
	for time.Since(began) < time.Minute {
		select {
		case err := <-answered:
			if isBroken(err) {
				return "cut off", nil
			}
			return outcome, err
		case <-time.After(time.Second):
			_, _ = io.WriteString(conn, "a")
		}
	}
	_ = conn.Close()
	return "", errors.Join(errors.New("a header may come for a minute"), <-answered)
}

// stalled sends half a body and then nothing.
func stalled(c *client) (string, error) {
	request := c.post("/v1/completions", strings.Repeat(" ", 1000))
	return c.refusedWith(request[:len(request)-500], http.StatusRequestTimeout)
}
