package main

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A small crowd finds no fault with a server that shuts down cleanly.
func TestLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the command")
	}
	o := &options{connections: 60, pause: 300 * time.Millisecond, seed: 1}
	s, err := o.open(t.Context())
	require.NoError(t, err)
	defer s.kill()
	l := &load{options: o, server: s}
	require.NoError(t, l.learn(t.Context()))
	const most = 20 // times, on a machine too busy for an answer
	for i := 0; i < most && l.tally.right() == 0 && len(l.tally.faults) == 0; i++ {
		require.NoError(t, l.crowd(t.Context(), 3*time.Second))
	}
	require.NoError(t, l.again(t.Context()))
	_, err = s.look(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.end())
	require.Empty(t, l.tally.faults)
	require.Positive(t, l.tally.right())
}

// Malformed and contradictory answers are detected.
func TestRead(t *testing.T) {
	t.Parallel()
	read := func(status int, kind, body string, header ...string) (answer, error) {
		res := &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(body))}
		for i := 0; i < len(header); i += 2 {
			res.Header.Set(header[i], header[i+1])
		}
		return read(res)
	}
	const stream, object = "text/event-stream", "application/json"
	whole, err := read(200, object, `{"weight_version":3,"choices":[{"index":0,"text":"ab","token_ids":[1,2],"finish_reason":"stop"}]}`)
	require.NoError(t, err)
	parts, err := read(200, stream, `data: {"weight_version":3,"choices":[{"index":0,"text":"a","token_ids":[1],"finish_reason":null}]}

data: {"weight_version":3,"choices":[{"index":0,"text":"b","token_ids":[2],"finish_reason":"stop"}]}

data: [DONE]

`)
	require.NoError(t, err)
	require.Equal(t, whole, parts)
	var no *refusal
	_, err = read(429, object, `{"error":{"type":"rate_limit_error","message":"m"}}`, "Retry-After", "1")
	require.ErrorAs(t, err, &no)
	_, err = read(200, stream, "data: {\"error\":{\"type\":\"stale_weights\",\"message\":\"m\"}}\n\n")
	require.ErrorAs(t, err, &no)
	for body, want := range map[string]string{`{"choices":[]}`: "0 choices", `{`: "not JSON", `{"error":{"message":"m"}}`: "error has no type"} {
		_, err = read(200, object, body)
		require.ErrorContains(t, err, want)
	}
	_, err = read(429, object, `{"error":{"type":"rate_limit_error","message":"m"}}`)
	require.ErrorContains(t, err, "without Retry-After")
	_, err = read(500, object, `{"choices":[{"text":"a"}]}`)
	require.ErrorContains(t, err, "status 500")
	_, err = read(200, stream, "data: {\"choices\":[{\"text\":\"a\"}]}\n\n")
	require.ErrorContains(t, err, "stream has no end")
}

// A missed target is an error.
func TestReport(t *testing.T) {
	t.Parallel()
	fine := func() *load {
		l := &load{options: &options{duration: time.Second}, before: look{goroutines: 10, memory: 50}, after: look{goroutines: 12, memory: 51}}
		l.tally.count("question", right)
		l.looks = []look{{memory: 100}, {memory: 101}, {memory: 100}, {memory: 102}}
		return l
	}
	require.NoError(t, fine().report())
	for name, spoil := range map[string]func(l *load){
		"wrong":      func(l *load) { l.tally.fault("question", io.EOF) },
		"nothing":    func(l *load) { l.tally.restart() },
		"goroutines": func(l *load) { l.after.goroutines = 100 },
		"pages":      func(l *load) { l.after.cache = 0.01 },
		"memory":     func(l *load) { l.after.memory = 100 },
		"growth":     func(l *load) { l.looks[3].memory = 150 },
	} {
		l := fine()
		spoil(l)
		require.ErrorContains(t, l.report(), "1 targets missed", name)
	}
}

// Any response of a server is either read or rejected.
func FuzzRead(f *testing.F) {
	f.Add(200, true, []byte("data: {\"choices\":[{\"index\":1,\"text\":\"a\"}]}\n\ndata: [DONE]\n\n"))
	f.Add(200, false, []byte(`{"choices":[{"index":-1,"token_ids":[1]}]}`))
	f.Add(429, false, []byte(`{"error":{"type":"a","message":"b"}}`))
	f.Fuzz(func(t *testing.T, status int, stream bool, body []byte) {
		res := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body))}
		if stream {
			res.Header.Set("Content-Type", "text/event-stream")
		}
		if a, err := read(res); err == nil {
			require.Equal(t, http.StatusOK, status)
			require.NotEmpty(t, a.text)
		}
	})
}
