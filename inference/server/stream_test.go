package server

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// events reads a stream, which must end with [DONE].
func events(t *testing.T, data []byte) []map[string]any {
	t.Helper()
	var out []map[string]any
	ended := false
	lines := bufio.NewScanner(strings.NewReader(string(data)))
	for lines.Scan() {
		if lines.Text() == "" {
			continue
		}
		require.False(t, ended)
		value, ok := strings.CutPrefix(lines.Text(), "data: ")
		require.True(t, ok, lines.Text())
		if ended = value == "[DONE]"; ended {
			continue
		}
		var event map[string]any
		require.NoError(t, json.Unmarshal([]byte(value), &event))
		out = append(out, event)
	}
	require.True(t, ended)
	return out
}

// The parts of a stream add up to the answer without streaming: texts, IDs,
// log-probabilities and how each response ended, with and without stop strings.
func TestStreamEqualsAnswer(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake(), fakeText{}, nil)
	_, plain := post(t, s, "/v1/completions", `{"prompt":"x","seed":1,"max_tokens":50,"ignore_eos":true}`)
	text := plain["choices"].([]any)[0].(map[string]any)["text"].(string)
	for _, more := range []string{``, `,"ignore_eos":true`, `,"echo":true`, `,"sample_index":3`,
		fmt.Sprintf(`,"stop":[%q,"zz"]`, text[10:13]),
		fmt.Sprintf(`,"stop_token_ids":[%d]`, text[9]),
		fmt.Sprintf(`,"stop":%q,"include_stop_str_in_output":true`, text[10:13])} {
		body := `"prompt":["x","yy"],"n":3,"seed":1,"max_tokens":50,"return_token_ids":true` + more
		if !strings.Contains(more, "echo") {
			body += `,"logprobs":2`
		}
		status, want := post(t, s, "/v1/completions", `{`+body+`}`)
		require.Equal(t, http.StatusOK, status, "%v", want)
		status, header, data := call(t, s, http.MethodPost, "/v1/completions",
			`{`+body+`,"stream":true,"stream_options":{"include_usage":true}}`)
		require.Equal(t, http.StatusOK, status, "%s", data)
		require.Equal(t, "text/event-stream", header.Get("Content-Type"))

		type whole struct {
			text, finish string
			stop         any
			ids, prompt  []any
			logprobs     []any
			tokens, top  []any
			offsets      []any
		}
		add := func(w *whole, c map[string]any) {
			w.text += c["text"].(string)
			if ids, ok := c["token_ids"].([]any); ok {
				w.ids = append(w.ids, ids...)
			}
			if ids, ok := c["prompt_token_ids"].([]any); ok {
				w.prompt = append(w.prompt, ids...)
			}
			if l, ok := c["logprobs"].(map[string]any); ok {
				w.logprobs = append(w.logprobs, l["token_logprobs"].([]any)...)
				w.offsets = append(w.offsets, l["text_offset"].([]any)...)
				w.tokens, w.top = append(w.tokens, l["tokens"].([]any)...), append(w.top, l["top_logprobs"].([]any)...)
			}
			if c["finish_reason"] != nil {
				require.Empty(t, w.finish)
				w.finish, w.stop = c["finish_reason"].(string), c["stop_reason"]
			}
		}
		got, wanted := make([]whole, 6), make([]whole, 6)
		for i, c := range want["choices"].([]any) {
			add(&wanted[i], c.(map[string]any))
		}
		list := events(t, data)
		require.Greater(t, len(list), 12)
		for _, event := range list[:len(list)-1] {
			require.EqualValues(t, 3, event["weight_version"])
			require.Equal(t, "00000000000000aa", event["weight_checksum"])
			c := event["choices"].([]any)[0].(map[string]any)
			add(&got[int(c["index"].(float64))], c)
		}
		require.Equal(t, wanted, got, more)
		if !strings.Contains(more, "echo") {
			require.Len(t, got[0].top[0], 2, "the token and one alternative")
		}
		require.Equal(t, want["usage"], list[len(list)-1]["usage"])
		require.Empty(t, list[len(list)-1]["choices"])
	}
}

