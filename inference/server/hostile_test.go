package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference/server/internal/api"
	"github.com/easyrl/easyrl/inference/server/internal/wire"
)

// dial connects to s. The test closes the connection at its end at the latest.
func dial(t *testing.T, s *Server) *net.TCPConn {
	t.Helper()
	c, err := dialTo(t, s)
	require.NoError(t, err)
	return c
}

func dialTo(t *testing.T, s *Server) (*net.TCPConn, error) {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn), nil
}

func held(backend *fakeBackend) {
	backend.hold, backend.started, backend.ended = make(chan struct{}), make(chan struct{}, 64), make(chan error, 64)
}

// A request ends when its client leaves, streamed or not, running or waiting.
func TestClientGone(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"false", "true"} {
		backend := newFake()
		held(backend)
		s := serve(t, backend, fakeText{}, func(c *Config) { c.MaxConcurrent = 1 })
		send := func() *net.TCPConn {
			body := `{"prompt":"a","stream":` + stream + `}`
			c := dial(t, s)
			_, err := fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "+
				"application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			require.NoError(t, err)
			return c
		}
		first := send()
		<-backend.started
		second := send()
		require.Eventually(t, func() bool { return s.completions.waiting.Load() == 1 }, time.Minute, time.Millisecond)
		require.NoError(t, second.Close())
		require.Eventually(t, func() bool { return s.completions.waiting.Load() == 0 }, time.Minute, time.Millisecond)
		require.NoError(t, first.Close())
		require.Error(t, <-backend.ended)
		<-s.idleNow()
		require.Empty(t, s.completions.slots)
	}
}

// idleNow drains s and returns its whenIdle.
func (s *Server) idleNow() <-chan struct{} { s.gate.drain(); return s.gate.whenIdle() }

func TestCloseEndsRequests(t *testing.T) {
	t.Parallel()
	backend := newFake()
	held(backend)
	s := serve(t, backend, fakeText{}, nil)
	answers := make(chan string, 1)
	go func() {
		defer close(answers)
		_, _, data := call(t, s, http.MethodPost, "/v1/completions", `{"prompt":"a"}`)
		answers <- string(data)
	}()
	dial(t, s) // and send nothing
	<-backend.started
	go func() { _ = s.Close() }()
	require.ErrorContains(t, <-backend.ended, "closed")
	require.Contains(t, <-answers, "closed")
}

func TestQueueFull(t *testing.T) {
	t.Parallel()
	backend := newFake()
	held(backend)
	s := serve(t, backend, fakeText{}, func(c *Config) { c.MaxConcurrent, c.MaxQueue = 1, 1 })
	var clients sync.WaitGroup
	statuses := make(chan int, 2)
	send := func() {
		status, _, _ := call(t, s, http.MethodPost, "/v1/completions", `{"prompt":"a"}`)
		statuses <- status
	}
	clients.Go(send)
	<-backend.started
	clients.Go(send)
	require.Eventually(t, func() bool { return s.completions.waiting.Load() == 1 }, time.Minute, time.Millisecond)
	status, header, data := call(t, s, http.MethodPost, "/v1/completions", `{"prompt":"a"}`)
	require.Equal(t, http.StatusTooManyRequests, status, "%s", data)
	require.Equal(t, "1", header.Get("Retry-After"))
	close(backend.hold)
	clients.Wait()
	require.Equal(t, http.StatusOK, <-statuses)
	require.Equal(t, http.StatusOK, <-statuses)
}

// Long texts, which take many times their size, are tokenized one at a time. Other
// requests do not wait for them.
func TestLongTexts(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake(), fakeText{}, nil)
	long := strings.Repeat("a", longText+1)
	paths := map[string]string{"/tokenize": `{"prompt":"` + long + `"}`,
		"/v1/completions":      `{"prompt":["a","` + long + `"]}`,
		"/v1/chat/completions": `{"messages":[{"role":"user","content":"` + long + `"}]}`}
	for _, want := range []struct{ tokens, others int }{{http.StatusTooManyRequests, http.StatusTooManyRequests},
		{http.StatusOK, http.StatusBadRequest}} {
		if want.tokens == http.StatusTooManyRequests {
			s.bodies.long.Lock()
		}
		for path, body := range paths {
			status, _, data := call(t, s, http.MethodPost, path, body)
			if path == "/tokenize" {
				require.Equal(t, want.tokens, status)
			} else {
				require.Equal(t, want.others, status, "%s", data)
			}
		}
		status, _ := post(t, s, "/v1/completions", `{"prompt":"a"}`)
		require.Equal(t, http.StatusOK, status)
		if want.tokens == http.StatusTooManyRequests {
			s.bodies.long.Unlock()
		}
	}
	require.True(t, s.bodies.long.TryLock(), "the lock is free again")
}

