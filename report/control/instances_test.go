package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report"
)

// ask sends a request, by default with a body of JSON, and returns the response.
func ask(t *testing.T, method, url, body string, header ...string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(b)
}

// askHost sends a GET to url with a given Host header.
func askHost(t *testing.T, host, url, authorization string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	req.Host = host
	req.Header.Set("Authorization", authorization)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(b)
}

// book implements Instances in memory.
type book struct {
	mu      sync.Mutex
	all     []Instance
	gone    string        // ID that Evicted reports
	out     string        // ID that Removed reports
	entered chan struct{} // if set, Add closes it and blocks until its context ends
}

func (b *book) List() []Instance {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]Instance(nil), b.all...)
}

func (b *book) Add(ctx context.Context, url, kind string) (Instance, error) {
	if b.entered != nil {
		close(b.entered)
		<-ctx.Done()
		return Instance{}, ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case kind == "odd":
		return Instance{}, fmt.Errorf("kind %q %w", kind, ErrInvalid)
	case strings.HasSuffix(url, ":1"):
		return Instance{}, errors.New("connection refused\nby the peer")
	}
	m := Instance{ID: url, URL: url, Kind: kind, State: "HEALTHY", Version: 7}
	b.all = append(b.all, m)
	return m, nil
}

func (b *book) Drain(id string) (Instance, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.all {
		if b.all[i].ID == id {
			b.all[i].State = "DRAINING"
			return b.all[i], nil
		}
	}
	return Instance{}, fmt.Errorf("instance %s: %w", id, ErrNotFound)
}

func (b *book) Evicted(id string) bool { return id == b.gone }

func (b *book) Removed(id string) bool { return id == b.out }

func (b *book) Remove(_ context.Context, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.all {
		if b.all[i].ID == id {
			b.all = append(b.all[:i], b.all[i+1:]...)
			return nil
		}
	}
	return fmt.Errorf("instance %s: %w", id, ErrNotFound)
}

// newControl returns a Server for instances and the URL of its root.
func newControl(t *testing.T, instances Instances) (*Server, string) {
	t.Helper()
	c, err := New("127.0.0.1:0", "", t.TempDir())
	require.NoError(t, err)
	t.Cleanup(c.Close)
	if instances != nil {
		c.Serve(instances, []string{"HEALTHY", "UPDATING", "DRAINED"}, "easyrl", "vllm", "sglang")
	}
	return c, "http://" + c.Addr()
}

func TestInstances(t *testing.T) {
	t.Parallel()
	c, root := newControl(t, &book{gone: "http://b", out: "http://c"})
	other, _ := newControl(t, &book{})
	require.Regexp(t, `^[0-9a-f]{32}$`, c.boot)
	require.NotEqual(t, other.boot, c.boot)
	none := fmt.Sprintf(`{"boot":%q,"instances":[]}`+"\n", c.boot)
	status, body := ask(t, "GET", root+"/instances", "")
	require.Equal(t, 200, status)
	require.Equal(t, none, body)

	const server = "http://a:8000/x" // the ID needs escaping in a path
	status, body = ask(t, "POST", root+"/instances", `{"url":"`+server+`","kind":"vllm"}`)
	require.Equal(t, 201, status, body)
	var m struct {
		Instance
		Boot string
	}
	require.NoError(t, json.Unmarshal([]byte(body), &m))
	require.Equal(t, Instance{ID: server, URL: server, Kind: "vllm", State: "HEALTHY", Version: 7}, m.Instance)
	require.Equal(t, c.boot, m.Boot)
	_, body = ask(t, "GET", root+"/instances?id="+url.QueryEscape(server), "")
	require.Contains(t, body, `"id":"`+server+`"`)
	_, body = ask(t, "GET", root+"/instances?id=http://a", "")
	require.Equal(t, none, body)
	_, body = ask(t, "GET", root+"/instances?id=http://b", "")
	require.Equal(t, fmt.Sprintf(`{"boot":%q,"given_up":true,"instances":[]}`+"\n", c.boot), body)
	status, body = ask(t, "GET", root+"/instances?id="+url.QueryEscape("http://c"), "")
	require.Equal(t, 200, status)
	require.Equal(t, fmt.Sprintf(`{"boot":%q,"instances":[],"taken_out":true}`+"\n", c.boot), body)

	of := root + "/instances/" + url.PathEscape(server)
	status, body = ask(t, "POST", of+"/drain", "")
	require.Equal(t, 200, status, body)
	require.Contains(t, body, `"state":"DRAINING"`)
	_, body = ask(t, "GET", root+"/instances", "")
	require.Contains(t, body, `"state":"DRAINING"`)
	status, body = ask(t, "DELETE", of, "")
	require.Equal(t, 200, status, body)
	_, body = ask(t, "GET", root+"/instances", "")
	require.Equal(t, none, body)
}