// Each chunk may report how many tokens have been sent so far.
func TestUsageSoFar(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake(), fakeText{}, nil)
	for path, prompt := range map[string]string{"/v1/completions": `"prompt":"a"`,
		"/v1/chat/completions": `"messages":[{"role":"user","content":"a"}]`} {
		body := `{` + prompt +
			`,"n":2,"seed":1,"max_tokens":9,"stream":true,"return_token_ids":true,` +
			`"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`
		_, _, data := call(t, s, http.MethodPost, path, body)
		tokens := 0
		for _, event := range events(t, data) {
			for _, c := range event["choices"].([]any) {
				ids, _ := c.(map[string]any)["token_ids"].([]any)
				tokens += len(ids)
			}
			require.EqualValues(t, tokens, event["usage"].(map[string]any)["completion_tokens"])
		}
		require.Positive(t, tokens)
	}
}

func TestChatStream(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake(), fakeText{}, nil)
	body := `"messages":[{"role":"user","content":"hi"}],"seed":4,"max_tokens":20,"logprobs":true,"top_logprobs":3`
	_, want := post(t, s, "/v1/chat/completions", `{`+body+`}`)
	_, _, data := call(t, s, http.MethodPost, "/v1/chat/completions", `{`+body+`,"stream":true}`)
	text, tokens := "", []any{}
	for i, event := range events(t, data) {
		c := event["choices"].([]any)[0].(map[string]any)
		d := c["delta"].(map[string]any)
		if i == 0 {
			require.Equal(t, "assistant", d["role"])
		}
		text += d["content"].(string)
		if l, ok := c["logprobs"].(map[string]any); ok {
			tokens = append(tokens, l["content"].([]any)...)
		}
	}
	c := want["choices"].([]any)[0].(map[string]any)
	require.Equal(t, c["message"].(map[string]any)["content"], text)
	require.Equal(t, c["logprobs"].(map[string]any)["content"], tokens)
	require.Len(t, tokens[0].(map[string]any)["top_logprobs"], 3)
}

// An HTTP/1.0 client, which does not support chunks, gets the events as one body.
func TestStreamToOldClient(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake(), fakeText{}, nil)
	body := `{"prompt":"a","n":2,"seed":3,"stream":true}`
	_, _, want := call(t, s, http.MethodPost, "/v1/completions", body)
	c := dial(t, s)
	_, err := fmt.Fprintf(c,
		"POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		len(body), body)
	require.NoError(t, err)
	answer, err := io.ReadAll(c) // until the server closes
	require.NoError(t, err)
	head, got, _ := strings.Cut(string(answer), "\r\n\r\n")
	require.NotContains(t, head, "Transfer-Encoding")
	texts := func(data []byte) (out [2]string) {
		for _, event := range events(t, data) {
			c := event["choices"].([]any)[0].(map[string]any)
			out[int(c["index"].(float64))] += c["text"].(string)
		}
		return out
	}
	require.Equal(t, texts(want), texts([]byte(got)))
}

// A stream that cannot start is refused with a status.
func TestStreamRefused(t *testing.T) {
	t.Parallel()
	backend := newFake()
	s := serve(t, backend, fakeText{}, nil)
	status, got := post(t, s, "/v1/completions", `{"prompt":"a","stream":true,"weight_version":9}`)
	require.Equal(t, http.StatusConflict, status)
	require.Equal(t, "stale_weights", got["error"].(map[string]any)["type"])
}

// An error after a stream has started is an event.
func TestStreamFails(t *testing.T) {
	t.Parallel()
	backend := newFake()
	backend.nan, backend.started, backend.hold = true, make(chan struct{}, 1), make(chan struct{})
	s := serve(t, backend, fakeText{}, nil)
	c := dial(t, s)
	body := `{"prompt":"a","stream":true}`
	_, err := fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "+
		"application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	require.NoError(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil) // with the first tokens
	close(backend.hold)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode)
	data, err := io.ReadAll(answer.Body)
	require.NoError(t, errors.Join(err, answer.Body.Close()))
	require.Contains(t, string(data), `"type":"server_error"`)
	require.NotContains(t, string(data), "[DONE]")
}

