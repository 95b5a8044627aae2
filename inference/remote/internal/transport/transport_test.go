package transport

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A server cannot send the token to another one.
func TestRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	calls := make(chan string, 10)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { calls <- r.Header.Get("Authorization") }))
	defer other.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+r.URL.Path, status)
		}))
		c := New(Config{URL: server.URL, Token: "secret", Connect: time.Minute, Stall: time.Minute})
		for _, err := range []error{c.Get(t.Context(), "/health", nil), c.Post(t.Context(), "/v1/completions", map[string]int{}, nil)} {
			var refused *StatusError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, status, refused.Status)
		}
		c.Close(nil)
		server.Close()
	}
	require.Empty(t, calls)
}
