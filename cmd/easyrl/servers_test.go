package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/engine"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
	"github.com/easyrl/easyrl/report"
)

// testServer serves an engine over HTTP in the least that easyrl's own servers
// say, written for this test alone.
type testServer struct {
	t       *testing.T
	http    *httptest.Server
	engine  *engine.Engine
	folder  *folder
	dev     npu.Device
	answers atomic.Int64
	dies    int64 // after so many answers; 0 never

	mu      sync.Mutex
	version int64
	sum     string
}

// serveTiny serves a model of dir's shape without weights. It dies, to come back
// no more, after so many answers where dies is not 0.
func serveTiny(t *testing.T, dir string, dies int64) *testServer {
	t.Helper()
	s := &testServer{t: t, dies: dies}
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	require.NoError(t, err)
	shape, err := model.ParseConfig(config)
	require.NoError(t, err)
	s.folder, err = readFolder(dir, dir, config, shape)
	require.NoError(t, err)
	s.engine, err = s.folder.engine(engine.Config{ID: "served", MaxRunning: 5, Context: 64}, 1)
	require.NoError(t, err)
	s.dev, err = cpu.Open(1)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		s.answer(w, map[string]any{"data": []any{map[string]any{"id": "tiny"}}}, nil)
	})
	mux.HandleFunc("GET /v1/weights", func(w http.ResponseWriter, _ *http.Request) { s.answer(w, s.held(), nil) })
	mux.HandleFunc("PUT /v1/weights", func(w http.ResponseWriter, r *http.Request) {
		err := s.update(r.Context(), r.URL.Query().Get("version"), r.URL.Query().Get("path"))
		s.answer(w, s.held(), err)
	})
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) {
		out, err := s.complete(r)
		s.answer(w, out, err)
	})
	s.http = httptest.NewServer(mux)
	t.Cleanup(func() {
		s.http.Close()
		require.NoError(t, s.engine.Close())
	})
	return s
}

func (s *testServer) answer(w http.ResponseWriter, v any, err error) {
	switch {
	case s.dies > 0 && s.answers.Load() > s.dies:
		panic(http.ErrAbortHandler)
	case errors.Is(err, inference.ErrStale):
		w.WriteHeader(http.StatusConflict)
		v = map[string]any{"error": map[string]string{"type": "stale_weights", "message": err.Error()}}
	case err != nil:
		w.WriteHeader(http.StatusInternalServerError)
		v = map[string]any{"error": map[string]string{"message": err.Error()}}
	}
	_ = json.NewEncoder(w).Encode(v)
}

func (s *testServer) held() map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return map[string]any{"version": s.version, "checksum": s.sum, "boot": "b"}
}

// update reads the weights in the file at path, which it is given as all is on
// one machine.
func (s *testServer) update(ctx context.Context, version, path string) error {
	v, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		return err
	}
	w, err := model.NewWeights(s.dev, s.folder.shape, npu.Weights)
	if err == nil {
		err = w.Load(filepath.Dir(path))
	}
	if err != nil {
		return err
	}
	sum, err := s.engine.Publish(ctx, model.NewSnapshot(w, v))
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.version, s.sum = v, sum
	}
	return err
}

