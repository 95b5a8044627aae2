package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// Faults may quote URLs and headers, even of a trainer that does not hide them.
func TestFleetHidesSecrets(t *testing.T) {
	t.Parallel()
	trainer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"instances":[{"id":"http://a:1","kind":"vllm","state":"FAILED",` +
			`"fault":"publish to http://ann:hunter2@a:1: 401"}]}`))
	}))
	t.Cleanup(trainer.Close)
	for _, list := range [][]string{{"list"}, {"-json", "list"}} {
		code, out, errs := command(t, append([]string{"fleet", "-trainer", trainer.URL}, list...)...)
		require.Zero(t, code, errs)
		require.Contains(t, out, "publish to http://***@a:1: 401")
		require.NotContains(t, out, "hunter2")
	}
}
