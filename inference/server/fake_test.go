package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/tokenizer/chat/calls"
)

// fakeEOS ends a sequence; smaller IDs are bytes. fakeOpen, which only responses have, is
// special too and opens a tool call.
const (
	fakeEOS  = 256
	fakeOpen = 257
)

// fakeText is a tokenizer of bytes.
type fakeText struct{}

func (fakeText) Encode(text string) ([]int32, error) {
	ids := make([]int32, len(text))
	for i := range len(text) {
		ids[i] = int32(text[i])
	}
	return ids, nil
}

func (fakeText) Decode(ids []int32) string {
	var b []byte
	for _, id := range ids {
		if id < fakeEOS {
			b = append(b, byte(id))
		}
	}
	return string(b)
}

func (fakeText) Piece(id int32) (text string, special bool) {
	switch id {
	case fakeEOS:
		return "<eos>", true
	case fakeOpen:
		return "<tool_call>", true
	}
	return string([]byte{byte(id)}), false
}

func (t fakeText) Chat(messages, tools, variables json.RawMessage) ([]int32, error) {
	var list []struct {
		Role    string
		Content any
	}
	if err := json.Unmarshal(messages, &list); err != nil {
		return nil, fmt.Errorf("chat: %w: %w", inference.ErrInvalid, err)
	}
	text := string(tools) + string(variables)
	for _, m := range list {
		text += fmt.Sprintf("%s: %v\n", m.Role, m.Content)
	}
	return t.Encode(text + "assistant: ")
}

func (fakeText) Calls() calls.Format { return calls.Tagged }

func (fakeText) EOS() []int32 { return []int32{fakeEOS} }

// fakeBackend draws bytes by hashing the prompt, the seed, the response's index and the
// version of the weights.
type fakeBackend struct {
	mu       sync.Mutex
	version  int64
	checksum string
	load     Load
	nan      bool
	file     []byte
	says     []int32       // if set, every response
	started  chan struct{} // if set, Generate sends when it starts,
	hold     chan struct{} // waits until this is closed,
	ended    chan error    // and sends why it ended early
	last     inference.Request
}

func newFake() *fakeBackend { return &fakeBackend{version: 3, checksum: "00000000000000aa"} }

func (b *fakeBackend) ID() string    { return "tiny" }
func (b *fakeBackend) Capacity() int { return 8 }
func (b *fakeBackend) Close() error  { return nil }
func (b *fakeBackend) Info() Info {
	return Info{Context: 4096, Vocab: fakeEOS + 1, Created: 1700000000, Root: "/models/tiny", Cores: 3}
}

func (b *fakeBackend) Load() Load {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.load
}

func (b *fakeBackend) Held() (int64, string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.version, b.checksum
}

func (b *fakeBackend) Generate(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
	return b.Stream(ctx, req, func(inference.Delta) {})
}

func (b *fakeBackend) Stream(ctx context.Context, req inference.Request, emit func(inference.Delta)) (
	[]inference.Completion, error) {
	if err := req.Validate(); err != nil {
		return nil, err
	}
	version, _ := b.Held()
	if req.Version != 0 && req.Version != version {
		return nil, fmt.Errorf("version %d: %w", req.Version, inference.ErrStale)
	}
	b.mu.Lock()
	b.last = req
	b.mu.Unlock()
	out := make([]inference.Completion, req.N)
	for i := range out {
		out[i] = b.respond(&req, i, version, emit)
		if i > 0 || b.hold == nil {
			continue
		}
		b.started <- struct{}{}
		select {
		case <-b.hold:
		case <-ctx.Done():
			b.ended <- context.Cause(ctx)
			return nil, ctx.Err()
		}
	}
	_, checksum := b.Held()
	for i := range out {
		out[i].Checksum = checksum
	}
	return out, nil
}

