package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/server/internal/api"
	"github.com/easyrl/easyrl/inference/server/internal/wire"
)

// Any request is understood within the limits or refused with a 4xx that JSON can
// represent.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		`{"prompt":"a","n":2,"stop":["x"],"seed":18446744073709551615,"logprobs":3,"stream":true,` +
			`"stream_options":{"include_usage":true}}`,
		`{"prompt":[[1,2],[3]],"echo":true,"max_tokens":0,"prompt_logprobs":0,"weight_version":3,` +
			`"truncate_prompt_tokens":-1}`,
		`{"token_ids":[1,2],"sampling_params":{"max_tokens":3,"logprobs":1,"prompt_logprobs":2,` +
			`"stop_token_ids":[4]},"request_id":"r","output_mode":"tokens"}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"logprobs":true,"top_logprobs":2,` +
			`"tools":[{"type":"function","function":{"name":"f"}}],"chat_template_kwargs":{"a":1}}`,
		`{"prompt":[],"logit_bias":{},"response_format":{"type":"text"},"temperature":1e-9,"top_k":-1,"stop":"é"}`,
		`{"n":`, "\xff", `[[[[`,
	} {
		f.Add([]byte(seed), byte(0))
		f.Add([]byte(seed), byte(1))
		f.Add([]byte(seed), byte(2))
	}
	m := newModel(newFake(), fakeText{}, &bodies{})
	decode := []func(data []byte) (*api.Request, error){
		func(data []byte) (*api.Request, error) { return api.Decode(data, false) },
		func(data []byte) (*api.Request, error) { return api.Decode(data, true) },
		api.DecodeGenerate,
	}
	f.Fuzz(func(t *testing.T, data []byte, kind byte) {
		r, err := decode[int(kind)%len(decode)](data)
		var j *api.Job
		if err == nil {
			require.True(t, r.N >= 1 && r.N <= api.MaxResponses)
			j, err = m.Prepare(r)
		}
		if err != nil {
			got := failureOf(err)
			require.True(t, got.Status >= 400 && got.Status < 500, "%v", err)
			_, err := json.Marshal(got.Body())
			require.NoError(t, err)
			return
		}
		require.NotEmpty(t, j.Prompts)
		require.LessOrEqual(t, len(j.Prompts)*j.N, api.MaxResponses)
		for _, ids := range j.Prompts {
			req := j.Each
			req.PromptIDs = ids
			require.NoError(t, req.Validate())
			require.LessOrEqual(t, len(ids)+req.Sampling.MaxTokens, 4096)
		}
	})
}

// noFiles is a backend that opens no files.
type noFiles struct{ *fakeBackend }

func (noFiles) UpdateFile(context.Context, int64, string) (string, error) {
	return "", inference.ErrInvalid
}

// Whatever bytes a connection sends, the server answers, closes and leaks nothing.
func FuzzConnection(f *testing.F) {
	const body = `{"prompt":"a","max_tokens":2,"seed":1,"stream":true}`
	head := func(path, proto, fields string) string {
		return "POST " + path + " " + proto + "\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
			fields + "\r\n"
	}
	whole := head("/v1/completions", "HTTP/1.1", fmt.Sprintf("Content-Length: %d\r\n", len(body))) + body
	for _, seed := range []string{
		whole, whole + whole, strings.Replace(whole, "1.1", "1.0", 1), whole[:len(whole)-1], whole[:30], "\r\n",
		"GET /metrics HTTP/1.1\r\n\r\n",
		head("/v1/completions", "HTTP/1.1", "Transfer-Encoding: chunked\r\n") + "34\r\n" + body +
			"\r\n0\r\nX-A: b\r\n\r\n",
		head("/v1/completions", "HTTP/1.1", "Content-Length: 104857600\r\nExpect: 100-continue\r\n"),
		"GET * HTTP/1.1\r\nA:\r\n b\r\n\r\n",
		"PUT /v1/weights?version=4 HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nTrailer: " +
			"X-Checksum\r\n\r\n1\r\na\r\n0\r\nX-Checksum: 0\r\n\r\n",
		head("/tokenize", "HTTP/1.1", "Content-Length: 14\r\nConnection: close\r\n") + `{"prompt":"a"}`,
	} {
		f.Add([]byte(seed))
	}
	s := serve(f, noFiles{newFake()}, fakeText{}, func(c *Config) { c.HeaderTimeout = 5 * time.Second })
	f.Fuzz(func(t *testing.T, data []byte) {
		s.gate.mu.Lock()
		s.gate.draining = false // undo a drain of the previous input
		s.gate.mu.Unlock()
		inner, err := net.Dial("tcp", s.Addr())
		require.NoError(t, err)
		defer inner.Close() //nolint:errcheck // already read
		c := inner.(*net.TCPConn)
		_, err = c.Write(data)
		require.NoError(t, err)
		require.NoError(t, c.CloseWrite())
		answer, err := io.ReadAll(c)
		require.True(t, err == nil || errors.Is(err, syscall.ECONNRESET), "%v", err)
		if len(answer) > 0 {
			require.Regexp(t, `^HTTP/1\.1 (100|200|4\d\d|503) `, string(answer[:min(len(answer), 20)]))
		}
		require.Eventually(t, func() bool { return s.Running() == 0 && s.bodies.held.Load() == 0 }, time.Minute,
			time.Millisecond)
	})
}

// However a body arrives, it comes out unchanged and whole, or with an error and without
// its last byte.
func FuzzChecked(f *testing.F) {
	f.Add([]byte("some weights"), true, 3)
	f.Add([]byte("x"), false, 1)
	f.Add([]byte{}, true, 9)
	f.Fuzz(func(t *testing.T, data []byte, good bool, piece int) {
		sum := xxh64(data)
		if !good {
			sum = "0123456789abcdef"
		}
		for _, src := range []io.Reader{bytes.NewReader(data), iotest.OneByteReader(bytes.NewReader(data)),
			iotest.DataErrReader(bytes.NewReader(data))} {
			for _, size := range []int64{-1, int64(len(data)), int64(len(data)) + 1} {
				if r, ok := src.(io.Seeker); ok {
					_, err := r.Seek(0, io.SeekStart)
					require.NoError(t, err)
				} else if size >= 0 {
					continue
				}
				b := &wire.Checked{Source: src, Size: size, Before: func() error { return nil },
					Want: func() string { return sum }}
				got, err := io.ReadAll(readerOf{b, max(1, piece&1023)})
				if good && size <= int64(len(data)) {
					require.NoError(t, err)
					require.True(t, bytes.Equal(data, got))
					require.Equal(t, io.EOF, b.Err())
					continue
				}
				require.Error(t, err)
				require.Equal(t, size <= int64(len(data)), errors.Is(err, wire.ErrChecksum))
				require.True(t, len(data) == 0 || len(got) < len(data))
			}
		}
	})
}

// readerOf reads n bytes at a time.
type readerOf struct {
	r io.Reader
	n int
}

func (r readerOf) Read(p []byte) (int, error) { return r.r.Read(p[:min(len(p), r.n)]) }