func (s *testServer) complete(r *http.Request) (any, error) {
	s.answers.Add(1)
	var asked struct {
		Prompt      []int32  `json:"prompt"`
		N           int      `json:"n"`
		Seed        uint64   `json:"seed"`
		MaxTokens   int      `json:"max_tokens"`
		Temperature float32  `json:"temperature"`
		TopP        float32  `json:"top_p"`
		TopK        int      `json:"top_k"`
		MinP        float32  `json:"min_p"`
		Stop        []string `json:"stop"`
		StopIDs     []int32  `json:"stop_token_ids"`
		Version     int64    `json:"weight_version"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		return nil, err
	}
	out, err := s.engine.Generate(r.Context(), inference.Request{PromptIDs: asked.Prompt, N: asked.N, Seed: asked.Seed, Version: asked.Version,
		Sampling: inference.Sampling{Temperature: asked.Temperature, TopP: asked.TopP, TopK: max(0, asked.TopK), MinP: asked.MinP,
			MaxTokens: asked.MaxTokens, Stop: asked.Stop, StopIDs: asked.StopIDs}})
	if err != nil {
		return nil, err
	}
	choices := make([]any, len(out))
	for i, c := range out {
		tokens := make([]string, len(c.IDs))
		for j, id := range c.IDs {
			tokens[j] = fmt.Sprintf("token_id:%d", id)
		}
		choices[i] = map[string]any{"index": i, "text": c.Text, "finish_reason": string(c.Finish), "token_ids": c.IDs, "prompt_token_ids": asked.Prompt,
			"logprobs": map[string]any{"tokens": tokens, "token_logprobs": c.Logprobs}}
	}
	return map[string]any{"choices": choices, "weight_version": out[0].Version}, nil
}

// Whoever samples, a run ends in the same weights, bit for bit: the process
// itself, one server, three servers, of which one goes away for good after a
// while, and servers together with engines of the process.
func TestServersEndInTheSameWeights(t *testing.T) {
	dir := tinyRun(t)
	want := weightsHash(t, trainTiny(t, dir, "embedded", "train.order=prompt"), 5)
	for _, c := range []struct {
		name     string
		servers  int
		dies     int64
		settings []string
		size     float64 // of the fleet at the end
	}{
		{"one", 1, 0, nil, 1},
		{"three", 3, 3, []string{"inference.min_instances=2"}, 2},
		{"mixed", 2, 0, []string{"inference.instances=1"}, 3},
	} {
		var urls []string
		for i := range c.servers {
			dies := int64(0)
			if i == 0 {
				dies = c.dies
			}
			urls = append(urls, fmt.Sprintf("%q", serveTiny(t, dir, dies).http.URL))
		}
		out := filepath.Join(dir, c.name)
		args := []string{"train", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", out), "-set", "train.order=prompt",
			"-set", "inference.kind=easyrl", "-set", "inference.endpoints=[" + strings.Join(urls, ",") + "]"}
		for _, set := range c.settings {
			args = append(args, "-set", set)
		}
		code, _, errs := command(t, args...)
		require.Zero(t, code, errs)
		require.Equal(t, want, weightsHash(t, out, 5), c.name)
		require.Equal(t, c.servers, strings.Count(errs, "(easyrl) joined"), errs)
		if c.dies > 0 {
			require.Regexp(t, `instance http://\S+: (SUSPECT|DEAD|STALE), was HEALTHY: `, errs)
		}
		steps, err := report.ReadMetrics(filepath.Join(out, report.MetricsFile))
		require.NoError(t, err)
		require.Equal(t, c.size, steps[4]["fleet/size"], errs)
		for _, values := range steps {
			require.GreaterOrEqual(t, values["idle/instances"], 0.0)
			require.Less(t, values["idle/instances"], 1.0, "the servers' work is counted")
		}
		trace, err := os.ReadFile(filepath.Join(out, report.TraceFile))
		require.NoError(t, err)
		for _, url := range urls {
			require.Contains(t, string(trace), url, "each instance has its row")
		}
		require.NoDirExists(t, filepath.Join(out, "weights"), "what was written for the servers goes with the run")
	}
}

// A run that cannot have the instances that it needs ends before it changes
// anything.
func TestServersThatAreNotThere(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	gone := serveTiny(t, dir, 0)
	gone.http.Close()
	out := filepath.Join(dir, "out")
	code, _, errs := command(t, "train", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", out),
		"-set", "inference.kind=easyrl", "-set", "inference.endpoints="+gone.http.URL)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "easyrl: 0 instances are there, expected inference.min_instances = 1: ")
	require.Contains(t, errs, gone.http.URL)
	require.Contains(t, errs, "connection refused")
	require.NoDirExists(t, out)
	code, _, errs = command(t, "train", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", out),
		"-set", "inference.kind=easyrl", "-set", "inference.endpoints=http://a", "-set", "inference.token_file="+filepath.Join(dir, "none"))
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "easyrl: inference.token_file: open ")
}
