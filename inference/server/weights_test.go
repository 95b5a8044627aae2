package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"
)

func xxh64(data []byte) string { return fmt.Sprintf("%016x", xxhash.Sum64(data)) }

// bytesOf returns n bytes without a pattern.
func bytesOf(n int) []byte {
	var out []byte
	for sum := sha256.Sum256(nil); len(out) < n; sum = sha256.Sum256(sum[:]) {
		out = append(out, sum[:]...)
	}
	return out[:n]
}

// put sends weights with Content-Length or in chunks, with the checksum as header, query
// or trailer.
func put(t *testing.T, s *Server, version int, data []byte, chunked bool, where, checksum string) (int, []byte) {
	t.Helper()
	var body io.Reader = bytes.NewReader(data)
	if chunked {
		body = struct{ io.Reader }{body}
	}
	url := fmt.Sprintf("http://%s/v1/weights?version=%d", s.Addr(), version)
	if where == "query" {
		url += "&X-Checksum=" + checksum
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, body)
	require.NoError(t, err)
	switch where {
	case "header":
		req.Header.Set("X-Checksum", checksum)
	case "trailer":
		req.Trailer = http.Header{"X-Checksum": {checksum}}
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(req)
	require.NoError(t, err)
	defer res.Body.Close() //nolint:errcheck // already read
	answer, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, answer
}

// Weights are replaced whole and verified or not at all, however they arrive, and whether
// the backend reads to the end of the stream or of the file.
func TestUpdate(t *testing.T) {
	t.Parallel()
	backend := newFake()
	s := serve(t, backend, fakeText{}, nil)
	version := 3
	for _, size := range []int{1, 2, 4096, 3<<20 + 5} {
		data := bytesOf(size)
		for _, chunked := range []bool{false, true} {
			for _, where := range []string{"none", "header", "query", "trailer"} {
				if where == "trailer" && !chunked {
					continue
				}
				wrong := append([]byte(nil), data...)
				wrong[size/2] ^= 1
				if where != "none" {
					status, answer := put(t, s, version+1, wrong, chunked, where, xxh64(data))
					require.Equal(t, http.StatusBadRequest, status, "%d %v %s: %s", size, chunked, where, answer)
					require.Contains(t, string(answer), "checksum_mismatch")
					held, _ := backend.Held()
					require.EqualValues(t, version, held)
				}
				version++
				status, answer := put(t, s, version, data, chunked, where, xxh64(data))
				require.Equal(t, http.StatusOK, status, "%d %v %s: %s", size, chunked, where, answer)
				require.JSONEq(t, fmt.Sprintf(`{"version":%d,"checksum":"%016x"}`, version, size), string(answer))
				require.Equal(t, data, backend.file)
			}
		}
	}
	var held struct {
		Version, Cores int
		Checksum, Boot string
	}
	_, _, answer := call(t, s, http.MethodGet, "/v1/weights", "")
	require.NoError(t, json.Unmarshal(answer, &held))
	require.Equal(t, version, held.Version)
	require.Len(t, held.Boot, 32)
	require.Equal(t, 3, held.Cores)
	status, got := post(t, s, "/v1/completions", fmt.Sprintf(`{"prompt":"a","weight_version":%d}`, version))
	require.Equal(t, http.StatusOK, status)
	require.EqualValues(t, version, got["weight_version"])
}

func TestUpdateFile(t *testing.T) {
	t.Parallel()
	backend := newFake()
	s := serve(t, backend, fakeText{}, nil)
	path := filepath.Join(t.TempDir(), "model.safetensors")
	require.NoError(t, os.WriteFile(path, bytesOf(1000), 0o600))
	status, _, answer := call(t, s, http.MethodPut, "/v1/weights?version=7&path="+path, "")
	require.Equal(t, http.StatusOK, status, "%s", answer)
	require.Equal(t, bytesOf(1000), backend.file)
	for query, want := range map[string]string{
		"version=8&path=model.safetensors": "absolute",
		"version=8&path=" + path + "x":     "path is not a file with weights",
		"path=" + path:                     "version", "version=0": "version", "version=8": "no body",
	} {
		status, _, answer := call(t, s, http.MethodPut, "/v1/weights?"+query, "")
		require.Equal(t, http.StatusBadRequest, status, "%s: %s", query, answer)
		require.Contains(t, string(answer), want)
	}
	held, _ := backend.Held()
	require.EqualValues(t, 7, held)
}

// A body that ends early changes nothing.
func TestUpdateCutOff(t *testing.T) {
	t.Parallel()
	backend := newFake()
	s := serve(t, backend, fakeText{}, nil)
	for _, head := range []string{
		"PUT /v1/weights?version=9 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n" +
			strings.Repeat("a", 50000),
		"PUT /v1/weights?version=9 HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: " +
			"chunked\r\n\r\n5\r\nabcde\r\n5\r\nab",
		"PUT /v1/weights?version=9 HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n",
		"PUT /v1/weights?version=9 HTTP/1.1\r\nHost: localhost\r\n" +
			"Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n",
	} {
		c := dial(t, s)
		_, err := io.WriteString(c, head)
		require.NoError(t, err)
		require.NoError(t, c.CloseWrite())
		answer, err := io.ReadAll(c)
		require.NoError(t, err)
		require.Contains(t, string(answer), " 400 ", "%s", answer)
		held, _ := backend.Held()
		require.EqualValues(t, 3, held)
	}
}

func TestDrain(t *testing.T) {
	t.Parallel()
	backend := newFake()
	backend.hold, backend.started, backend.ended = make(chan struct{}), make(chan struct{}), make(chan error, 1)
	s := serve(t, backend, fakeText{}, nil)
	answers := make(chan int, 1)
	go func() {
		status, _, _ := call(t, s, http.MethodPost, "/v1/completions", `{"prompt":"a"}`)
		answers <- status
	}()
	<-backend.started
	status, _, answer := call(t, s, http.MethodPost, "/v1/drain", "")
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"running":1}`, string(answer))
	status, header, _ := call(t, s, http.MethodPost, "/v1/completions", `{"prompt":"a"}`)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.NotEmpty(t, header.Get("Retry-After"))
	status, _, _ = call(t, s, http.MethodGet, "/health", "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	drained := make(chan error, 1)
	go func() { drained <- s.Drain(t.Context()) }()
	require.Empty(t, drained)
	close(backend.hold)
	require.NoError(t, <-drained)
	require.Equal(t, http.StatusOK, <-answers)
}

// An answer that is ready when the server has drained is still sent in full.
func TestDrainSendsAnswers(t *testing.T) {
	t.Parallel()
	backend := newFake()
	backend.hold, backend.started = make(chan struct{}), make(chan struct{})
	s := serve(t, backend, fakeText{}, nil)
	c := dial(t, s)
	body := fmt.Sprintf(`{"prompt":%q,"echo":true,"n":4000,"max_tokens":1}`, strings.Repeat("a", 4000))
	_, err := fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "+
		"application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	require.NoError(t, err)
	<-backend.started
	drained := make(chan error, 1)
	go func() { drained <- errors.Join(s.Drain(t.Context()), s.Close()) }()
	close(backend.hold)
	require.Eventually(t, func() bool { return s.Running() == 0 }, time.Minute, time.Millisecond)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorContains(t, s.Drain(ended), "drain: answers are still being sent: context canceled")
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	data, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Greater(t, len(data), 8<<20, "more than socket buffers hold")
	require.NoError(t, <-drained)
}

// A server accepts the weights of one trainer at a time.
func TestOneTrainerAtATime(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake(), fakeText{}, nil)
	take := func(id string) int {
		status, _, _ := call(t, s, http.MethodPost, "/v1/trainer", fmt.Sprintf(`{"id":%q,"name":"run %s"}`, id, id))
		return status
	}
	update := func(query string) (int, string) {
		status, _, data := call(t, s, http.MethodPut, "/v1/weights?version=4"+query, "weights")
		return status, string(data)
	}
	require.Equal(t, http.StatusBadRequest, take(""))
	require.Equal(t, http.StatusBadRequest, take(strings.Repeat("x", 5000)))
	try := func(id string) int {
		status, _, _ := call(t, s, http.MethodPost, "/v1/trainer", fmt.Sprintf(`{"id":%q,"try":true}`, id))
		return status
	}
	require.Equal(t, http.StatusOK, try("b"), "which takes nothing")
	require.Equal(t, http.StatusOK, take("a"))
	require.Equal(t, http.StatusOK, try("a"))
	require.Equal(t, http.StatusConflict, try("b"))
	require.Equal(t, http.StatusConflict, take("b"))
	for _, query := range []string{"", "&trainer=b"} {
		status, data := update(query)
		require.Equal(t, http.StatusConflict, status)
		require.Contains(t, data, `"code":"other_trainer"`)
		require.Regexp(t, `instance is held by trainer \\"run a\\", last heard from \d+s ago`, data)
	}
	status, data := update("&trainer=a")
	require.Equal(t, http.StatusOK, status, data)
	_, _, held := call(t, s, http.MethodGet, "/v1/weights", "")
	require.Contains(t, string(held), `"trainer":"run a"`)
	for _, id := range []string{"b", "a"} { // a trainer without the lease releases nothing
		require.Equal(t, http.StatusConflict, take("c"))
		status, _, _ := call(t, s, http.MethodDelete, "/v1/trainer?id="+id, "")
		require.Equal(t, http.StatusOK, status)
	}
	status, data = update("")
	require.Equal(t, http.StatusOK, status, data)
	require.Equal(t, http.StatusOK, take("b"))
}

// An update waits for the previous one, whose client may have left, and is refused if
// another trainer has taken the lease in between.
func TestUpdateWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	for _, other := range []bool{false, true} {
		backend := newFake()
		s := serve(t, backend, fakeText{}, nil)
		trainer := func(method, query, body string) {
			status, _, data := call(t, s, method, "/v1/trainer"+query, body)
			require.Equal(t, http.StatusOK, status, "%s", data)
		}
		trainer(http.MethodPost, "", `{"id":"a"}`)
		first := dial(t, s)
		_, err := io.WriteString(first,
			"PUT /v1/weights?version=4&trainer=a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"+
				strings.Repeat("a", 50000))
		require.NoError(t, err)
		connected := func(n int) {
			require.Eventually(t, func() bool {
				return len(s.weights.updating) == 1 && int(s.http.GetCurrentConcurrency()) == n
			}, time.Minute, time.Millisecond)
		}
		connected(1)
		answers := make(chan string, 1)
		go func() {
			_, _, data := call(t, s, http.MethodPut, "/v1/weights?version=5&trainer=a", "weights")
			answers <- string(data)
		}()
		connected(2)
		if other {
			trainer(http.MethodDelete, "?id=a", "")
			trainer(http.MethodPost, "", `{"id":"b"}`)
		}
		require.NoError(t, first.Close())
		held, want := int64(5), `"version":5`
		if other {
			held, want = 3, `"code":"other_trainer"`
		}
		require.Contains(t, <-answers, want)
		version, _ := backend.Held()
		require.Equal(t, held, version)
	}
}