// respond draws response i and passes each token to emit.
func (b *fakeBackend) respond(req *inference.Request, i int, version int64,
	emit func(inference.Delta)) inference.Completion {
	c := inference.Completion{Version: version, Finish: rollout.Length}
	_, checksum := b.Held()
	told := 0
	for len(c.IDs) < req.Sampling.MaxTokens && c.Finish == rollout.Length {
		h := fnv.New64a()
		fmt.Fprint(h, req.PromptIDs, req.Seed, req.FirstIndex+i, len(c.IDs), version)
		draw := h.Sum64()
		id := int32('a' + draw%26)
		if draw%17 == 0 {
			id = fakeEOS
		}
		if b.says != nil {
			id = b.says[len(c.IDs)]
		}
		logprob := -float32(draw%100003) / 7919
		if b.nan {
			logprob = float32(math.NaN())
		}
		c.IDs, c.Logprobs = append(c.IDs, id), append(c.Logprobs, logprob)
		if req.TopLogprobs > 0 {
			top := []inference.TokenLogprob{{ID: id, Logprob: logprob}}
			for k := 1; k < req.TopLogprobs; k++ {
				top = append(top, inference.TokenLogprob{ID: int32('A' + k), Logprob: logprob - float32(k)})
			}
			c.Top = append(c.Top, top)
		}
		c.Text = fakeText{}.Decode(c.IDs)
		held := 0
		for _, stop := range req.Sampling.Stop {
			if strings.Contains(c.Text, stop) {
				c.Finish = rollout.Stop
			}
			for n := range stop {
				if strings.HasSuffix(c.Text, stop[:n]) {
					held = max(held, n)
				}
			}
		}
		for _, stop := range req.Sampling.StopIDs {
			if id == stop {
				c.Finish = rollout.Stop
			}
		}
		if c.Finish == rollout.Stop || len(c.IDs) == req.Sampling.MaxTokens {
			held = 0
		}
		upTo := max(told, len(c.Text)-held)
		last := len(c.IDs) - 1
		emit(inference.Delta{Index: i, IDs: c.IDs[last:], Logprobs: c.Logprobs[last:],
			Top: c.Top[min(last, len(c.Top)):], Text: c.Text[told:upTo],
			Version: version, Checksum: checksum})
		told = upTo
	}
	if req.PromptLogprobs {
		c.PromptLogprobs = make([]float32, len(req.PromptIDs))
		if req.PromptTop > 0 {
			c.PromptTop = make([][]inference.TokenLogprob, len(req.PromptIDs))
		}
		for k := 1; k < len(req.PromptIDs); k++ {
			c.PromptLogprobs[k] = -float32(k) / 3
			for t := range req.PromptTop {
				c.PromptTop[k] = append(c.PromptTop[k],
					inference.TokenLogprob{ID: int32('A' + t), Logprob: -float32(t) / 4})
			}
		}
	}
	return c
}

func (b *fakeBackend) Update(_ context.Context, version int64, r io.Reader, size int64) (string, error) {
	var data []byte
	var err error
	if size >= 0 {
		data = make([]byte, size)
		_, err = io.ReadFull(r, data) // and never reads to io.EOF
	} else {
		data, err = io.ReadAll(r)
	}
	if err != nil {
		return "", err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.version, b.checksum, b.file = version, fmt.Sprintf("%016x", len(data)), data
	return b.checksum, nil
}

func (b *fakeBackend) UpdateFile(ctx context.Context, version int64, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("%w: %w", inference.ErrInvalid, err)
	}
	defer f.Close() //nolint:errcheck // only read
	return b.Update(ctx, version, f, -1)
}

// serve starts a server of backend, with timeouts that suit a busy machine, and closes it
// at the end of the test.
func serve(t testing.TB, backend Backend, text Text, change func(*Config)) *Server {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Listen, cfg.HeaderTimeout = "127.0.0.1:0", time.Hour
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg, backend, text)
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, <-served)
	})
	return s
}

// call sends a request, by default with a body of JSON, and returns the answer's status,
// header and body.
func call(t *testing.T, s *Server, method, path string, body string, header ...string) (int, http.Header, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr()+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	req.Host = req.Header.Get("Host")
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(req)
	require.NoError(t, err)
	data, err := io.ReadAll(res.Body)
	require.NoError(t, errors.Join(err, res.Body.Close()))
	return res.StatusCode, res.Header, data
}

// post posts JSON and decodes the JSON answer.
func post(t *testing.T, s *Server, path, body string) (int, map[string]any) {
	t.Helper()
	status, _, data := call(t, s, http.MethodPost, path, body)
	var out map[string]any
	require.NoError(t, json.Unmarshal(data, &out), "%s", data)
	return status, out
}

// errorOf returns the error of an answer, which must have one.
func errorOf(t *testing.T, data []byte) (message, kind string, param any) {
	t.Helper()
	var out struct {
		Error struct {
			Message, Type string
			Param, Code   any
		}
	}
	require.NoError(t, json.Unmarshal(data, &out), "%s", data)
	require.NotEmpty(t, out.Error.Message)
	return out.Error.Message, out.Error.Type, out.Error.Param
}