// A stream ends if its weights are replaced by others of the same version.
func TestStreamEndsOnOtherWeights(t *testing.T) {
	t.Parallel()
	backend := newFake()
	backend.started, backend.hold = make(chan struct{}), make(chan struct{})
	s := serve(t, backend, fakeText{}, nil)
	var answer []byte
	var done sync.WaitGroup
	done.Go(func() {
		_, _, answer = call(t, s, http.MethodPost, "/v1/chat/completions",
			`{"messages":[{"role":"user","content":"hi"}],"stream":true}`)
	})
	<-backend.started
	backend.mu.Lock()
	backend.checksum = "00000000000000bb"
	backend.mu.Unlock()
	close(backend.hold)
	done.Wait()
	require.Contains(t, string(answer), "the weights of version 3 were replaced during the answer")
	require.NotContains(t, string(answer), "[DONE]")
}

// A stream that waits while the weights change starts with the new ones.
func TestStreamWaits(t *testing.T) {
	t.Parallel()
	backend := newFake()
	backend.started, backend.hold = make(chan struct{}, 2), make(chan struct{})
	s := serve(t, backend, fakeText{}, func(c *Config) { c.MaxConcurrent = 1 })
	var first, second []byte
	var done sync.WaitGroup
	ask := func(answer *[]byte) {
		_, _, *answer = call(t, s, http.MethodPost, "/v1/completions", `{"prompt":"a","stream":true}`)
	}
	done.Go(func() { ask(&first) })
	<-backend.started
	done.Go(func() { ask(&second) })
	require.Eventually(t, func() bool { return s.completions.waiting.Load() == 1 }, time.Minute, time.Millisecond)
	backend.mu.Lock()
	backend.version, backend.checksum = 4, "00000000000000bb"
	backend.mu.Unlock()
	close(backend.hold)
	done.Wait()
	require.Contains(t, string(second), `"weight_version":4,"weight_checksum":"00000000000000bb"`)
	require.Contains(t, string(second), "[DONE]")
	require.NotContains(t, string(second), `"error"`)
}

// The lines of stream_choices hold the choices and the usage of the answer without it.
func TestChoicesEqualAnswer(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake(), fakeText{}, nil)
	for _, c := range []struct{ path, body string }{
		{"/v1/completions",
			`"prompt":["x","yy"],"n":3,"seed":1,"max_tokens":50,"return_token_ids":true,"logprobs":2,` +
				`"prompt_logprobs":0`},
		{"/v1/completions", `"prompt":"x","n":2,"seed":1,"max_tokens":0,"echo":true`},
		{"/v1/chat/completions",
			`"messages":[{"role":"user","content":"x"}],"n":2,"seed":1,"max_tokens":20,"logprobs":true,` +
				`"return_token_ids":true`},
	} {
		status, want := post(t, s, c.path, `{`+c.body+`}`)
		require.Equal(t, http.StatusOK, status, "%v", want)
		status, header, data := call(t, s, http.MethodPost, c.path, `{`+c.body+`,"stream_choices":true}`)
		require.Equal(t, http.StatusOK, status, "%s", data)
		require.Equal(t, "application/x-ndjson", header.Get("Content-Type"))
		var choices []any
		lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
		for i, text := range lines {
			var line map[string]any
			require.NoError(t, json.Unmarshal([]byte(text), &line))
			got := line["choices"].([]any)
			for _, key := range []string{"object", "model", "weight_version", "weight_checksum", "prompt_token_ids"} {
				require.Equal(t, want[key], line[key], key)
			}
			if i == len(lines)-1 {
				require.Empty(t, got)
				require.Equal(t, want["usage"], line["usage"])
				continue
			}
			require.Len(t, got, 1)
			require.NotContains(t, line, "usage")
			choices = append(choices, got...)
		}
		require.Equal(t, want["choices"], choices)
	}
	status, answer := post(t, s, "/v1/completions", `{"prompt":"x","stream":true,"stream_choices":true}`)
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, answer["error"].(map[string]any)["message"],
		"stream_choices true is not supported with stream true")
	status, _ = post(t, s, "/v1/completions", `{"prompt":"x","stream_choices":true,"weight_version":99}`)
	require.Equal(t, http.StatusConflict, status, "an error before the first choice has a status")
}
