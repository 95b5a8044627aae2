package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference/server/internal/fields"
	"github.com/easyrl/easyrl/inference/server/internal/wire"
)

// Whatever a client sends, it is understood within the bounds or refused with a
// 4xx that JSON can carry.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		`{"prompt":"a","n":2,"stop":["x"],"seed":18446744073709551615,"logprobs":3,"stream":true,"stream_options":{"include_usage":true}}`,
		`{"prompt":[[1,2],[3]],"echo":true,"max_tokens":0,"prompt_logprobs":0,"weight_version":3}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"logprobs":true,"top_logprobs":2,"tools":[{}],"tool_choice":"none"}`,
		`{"prompt":[],"logit_bias":{},"response_format":{"type":"text"},"temperature":1e-9,"top_k":-1,"stop":"é"}`, `{"n":`, "\xff", `[[[[`,
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	s := &Server{backend: newFake(), text: fakeText{}}
	f.Fuzz(func(t *testing.T, data []byte, chat bool) {
		r, err := decodeRequest(data, chat)
		var j *job
		if err == nil {
			require.True(t, r.n >= 1 && r.n <= maxResponses)
			j, err = s.prepare(r)
		}
		if err != nil {
			got := asFailure(err)
			require.True(t, got.status >= 400 && got.status < 500, "%v", err)
			_, err := json.Marshal(got.body())
			require.NoError(t, err)
			return
		}
		require.NotEmpty(t, j.prompts)
		require.LessOrEqual(t, len(j.prompts)*j.n, maxResponses)
		for _, ids := range j.prompts {
			req := j.each
			req.PromptIDs = ids
			require.NoError(t, req.Validate())
			require.LessOrEqual(t, len(ids)+req.Sampling.MaxTokens, 4096)
		}
	})
}

// However a body arrives, it is given out as it is and whole, or with an error
// and without its last byte.
func FuzzChecked(f *testing.F) {
	f.Add([]byte("some weights"), true, 3)
	f.Add([]byte("x"), false, 1)
	f.Add([]byte{}, true, 9)
	f.Fuzz(func(t *testing.T, data []byte, good bool, piece int) {
		sum := xxh64(data)
		if !good {
			sum = "0123456789abcdef"
		}
		for _, src := range []io.Reader{bytes.NewReader(data), iotest.OneByteReader(bytes.NewReader(data)), iotest.DataErrReader(bytes.NewReader(data))} {
			for _, size := range []int64{-1, int64(len(data)), int64(len(data)) + 1} {
				if r, ok := src.(io.Seeker); ok {
					_, err := r.Seek(0, io.SeekStart)
					require.NoError(t, err)
				} else if size >= 0 {
					continue
				}
				b := &wire.Checked{Source: src, Size: size, Before: func() error { return nil }, Want: func() string { return sum }}
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

func TestPromptForms(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]int{`"a"`: 1, `["a","b"]`: 2, `[1,2,3]`: 1, `[[1],[2,3]]`: 2, ` [ [1] ]`: 0, `[]`: 1} {
		texts, ids, err := fields.Prompts(json.RawMessage(raw), 2)
		if want == 0 {
			require.Error(t, err)
			continue
		}
		require.NoError(t, err, raw)
		require.Equal(t, want, len(texts)+len(ids), raw)
	}
	_, _, err := fields.Prompts(json.RawMessage(`["a","b","c"]`), 2)
	require.Error(t, err)
}
