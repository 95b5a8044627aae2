package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/engine"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
)

// No test leaks a goroutine.
func TestMain(m *testing.M) { goleak.VerifyTestMain(settled{m}, fasthttps()...) }

// settled runs tests and waits until their goroutines have ended.
type settled struct{ *testing.M }

func (m settled) Run() int {
	defer leftBehind(fasthttps()...) //nolint:errcheck // checked again afterwards
	return m.M.Run()
}

// leftBehind returns an error that names goroutines that do not end, however slow the
// machine is: one attempt of goleak waits only half a second.
func leftBehind(but ...goleak.Option) (err error) {
	for range 100 {
		if err = goleak.Find(but...); err == nil {
			return nil
		}
	}
	return err
}

// fasthttps ignores sleeping goroutines of fasthttp: one that updates the date for all
// servers and never ends, and one that checks every 10 s whether its server has ended.
func fasthttps() []goleak.Option {
	return []goleak.Option{goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2")}
}

// engineBackend is an engine with a model of bytes and fixed weights.
type engineBackend struct {
	*engine.Engine
	checksum string
}

func (b engineBackend) Info() Info            { return Info{Context: 512, Vocab: fakeEOS + 1} }
func (b engineBackend) Held() (int64, string) { return 1, b.checksum }
func (b engineBackend) Load() Load {
	st := b.Stats()
	return Load{Running: st.Running, Waiting: st.Waiting, FreePages: st.FreePages, CachePages: st.CachePages}
}

func (engineBackend) Update(context.Context, int64, io.Reader, int64) (string, error) {
	return "", inference.ErrInvalid
}

func (engineBackend) UpdateFile(context.Context, int64, string) (string, error) {
	return "", inference.ErrInvalid
}

// openEngine opens a real engine, which the test closes after the servers started later.
func openEngine(t *testing.T, cfg engine.Config) engineBackend {
	t.Helper()
	shape := &model.Config{Type: "llama", HiddenSize: 16, FFNSize: 24, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 8,
		VocabSize:    fakeEOS + 1,
		MaxPositions: 512, NormEps: 1e-5, RopeTheta: 10000, InitStd: 0.3, BOS: -1}
	open := func() npu.Device {
		dev, err := cpu.Open(npu.FP32, 1)
		require.NoError(t, err)
		return dev
	}
	dev := open()
	w, err := model.NewWeights(dev, shape, npu.Weights)
	require.NoError(t, err)
	require.NoError(t, w.Init(7))
	cfg.ID = "tiny"
	e, err := engine.New(cfg, shape, fakeText{}, open())
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, e.Close())
		w.Free()
		require.NoError(t, dev.Close())
	})
	sum, err := e.Publish(t.Context(), model.NewSnapshot(w, 1))
	require.NoError(t, err)
	return engineBackend{e, sum}
}

// idle waits until nothing runs, no body is held and all pages are free.
func (b engineBackend) idle(t *testing.T, s *Server, after string) {
	t.Helper()
	require.Eventually(t, func() bool {
		st := b.Stats()
		return s.Running() == 0 && st.Running == 0 && st.Waiting == 0 && st.FreePages == st.CachePages &&
			s.bodies.held.Load() == 0 && len(s.completions.slots) == 0
	}, time.Minute, time.Millisecond, "after %s: %+v", after, b.Stats())
}

// The responses from an index on equal those of a larger group bit for bit.
func TestSampleIndex(t *testing.T) {
	t.Parallel()
	s := serve(t, openEngine(t, engine.Config{MaxRunning: 4}), fakeText{}, nil)
	const fields = `"prompt":[1,2,3],"seed":5,"max_tokens":20,"ignore_eos":true,"logprobs":2,"return_token_ids":true`
	choices := func(more string) (out []any) {
		status, got := post(t, s, "/v1/completions", `{`+fields+more+`}`)
		require.Equal(t, http.StatusOK, status, "%v", got)
		require.EqualValues(t, 20*len(got["choices"].([]any)), got["usage"].(map[string]any)["completion_tokens"])
		for _, c := range got["choices"].([]any) {
			delete(c.(map[string]any), "index")
			out = append(out, c)
		}
		return out
	}
	all := choices(`,"n":8`)
	require.Len(t, all, 8)
	require.Equal(t, all[5:], choices(`,"n":3,"sample_index":5`))
	require.Equal(t, all[7:], choices(`,"sample_index":7`))
	require.NotEqual(t, all[7], all[6])
	choices(`,"sample_index":2147483646`)
	status, got := post(t, s, "/v1/completions", `{`+fields+`,"sample_index":2147483647}`)
	require.Equal(t, http.StatusBadRequest, status, "%v", got)
}

