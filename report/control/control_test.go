package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/report"
)

func get(t *testing.T, url, token string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(b)
}

func TestControlAnswers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m, err := report.OpenMetrics(filepath.Join(dir, report.MetricsFile), 0)
	require.NoError(t, err)
	values := report.Values{"step": 3, "reward/mean": 0.25, "eval/x/mean@1": 0.5}
	require.NoError(t, m.Write(report.Line{Values: values}))
	require.NoError(t, m.Close())
	c, err := New("127.0.0.1:0", "", dir)
	require.NoError(t, err)
	defer c.Close()
	c.Step(values, "")

	status, body := get(t, "http://"+c.Addr()+"/status", "")
	require.Equal(t, 200, status)
	var got report.Values
	require.NoError(t, json.Unmarshal([]byte(body), &got))
	require.Equal(t, values, got)
	_, body = get(t, "http://"+c.Addr()+"/metrics", "")
	require.Contains(t, body, "\neasyrl_reward_mean 0.25\n")
	require.Contains(t, body, "\neasyrl_eval_x_mean_1 0.5\n")
	status, body = get(t, "http://"+c.Addr()+"/", "")
	require.Equal(t, 200, status, body)
	require.Contains(t, body, "<html")
	status, _ = get(t, "http://"+c.Addr()+"/nothing", "")
	require.Equal(t, 404, status)
}

func TestControlNeedsToken(t *testing.T) {
	t.Parallel()
	c, err := New("127.0.0.1:0", "secret", t.TempDir())
	require.NoError(t, err)
	defer c.Close()
	for token, want := range map[string]int{"": 401, "wrong": 401, "secret": 200} {
		status, _ := get(t, "http://"+c.Addr()+"/status", token)
		require.Equal(t, want, status, token)
	}
	_, err = New("0.0.0.0:0", "", t.TempDir())
	require.ErrorContains(t, err, "beyond loopback and needs a token")
	_, err = New("127.0.0.1:-1", "", t.TempDir())
	require.ErrorContains(t, err, "control address")
	var none *Server
	none.Step(nil, "")
	none.Warning(report.Warning{})
	none.Close()
}

// Close returns even if it directly follows New.
func TestControlClosesAfterNew(t *testing.T) {
	t.Parallel()
	for range 300 {
		c, err := New("127.0.0.1:0", "", t.TempDir())
		require.NoError(t, err)
		c.Close()
		// Another test may get the port, or be about to start a process, which then holds a copy of the listener.
		require.Eventually(t, func() bool {
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", c.Addr())
			if err == nil {
				_ = conn.Close()
			}
			return err != nil
		}, time.Minute, time.Millisecond)
	}
}

// A browser connection that sends no request gets status 408, so that the browser
// retries on another connection.
func TestRefuseMalformed(t *testing.T) {
	t.Parallel()
	for want, err := range map[int]error{
		fasthttp.StatusRequestTimeout: fmt.Errorf("error when reading request headers: %w",
			os.ErrDeadlineExceeded),
		fasthttp.StatusBadRequest:            errors.New("no colon"),
		fasthttp.StatusRequestEntityTooLarge: fasthttp.ErrBodyTooLarge,
	} {
		var ctx fasthttp.RequestCtx
		refuseMalformed(&ctx, err)
		require.Equal(t, want, ctx.Response.StatusCode())
	}
}