// endless is a reader of zeros.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// A body of 100 MB is refused by its length before it arrives.
func TestLargeBody(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake(), fakeText{}, func(c *Config) { c.MaxBody = 1 << 16 })
	c := dial(t, s)
	_, err := io.WriteString(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "+
		"application/json\r\nContent-Length: 104857600\r\n\r\n"+strings.Repeat(" ", 8192))
	require.NoError(t, err)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusRequestEntityTooLarge, res.StatusCode)
	require.True(t, res.Close)

	// A client that sends it anyway gets the answer, and so does one that does not announce the length.
	for _, length := range []int64{100 << 20, -1} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.Addr()+"/v1/completions",
			io.LimitReader(endless{}, 100<<20))
		require.NoError(t, err)
		req.ContentLength = length
		req.Header.Set("Content-Type", "application/json")
		c := dial(t, s)
		go func() { _ = req.Write(c) }() // until the server stops reading
		res, err := http.ReadResponse(bufio.NewReader(c), req)
		require.NoError(t, err)
		require.Equal(t, http.StatusRequestEntityTooLarge, res.StatusCode)
	}
	require.Zero(t, s.bodies.held.Load())
}

// A client that sends its header too slowly is cut off. A server that has not read the first
// byte in time, on a busy machine, closes the connection without an answer; the test then
// gives it twice the time.
func TestSlowHeader(t *testing.T) {
	t.Parallel()
	for timeout := 50 * time.Millisecond; ; timeout *= 2 {
		s := serve(t, newFake(), fakeText{}, func(c *Config) { c.HeaderTimeout = timeout })
		c := dial(t, s)
		_, err := io.WriteString(c, "GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: ")
		require.NoError(t, err)
		answer, err := io.ReadAll(c)
		require.True(t, err == nil || errors.Is(err, syscall.ECONNRESET), "%v", err)
		if len(answer) > 0 || timeout > time.Minute {
			require.Contains(t, string(answer), " 408 ")
			return
		}
	}
}

func TestLargeHeader(t *testing.T) {
	t.Parallel()
	c := dial(t, serve(t, newFake(), fakeText{}, nil))
	go func() {
		_, _ = io.WriteString(c, "GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: "+strings.Repeat("a", 64<<10))
	}() // the server does not read all of it
	requireCutOff(t, c, " 431 ")
}

// requireCutOff requires an answer with a status, after which the server closes the
// connection even if the request is incomplete.
func requireCutOff(t *testing.T, c io.Reader, status string) {
	t.Helper()
	answer, err := io.ReadAll(c)
	require.True(t, err == nil || errors.Is(err, syscall.ECONNRESET), "%v", err)
	require.Contains(t, string(answer), status)
}

func TestMalformed(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake(), fakeText{}, nil)
	deep := strings.Repeat("[", 200000)
	for _, body := range []string{"", "{", "null", "[]", `{"prompt":"a"}x`, `{"prompt":"a"`, `{"prompt":"a",}`,
		"{\"prompt\":\"\xff\"}", `{"prompt":` + deep,
		`{"prompt":` + deep + strings.Repeat("]", 200000) + `}`, `{"messages":` + deep + `}`,
		`{"metadata":` + deep + strings.Repeat("]", 200000) + `}`,
		`{"prompt":` + strings.Repeat(`[[1],`, 2000) + `}`, `{"prompt":[` + strings.Repeat(`[1],`, 2000) + `[1]]}`,
		"\x00", `{"\ud800":1}`} {
		for _, path := range []string{"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"} {
			status, _, data := call(t, s, http.MethodPost, path, body)
			require.Equal(t, http.StatusBadRequest, status, "%s %.60q: %s", path, body, data)
			_, kind, _ := errorOf(t, data)
			require.Equal(t, api.InvalidRequest, kind)
			require.Less(t, len(data), 2000)
		}
	}
	for _, raw := range []string{"\r\n\r\n", "GET\r\n\r\n", "\x16\x03\x01\x02\x00\x01",
		"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
			"-5\r\n\r\n",
		"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: " +
			"chunked\r\n\r\nzz\r\n"} {
		c := dial(t, s)
		_, err := io.WriteString(c, raw)
		require.NoError(t, err)
		require.NoError(t, c.CloseWrite())
		answer, _ := io.ReadAll(c)
		require.NotContains(t, string(answer), " 200 ", "%q", raw)
	}
	status, _, _ := call(t, s, http.MethodGet, "/health", "")
	require.Equal(t, http.StatusOK, status)
}

