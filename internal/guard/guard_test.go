package guard

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttputil"
)

type silent struct{}

func (silent) Printf(string, ...any) {}

// status sends a raw request to a server with a guard and returns the answer's status and
// body.
func status(t *testing.T, g *Guard, public bool, request string) (code int, body string) {
	t.Helper()
	l := fasthttputil.NewInmemoryListener()
	s := &fasthttp.Server{StreamRequestBody: true, DisablePreParseMultipartForm: true, Logger: silent{},
		Handler: func(ctx *fasthttp.RequestCtx) {
			if no := g.Check(ctx, public); no != nil {
				ctx.Error(no.Message, no.Status)
			}
			ctx.SetConnectionClose()
		}}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	c, err := l.Dial()
	require.NoError(t, err)
	_, err = io.WriteString(c, request)
	require.NoError(t, err)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, l.Close())
	require.NoError(t, <-served)
	return res.StatusCode, string(text)
}

func TestHost(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST:80": 200, "127.0.0.1:8000": 200, "10.0.0.7": 200, "[::1]:8000": 200, "[::1]": 200,
		"[fe80::1%25eth0]:80": 200,
		"node7.cluster:8000":  200, "Node7.Cluster": 200,
		"evil.example": 403, "evil.example:8000": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403,
		"localhost.":  403,
		"x.localhost": 403, "localhost:80@evil.example": 403, "127.1": 403, "0x7f000001": 403,
		"vllm.default.svc.cluster.local:8000": 403,
	} {
		g := New("node7.cluster:8000", "")
		got, body := status(t, g, false, "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
		require.Equal(t, want, got, "%q: %s", host, body)
		got, body = status(t, New("0.0.0.0:8000", "secret"), false,
			"GET / HTTP/1.1\r\nHost: "+host+"\r\nAuthorization: bearer secret\r\n\r\n")
		require.Equal(t, 200, got, "%q with the token: %s", host, body)
	}
}

