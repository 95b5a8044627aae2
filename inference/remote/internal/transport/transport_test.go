package transport

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A server cannot send the token to another one.
func TestRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	calls := make(chan string, 10)
	other := httptest.NewServer(
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { calls <- r.Header.Get("Authorization") }))
	defer other.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+r.URL.Path, status)
		}))
		c := New(Config{URL: server.URL, Token: "secret", Connect: time.Minute, Stall: time.Minute})
		for _, err := range []error{c.Get(t.Context(), "/health", nil),
			c.Post(t.Context(), "/v1/completions", map[string]int{}, nil)} {
			var refused *StatusError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, status, refused.Status)
		}
		c.Close(nil)
		server.Close()
	}
	require.Empty(t, calls)
}

// A call on a connection that the server closes at that moment is repeated on another.
func TestServerClosesIdleConnection(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var bodies []string
	var serving sync.WaitGroup
	serving.Go(func() {
		for connection := 0; ; connection++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			in := bufio.NewReader(c)
			for call := 0; connection > 0 || call == 0; call++ { // the first connection closes upon its second call
				req, err := http.ReadRequest(in)
				if err != nil {
					break
				}
				body, _ := io.ReadAll(req.Body)
				bodies = append(bodies, string(body))
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
			}
			if connection == 0 {
				_, _ = http.ReadRequest(in)
			}
			_ = c.Close()
		}
	})
	client := New(Config{URL: "http://" + l.Addr().String(), Connect: time.Minute, Stall: time.Minute})
	for range 3 {
		require.NoError(t, client.Post(t.Context(), "/", map[string]int{"a": 1}, nil))
	}
	client.Close(errors.New("the end"))
	require.NoError(t, l.Close())
	serving.Wait()
	require.Equal(t, []string{`{"a":1}`, `{"a":1}`, `{"a":1}`}, bodies)
}