// One connection serves several requests, even if they arrive before earlier answers are
// sent.
func TestPipeline(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake(), fakeText{}, nil)
	c := dial(t, s)
	body := `{"prompt":"a","max_tokens":3,"seed":1}`
	one := fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "+
		"application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	_, err := io.WriteString(c, one+one+one)
	require.NoError(t, err)
	r := bufio.NewReader(c)
	for range 3 {
		res, err := http.ReadResponse(r, nil)
		require.NoError(t, err)
		data, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, res.StatusCode, "%s", data)
	}
}

// Bodies count as they arrive: announcing a large one takes no room from others, and
// clients that send too much at once get 429.
func TestBodiesFull(t *testing.T) {
	t.Parallel()
	const most, some = 1 << 16, 9000 // more than fasthttp reads with the header
	s := serve(t, newFake(), fakeText{}, func(c *Config) { c.MaxBody = most })
	send := func(bytes int) *net.TCPConn {
		c := dial(t, s)
		_, err := fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "+
			"application/json\r\nContent-Length: %d\r\n\r\n%s", most, strings.Repeat(" ", bytes))
		require.NoError(t, err)
		return c
	}
	held := func(n int64) {
		require.Eventually(t, func() bool { return s.bodies.held.Load() == n }, time.Minute, time.Millisecond, "%d", n)
	}
	for range 2 * bodiesHeld {
		send(some)
	}
	held(2 * bodiesHeld * some)
	large := `{"prompt":"` + strings.Repeat("a", 4000) + `","user":"` + strings.Repeat("a", most-5000) + `"}`
	status, got := post(t, s, "/v1/completions", large)
	require.Equal(t, http.StatusOK, status, "%v", got)
	const full = (bodiesHeld*most - 2*bodiesHeld*some) / (most - 1)
	var last *net.TCPConn
	for range full {
		last = send(most - 1)
	}
	held(2*bodiesHeld*some + full*(most-1))
	status, header, data := call(t, s, http.MethodPost, "/v1/completions", large)
	require.Equal(t, http.StatusTooManyRequests, status, "%s", data)
	require.Equal(t, "1", header.Get("Retry-After"))
	require.NoError(t, last.Close())
	held(2*bodiesHeld*some + (full-1)*(most-1))
	status, got = post(t, s, "/v1/completions", large)
	require.Equal(t, http.StatusOK, status, "%v", got)
}

// A watch notices a client that leaves and loses no byte of one that stays.
func TestWatch(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := wire.NewListener(inner)
	client, err := net.Dial("tcp", inner.Addr().String())
	require.NoError(t, err)
	accepted, err := l.Accept()
	require.NoError(t, err)
	c := accepted.(*wire.Conn)
	_, stop := c.Watch(t.Context())
	_, err = io.WriteString(client, "hello")
	require.NoError(t, err)
	stop()
	got := make([]byte, 5)
	_, err = io.ReadFull(c, got)
	require.NoError(t, err)
	require.Equal(t, "hello", string(got))
	ctx, stop := c.Watch(t.Context())
	require.NoError(t, client.Close())
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), wire.ErrGone)
	stop()
	require.NoError(t, c.Close())
	require.NoError(t, l.Close())
	l.CloseConns()
}

// Close does not wait for a body that never arrives.
func TestCloseEndsBodies(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake(), fakeText{}, nil)
	c := dial(t, s)
	_, err := io.WriteString(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "+
		"application/json\r\nContent-Length: 20000\r\n\r\n"+strings.Repeat(" ", 9000))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.bodies.held.Load() == 9000 }, time.Minute, time.Millisecond)
	require.NoError(t, s.Close())
	requireCutOff(t, c, " 503 ")
}