func TestPage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		host, fields string
		want         int
	}{
		{"127.0.0.1:8000", "", 200}, // curl
		{"127.0.0.1:8000", "Origin: http://127.0.0.1:8000", 200},
		{"localhost:9000", "origin: http://localhost:9000", 200}, // an SSH tunnel's port
		{"localhost", "Origin: https://localhost", 200},          // TLS in front
		{"[::1]:8000", "Origin: http://[::1]:8000", 200},
		{"LocalHost:8000", "Origin: http://localhost:8000", 200},
		{"localhost:8000", "Origin: http://evil.example", 403},
		{"localhost:8000", "Origin: null", 403},
		{"localhost:8000", "Origin:", 403},
		{"localhost:8000", "Origin: http://localhost:8001", 403},
		{"localhost:8000", "Origin: http://localhost", 403},
		{"localhost:8000", "Origin: http://127.0.0.1:8000", 403},
		{"localhost:8000", "Origin: http://localhost.:8000", 403},
		{"localhost:8000", "Origin: http://localhost:8000@evil.example", 403},
		{"localhost:8000", "Origin: http://evil.example@localhost:8000", 403},
		{"localhost:8000", "Origin: http://localhost:8000/", 403},
		{"localhost:8000", "Origin: http://localhost:8000 http://evil.example", 403},
		{"localhost:8000", "Origin: chrome-extension://localhost:8000", 403},
		{"localhost:8000", "Origin: localhost:8000", 403},
		{"localhost:8000", "Origin: http://localhost:8000\r\nOrigin: http://evil.example", 403},
		{"localhost:8000", "Origin: http://evil.example\r\nOrigin: http://localhost:8000", 403},
		{"localhost", "Sec-Fetch-Site: none", 200},
		{"localhost", "Sec-Fetch-Site: same-origin", 200},
		{"localhost", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document", 200},
		{"localhost", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe", 403},
		{"localhost", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: image", 403},
		{"localhost", "Sec-Fetch-Site: same-site", 403}, // another port
		{"localhost", "Sec-Fetch-Site: same-origin\r\nOrigin: http://evil.example", 403},
	} {
		fields := c.fields
		if fields != "" {
			fields += "\r\n"
		}
		for _, g := range []*Guard{New("127.0.0.1:8000", ""), New("127.0.0.1:8000", "secret")} {
			got, body := status(t, g, true, "GET / HTTP/1.1\r\nHost: "+c.host+"\r\n"+fields+"\r\n")
			require.Equal(t, c.want, got, "%s %q: %s", c.host, c.fields, body)
		}
	}
	got, _ := status(t, New(":1", ""), false, "POST / HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: "+
		"cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n\r\n")
	require.Equal(t, 403, got, "a form")
}

// A request's target may be a URL, and a header may come twice.
func TestOddRequests(t *testing.T) {
	t.Parallel()
	for request, want := range map[string]int{
		"GET / HTTP/1.0\r\n\r\n": 200,
		"GET http://localhost:8000/ HTTP/1.1\r\nHost: localhost:8000\r\n\r\n":                                      200,
		"GET http://evil.example/ HTTP/1.1\r\nHost: localhost:8000\r\n\r\n":                                        403,
		"GET http://localhost:8000/ HTTP/1.1\r\nHost: evil.example\r\n\r\n":                                        403,
		"GET http://localhost@evil.example/ HTTP/1.1\r\nHost: localhost:8000\r\n\r\n":                              403,
		"GET //evil.example/ HTTP/1.0\r\n\r\n":                                                                     403,
		"GET / HTTP/1.0\r\nOrigin: http://\r\n\r\n":                                                                403,
		"GET / HTTP/1.1\r\n\r\n":                                                                                   400,
		"GET http://localhost:8000/ HTTP/1.1\r\nHost: localhost:8001\r\nOrigin: http://localhost:8000\r\n\r\n":     403,
		"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n":                                          400,
		"GET / HTTP/1.1\r\nHost: evil.example\r\nHost: localhost\r\n\r\n":                                          400,
		"GET / HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: localhost\r\nForwarded: host=localhost\r\n\r\n": 403,
		"OPTIONS /v1/drain HTTP/1.1\r\nHost: localhost\r\nOrigin: " +
			"null\r\nAccess-Control-Request-Method: PUT\r\n\r\n": 403,
	} {
		got, body := status(t, New("127.0.0.1:8000", ""), false, request)
		require.Equal(t, want, got, "%q: %s", request, body)
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	g := New("0.0.0.0:8000", "secret")
	for given, want := range map[string]int{"": 401, "Bearer": 401, "Bearer ": 401, "secret": 401, "Basic secret": 401,
		"Bearer secret ": 200,
		"Bearer  secret": 401, "Bearer secrets": 401, "Bearer secret": 200, "bearer secret": 200} {
		got, body := status(t, g, false, "GET / HTTP/1.1\r\nHost: evil.example\r\nAuthorization: "+given+"\r\n\r\n")
		require.Equal(t, want, got, "%q: %s", given, body)
		require.NotContains(t, body, "secret")
	}
	got, _ := status(t, g, true, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
	require.Equal(t, 200, got, "public")
}

func TestType(t *testing.T) {
	t.Parallel()
	g := New("127.0.0.1:8000", "")
	for given, want := range map[string]int{
		"application/json": 200, "Application/JSON; charset=utf-8": 200, "application/vnd.api+json": 200,
		"": 415, "text/plain": 415, "application/x-www-form-urlencoded": 415,
		"multipart/form-data; boundary=application/json": 415,
		"text/plain; application/json":                   415, "text/plain+json": 415, "application/jsonp": 415,
		"application/json, text/plain": 415,
	} {
		for _, body := range []string{"Content-Length: 2\r\n\r\n{}",
			"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"} {
			got, text := status(t, g, false, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: "+given+"\r\n"+body)
			require.Equal(t, want, got, "%q: %s", given, text)
			if want != 200 {
				require.Contains(t, text, `expected application/json (curl: -H "Content-Type: application/json")`)
			}
		}
		for _, none := range []string{"Content-Length: 0\r\n", ""} {
			got, text := status(t, g, false,
				fmt.Sprintf("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\n%s\r\n", given, none))
			require.Equal(t, 200, got, "%q without a body: %s", given, text)
		}
	}
	got, _ := status(t, g, false,
		"PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\nContent-Length: 2\r\n\r\nab")
	require.Equal(t, 200, got)
	_, text := status(t, g, false, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Type: "+
		strings.Repeat("a", 500)+"\r\n\r\n{}")
	require.Less(t, len(text), 300)
}