func TestInstancesRefuse(t *testing.T) {
	t.Parallel()
	_, root := newControl(t, &book{})
	for _, c := range []struct {
		method, path, body string
		status             int
		message            string
	}{
		{"POST", "/instances", `{`, 400, "body: unexpected EOF, expected {"},
		{"POST", "/instances", `{"url":1}`, 400, "body: json: cannot unmarshal number"},
		{"POST", "/instances", `{"url":"http://a:2"} {}`, 400, "more than one value"},
		{"POST", "/instances", `{"uri":"http://a:2"}`, 400, "unknown field"},
		{"POST", "/instances", `{"url":"a:2"}`, 400,
			`url is \"a:2\", expected {\"url\": \"http://HOST:PORT\", \"kind\": \"easyrl\", \"vllm\" or \"sglang\"}`},
		{"POST", "/instances", `{"url":"file:///etc/passwd"}`, 400, "url is"},
		{"POST", "/instances", `{"url":"http://a:2","kind":"odd"}`, 400, `kind \"odd\" cannot be added`},
		{"POST", "/instances", `{"url":"http://a:1"}`, 502, "connection refused; by the peer"},
		{"PUT", "/instances", ``, 405, "expected GET or POST"},
		{"DELETE", "/instances/b", ``, 404, "instance b: no such instance"},
		{"POST", "/instances/b/drain", ``, 404, "instance b: no such instance"},
		{"POST", "/instances//drain", ``, 400, "expected /instances/ID"},
		{"GET", "/instances/b", ``, 405, "expected DELETE"},
		{"POST", "/instances/b/kill", ``, 404, "expected /instances/ID or"},
		{"POST", "/events", ``, 405, "expected GET"},
		{"POST", "/", ``, 405, "expected GET"},
	} {
		status, body := ask(t, c.method, root+c.path, c.body)
		require.Equal(t, c.status, status, "%s %s %s: %s", c.method, c.path, c.body, body)
		require.Contains(t, body, c.message, c.path)
		require.Equal(t, 1, strings.Count(body, "\n"), body)
		var e struct{ Error struct{ Message string } }
		require.NoError(t, json.Unmarshal([]byte(body), &e))
		require.NotEmpty(t, e.Error.Message)
	}
	for _, origin := range []string{"http://elsewhere", "null"} {
		for _, call := range []string{"POST /instances", "POST /instances/b/drain", "DELETE /instances/b",
			"GET /instances", "GET /status", "GET /events", "GET /page/answers"} {
			method, path, _ := strings.Cut(call, " ")
			status, body := ask(t, method, root+path, "", "Origin", origin)
			require.Equal(t, 403, status, "%s: %s", call, body)
		}
	}
	status, body := ask(t, "POST", root+"/instances", `{"url":"http://a:2"}`, "Content-Type", "text/plain")
	require.Equal(t, 415, status, body)
	status, body = ask(t, "POST", root+"/instances", `{"url":"http://a:2"}`, "Origin", root)
	require.Equal(t, 201, status, body)

	for host, want := range map[string]int{"127.0.0.1:80": 200, "[::1]": 200, "localhost:7000": 200, "LOCALHOST": 200,
		"rebound.example": 403, "127.0.0.1.rebound.example:7000": 403, "localhost.rebound.example": 403} {
		status, body := askHost(t, host, root+"/instances", "")
		require.Equal(t, want, status, "%s: %s", host, body)
	}

	_, none := newControl(t, nil)
	status, body = ask(t, "GET", none+"/instances", "")
	require.Equal(t, 503, status, body)
	var absent *Server
	absent.Serve(nil, nil)
	absent.Instance(InstanceEvent{})
}

func TestInstancesNeedToken(t *testing.T) {
	t.Parallel()
	c, err := New("127.0.0.1:0", "secret", t.TempDir())
	require.NoError(t, err)
	defer c.Close()
	c.Serve(&book{}, nil)
	for _, path := range []string{"/instances", "/events"} {
		status, body := ask(t, "GET", "http://"+c.Addr()+path, "")
		require.Equal(t, 401, status, body)
	}
	status, body := ask(t, "DELETE", "http://"+c.Addr()+"/instances/a", "", "Authorization", "Bearer wrong")
	require.Equal(t, 401, status, body)
	status, _ = ask(t, "GET", "http://"+c.Addr()+"/instances", "", "Authorization", "Bearer secret")
	require.Equal(t, 200, status)
	status, _ = askHost(t, "trainer.example", "http://"+c.Addr()+"/instances", "Bearer secret")
	require.Equal(t, 200, status, "with the token, any host name is accepted")
}

// A body that is too large is refused before it is read.
func TestControlRefusesLargeBodies(t *testing.T) {
	t.Parallel()
	c, _ := newControl(t, &book{})
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", c.Addr())
	require.NoError(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST /instances HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", controlBody+1)
	require.NoError(t, err)
	text, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Contains(t, string(text), "HTTP/1.1 413 ")
	require.Contains(t, string(text), `{"error":{"message":"body is too large, expected at most 65536 bytes"}}`)
}

// A slow Add does not delay Close.
func TestCloseEndsAnAdd(t *testing.T) {
	t.Parallel()
	b := &book{entered: make(chan struct{})}
	c, root := newControl(t, b)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		<-b.entered
		c.Close()
	}()
	_, body := ask(t, "POST", root+"/instances", `{"url":"http://a:2"}`)
	require.Contains(t, body, "context canceled")
	<-closed
}

// The address counts the instances in each state.
func TestStates(t *testing.T) {
	t.Parallel()
	c, err := New("127.0.0.1:0", "", t.TempDir())
	require.NoError(t, err)
	defer c.Close()
	c.Step(report.Values{"step": 3}, "")
	c.Serve(&book{all: []Instance{{ID: "a", State: "UPDATING"}, {ID: "b", State: "HEALTHY"},
		{ID: "c", State: "UPDATING"}}},
		[]string{"HEALTHY", "UPDATING", "DRAINED"})
	_, body := get(t, "http://"+c.Addr()+"/status", "")
	require.JSONEq(t, `{"step":3,"fleet/healthy":1,"fleet/updating":2,"fleet/drained":0}`, body)
	_, body = get(t, "http://"+c.Addr()+"/metrics", "")
	require.Contains(t, body, "# HELP easyrl_fleet_updating fleet/updating now.\n# TYPE easyrl_fleet_updating "+
		"gauge\neasyrl_fleet_updating 2\n")
	require.Contains(t, body, "easyrl_fleet_drained 0\n")
}
