package server

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"
)

// crowd is a server whose weights alternate between versions 1 and 2, and the right answers.
type crowd struct {
	addr  string
	texts map[int64]string // by version
}

// request returns a request whose answer depends only on the weights.
func (crowd) request(proto string, stream bool) string {
	body := fmt.Sprintf(`{"prompt":"a","seed":1,"max_tokens":40,"ignore_eos":true,"stream":%t}`, stream)
	const format = "POST /v1/completions %s\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
		"Content-Length: %d\r\n\r\n%s"
	return fmt.Sprintf(format, proto, len(body), body)
}

// check reads an answer, which must be right for the weights that it names.
func (c *crowd) check(r *bufio.Reader) error {
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d: %s %w", res.StatusCode, data, err)
	}
	var answer struct {
		Version int64 `json:"weight_version"`
		Choices []struct{ Text string }
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return err
	}
	if want, ok := c.texts[answer.Version]; !ok || answer.Choices[0].Text != want {
		return fmt.Errorf("version %d: got %q, expected %q", answer.Version, answer.Choices[0].Text, want)
	}
	return nil
}

// leave reads the start of a stream and resets the connection.
func (c *crowd) leave(conn *net.TCPConn, r *bufio.Reader) error {
	if _, err := io.WriteString(conn, c.request("HTTP/1.1", true)); err != nil {
		return err
	}
	if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, " 200 ") {
		return fmt.Errorf("%q %w", line, err)
	}
	return conn.SetLinger(0)
}

// pipeline sends three requests before it reads the first answer.
func (c *crowd) pipeline(conn *net.TCPConn, r *bufio.Reader) error {
	if _, err := io.WriteString(conn, strings.Repeat(c.request("HTTP/1.1", false), 3)); err != nil {
		return err
	}
	for range 3 {
		if err := c.check(r); err != nil {
			return err
		}
	}
	return nil
}

// dribble sends its request in small pieces.
func (c *crowd) dribble(conn *net.TCPConn, r *bufio.Reader) error {
	for rest := c.request("HTTP/1.1", false); rest != ""; {
		n := min(7, len(rest))
		if _, err := io.WriteString(conn, rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return c.check(r)
}

// halfClose closes its writing side after the request. The server has answered by then, or
// takes the client for one that has left and answers 499.
func (c *crowd) halfClose(conn *net.TCPConn, r *bufio.Reader) error {
	if _, err := io.WriteString(conn, c.request("HTTP/1.1", false)); err != nil {
		return err
	}
	if err := conn.CloseWrite(); err != nil {
		return err
	}
	if err := c.check(r); err != nil && !strings.Contains(err.Error(), "client_closed_request") {
		return err
	}
	return nil
}

// old sends an HTTP/1.0 request, after whose answer the server closes the connection.
func (c *crowd) old(conn *net.TCPConn, r *bufio.Reader) error {
	if _, err := io.WriteString(conn, c.request("HTTP/1.0", false)); err != nil {
		return err
	}
	if err := c.check(r); err != nil {
		return err
	}
	if _, err := r.ReadByte(); err != io.EOF {
		return fmt.Errorf("after the answer: %w, expected EOF", err)
	}
	return nil
}

// Each answer is right for its weights while clients of five difficult kinds share the server
// and the weights alternate.
func TestDifficultClientsGetRightAnswers(t *testing.T) {
	t.Parallel()
	backend := newFake()
	s := serve(t, backend, fakeText{}, nil)
	c := &crowd{addr: s.Addr(), texts: map[int64]string{}}
	update := func(version int64) {
		_, err := backend.Update(t.Context(), version, strings.NewReader(strings.Repeat("w", int(version))), -1)
		require.NoError(t, err)
	}
	for version := int64(1); version <= 2; version++ {
		update(version)
		_, _, data := call(t, s, http.MethodPost, "/v1/completions",
			`{"prompt":"a","seed":1,"max_tokens":40,"ignore_eos":true}`)
		c.texts[version] = textOf(t, data, false)
	}
	require.NotEqual(t, c.texts[1], c.texts[2])
	clients := pool.New().WithErrors()
	for name, act := range map[string]func(*net.TCPConn, *bufio.Reader) error{
		"leave": c.leave, "pipeline": c.pipeline, "dribble": c.dribble, "half close": c.halfClose, "HTTP/1.0": c.old,
	} {
		for range 8 {
			clients.Go(func() error {
				for range 20 {
					conn, err := net.Dial("tcp", c.addr)
					if err != nil {
						return err
					}
					err = act(conn.(*net.TCPConn), bufio.NewReader(conn))
					_ = conn.Close()
					if err != nil {
						return fmt.Errorf("%s: %w", name, err)
					}
				}
				return nil
			})
		}
	}
	done := make(chan error, 1)
	go func() { done <- clients.Wait() }()
	for version := int64(1); ; version = 3 - version {
		select {
		case err := <-done:
			require.NoError(t, err)
			return
		default:
			update(version)
		}
	}
}
