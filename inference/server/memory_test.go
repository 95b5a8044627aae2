package server

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference/server/internal/api"

	"github.com/easyrl/easyrl/inference/engine"
)

// The maximum number of responses takes memory in proportion to the answer, streamed or
// not. All allocations count, so the memory held at once is less.
func TestMemoryOfMostResponses(t *testing.T) { //nolint:paralleltest // counts the process's allocations
	s := serve(t, openEngine(t, engine.Config{MaxRunning: 64}), fakeText{}, nil)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func(n int, stream bool) (size int64) {
		body := fmt.Sprintf(
			`{"prompt":"a","n":%d,"max_tokens":4,"ignore_eos":true,"logprobs":0,"return_token_ids":true,"stream":%t}`,
			n, stream)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.Addr()+"/v1/completions",
			strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		res, err := client.Do(req)
		require.NoError(t, err)
		defer res.Body.Close() //nolint:errcheck // read to its end
		require.Equal(t, http.StatusOK, res.StatusCode)
		size, err = io.Copy(io.Discard, res.Body)
		require.NoError(t, err)
		return size
	}
	for _, stream := range []bool{false, true} {
		ask(64, stream) // one-time allocations
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		size := ask(api.MaxResponses, stream)
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, 24*uint64(size))
	}
}
