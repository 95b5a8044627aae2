package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// address returns a client of a server that runs answer.
func address(t *testing.T, answer http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return New(s.URL+"/", "secret")
}

func TestCall(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		answer string
		want   string
		asked  bool
	}{
		"yes":       {200, `{"boot":"b"}`, "", false},
		"no":        {404, `{"error":{"message":"no such instance"}}`, "fleet: no such instance", false},
		"wrong":     {400, `{"error":{"message":"url is \"x\""}}`, `fleet: url is "x"`, true},
		"elsewhere": {302, "", "status 302, expected a run's control address", false},
		"a page":    {200, "<html>", "expected a response from a run's control address", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			client := address(t, func(w http.ResponseWriter, r *http.Request) {
				calls++
				if r.Header.Get("Authorization") != "Bearer secret" || r.URL.Path != "/instances" {
					w.WriteHeader(http.StatusTeapot)
					return
				}
				w.Header().Set("Location", "/instances")
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.answer)
			})
			var out struct{ Boot string }
			err := client.Call(t.Context(), http.MethodGet, "/instances", nil, &out)
			require.Equal(t, c.asked, errors.Is(err, ErrInvalid))
			require.Equal(t, 1, calls, "the token is sent nowhere else")
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "b", out.Boot)
		})
	}
}

// Drain waits for outstanding requests, but not for an instance that is gone.
func TestDrain(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]string{
		"idle": `{"id":"a","state":"DRAINING"}`, "gone": `{"id":"b","state":"HEALTHY"}`,
		"again": `{"id":"a","state":"HEALTHY","requests":2}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			looks := 0
			client := address(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == http.MethodPost:
					_, _ = io.WriteString(w, `{"id":"a","state":"DRAINING","requests":2}`)
				case looks == 0:
					looks++
					_, _ = io.WriteString(w, `{"instances":[{"id":"a","state":"DRAINING","requests":1}]}`)
				default:
					_, _ = fmt.Fprintf(w, `{"instances":[%s]}`, last)
				}
			})
			left, err := client.Drain(t.Context(), "a")
			require.NoError(t, err)
			require.Equal(t, name != "idle", left)
			require.Equal(t, 1, looks)
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	client := address(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"id":"a","state":"DRAINING","requests":2}`)
		cancel()
	})
	_, err := client.Drain(ctx, "a")
	require.ErrorIs(t, err, context.Canceled)
}