// Whatever a client does, its pages are soon free, no goroutine leaks and the next client
// is served.
func TestHostileClientsLeakNothing(t *testing.T) {
	before := append(fasthttps(), goleak.IgnoreCurrent())
	t.Run("clients", func(t *testing.T) { // its cleanup runs before the check
		b := openEngine(t, engine.Config{MaxRunning: 4, CachePages: 64})
		s := serve(t, b, fakeText{}, nil)
		long := `{"prompt":"abc","n":8,"max_tokens":400,"ignore_eos":true,"stream":%t}`
		request := func(body string) string {
			return fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "+
				"application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		}
		stream, whole := request(fmt.Sprintf(long, true)), request(fmt.Sprintf(long, false))
		// more than fasthttp reads with the header
		large := request(strings.Repeat(" ", 20_000) + fmt.Sprintf(long, false))
		const chunked = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: " +
			"application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
		for _, kind := range []struct {
			name, send string
			hear       string // output to wait for before leaving
			then       string // "" closes, "reset" resets, "half" closes for writing, "stay" waits to be cut off
		}{
			{"gone in a stream", stream, "data: ", ""}, {"reset in a stream", stream, "data: ", "reset"},
			{"gone at once", whole, "", ""}, {"reset at once", whole, "", "reset"}, {"half closed", whole, "", "half"},
			{"half closed in a stream", stream, "data: ", "half"}, {"gone in a header", whole[:20], "", ""},
			{"gone in a body", whole[:len(whole)-9], "", ""}, {"gone in a large body", large[:len(large)-9], "", ""},
			{"gone in chunks", chunked + "40\r\nabc", "", ""},
			{"slow header", whole[:30], "408", "stay"}, {"slow body", whole[:len(whole)-1], "408", "stay"},
			{"slow large body", large[:len(large)-1], "408", "stay"},
			{"slow chunks", chunked + "40\r\nabc", "408", "stay"}, {"bad chunks", chunked + "zz\r\n", "400", "stay"},
			{"more data after a stream", stream + "GARBAGE\r\n\r\n", "data: ", ""},
			{"pipelined, then gone", whole + stream + whole, "", "reset"},
			{"unread stream", stream, "HTTP/1.1 200", ""},
			{"100 MB", strings.Replace(large, "Content-Length: ", "Content-Length: 9999", 1), "413", "stay"},
		} {
			to, timeout := s, 250*time.Millisecond
			var c *net.TCPConn
			var r *bufio.Reader
			for heard := false; !heard; timeout *= 2 {
				if kind.hear == "408" { // on a busy machine a hasty server may close before it reads anything
					to = serve(t, b, fakeText{}, func(c *Config) { c.HeaderTimeout = timeout })
				}
				c = dial(t, to)
				_, err := io.WriteString(c, kind.send)
				require.NoError(t, err, kind.name)
				r, heard = bufio.NewReader(c), true
				for line := ""; kind.hear != "" && !strings.Contains(line, kind.hear); {
					line, err = r.ReadString('\n')
					if kind.hear == "408" && line == "" && err != nil && timeout < time.Minute {
						require.NoError(t, c.Close())
						heard = false
						break
					}
					require.NoError(t, err, "%s: %q", kind.name, line)
				}
			}
			var err error
			switch kind.then {
			case "reset":
				require.NoError(t, c.SetLinger(0))
			case "half":
				require.NoError(t, c.CloseWrite())
				_, err = io.Copy(io.Discard, r)
				require.NoError(t, err, kind.name)
			case "stay":
				_, err = io.Copy(io.Discard, r) // until the server closes
				require.True(t, err == nil || errors.Is(err, syscall.ECONNRESET), "%s: %v", kind.name, err)
			}
			require.NoError(t, c.Close())
			b.idle(t, to, kind.name)
			status, got := post(t, s, "/v1/completions", `{"prompt":"a","max_tokens":2}`)
			require.Equal(t, http.StatusOK, status, "after %s: %v", kind.name, got)
		}
	})
	require.NoError(t, leftBehind(before...))
}

// An engine serves 2,000 clients at once and refuses connections beyond the limit.
// Nothing leaks.
func TestManyConnections(t *testing.T) {
	before := append(fasthttps(), goleak.IgnoreCurrent())
	t.Run("clients", func(t *testing.T) {
		const clients = 2000
		b := openEngine(t, engine.Config{MaxRunning: 64})
		s := serve(t, b, fakeText{}, func(c *Config) { c.MaxConns, c.MaxConcurrent = clients, 64 })
		_, want := post(t, s, "/v1/completions", `{"prompt":"a","seed":1,"max_tokens":3}`)
		require.Eventually(t, func() bool { return s.http.GetCurrentConcurrency() == 0 }, time.Minute, time.Millisecond,
			"the connection is closed")
		conns := make([]io.ReadWriter, clients)
		for i := range conns {
			c, err := dialTo(t, s)
			if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
				t.Skipf("the limit of open files allows only %d connections, expected %d", i, clients)
			}
			require.NoError(t, err)
			conns[i] = c
		}
		for i, c := range conns {
			body := fmt.Sprintf(`{"prompt":"a","seed":1,"max_tokens":3,"stream":%t}`, i%2 == 0)
			_, err := fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "+
				"application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			require.NoError(t, err)
		}
		refused, err := io.ReadAll(dial(t, s))
		require.NoError(t, err)
		require.Contains(t, string(refused), " 503 ")
		text := want["choices"].([]any)[0].(map[string]any)["text"].(string)
		for i, c := range conns {
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			require.NoError(t, err)
			data, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, res.StatusCode, "%s", data)
			require.Equal(t, text, textOf(t, data, i%2 == 0), "%s", data)
		}
		b.idle(t, s, "all")
	})
	require.NoError(t, leftBehind(before...))
}

// textOf returns the text of an answer with one choice.
func textOf(t *testing.T, data []byte, stream bool) (text string) {
	t.Helper()
	var list []map[string]any
	if stream {
		list = events(t, data)
	} else {
		list = make([]map[string]any, 1)
		require.NoError(t, json.Unmarshal(data, &list[0]))
	}
	for _, e := range list {
		text += e["choices"].([]any)[0].(map[string]any)["text"].(string)
	}
	return text
}
