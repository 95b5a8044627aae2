package membership

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/engine"
	"github.com/easyrl/easyrl/inference/fleet"
	"github.com/easyrl/easyrl/inference/remote"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
)

// engineServer is an engine in the place of a server.
type engineServer struct{ *engine.Engine }

func (engineServer) Probe(context.Context) error { return nil }

// notes are the lines that a run says.
type notes struct {
	mu    sync.Mutex
	lines []string
	more  chan struct{}
}

func newNotes() *notes { return &notes{more: make(chan struct{}, 1000)} }

func (n *notes) warn(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, fmt.Sprintf(format, args...))
	n.more <- struct{}{}
}

// await returns when a line contains part.
func (n *notes) await(t *testing.T, part string) {
	t.Helper()
	for {
		n.mu.Lock()
		all := strings.Join(n.lines, "\n")
		n.mu.Unlock()
		if strings.Contains(all, part) {
			return
		}
		select {
		case <-n.more:
		case <-t.Context().Done():
			t.Fatalf("no line has %q:\n%s", part, all)
		}
	}
}

func tinyShape(t *testing.T) *model.Config {
	t.Helper()
	shape, err := model.ParseConfig([]byte(`{"model_type":"qwen3","hidden_size":32,"intermediate_size":48,"num_hidden_layers":1,
		"num_attention_heads":4,"num_key_value_heads":2,"head_dim":8,"vocab_size":16,"max_position_embeddings":64,"rms_norm_eps":1e-6,
		"rope_theta":10000,"hidden_act":"silu","tie_word_embeddings":true,"eos_token_id":1,"initializer_range":0.05}`))
	require.NoError(t, err)
	return shape
}

func startEngine(shape *model.Config) func(engine.Config) (*engine.Engine, error) {
	return func(ec engine.Config) (*engine.Engine, error) {
		dev, err := cpu.Open(1)
		if err != nil {
			return nil, err
		}
		return engine.New(ec, shape, nil, dev)
	}
}

// tinyFleet are the instances of a run with settings, whose servers are engines of
// this process: those with "gone" in their URL cannot be reached.
func tinyFleet(t *testing.T, said *notes, settings ...string) *Roster {
	t.Helper()
	return tinyFleetIn(t.Context(), t, said, settings...)
}

// tinyFleetIn is tinyFleet of a run that ends with ctx.
func tinyFleetIn(ctx context.Context, t *testing.T, said *notes, settings ...string) *Roster {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.toml")
	require.NoError(t, os.WriteFile(path, []byte("[data]\nmax_prompt_tokens = 16\n[rollout]\nmax_tokens = 12\n[inference]\nmax_running = 7\n"), 0o644))
	resolved, err := configs.Load([]string{path}, append([]string{fmt.Sprintf("run.dir=%q", t.TempDir())}, settings...))
	require.NoError(t, err)
	cfg, shape := &resolved.Config, tinyShape(t)
	start := startEngine(shape)
	r, err := Start(ctx, cfg, Deps{Shape: shape, Engine: start, Bears: fleet.DefaultConfig(), Warn: said.warn, Folder: cfg.Run.Dir,
		Dial: func(_ context.Context, e remote.Endpoint) (Probed, string, error) {
			if strings.Contains(e.URL, "gone") {
				return nil, "", fmt.Errorf("instance %s: connection refused", e.URL)
			}
			inst, err := start(Engine(cfg, e.URL, shape))
			return engineServer{inst}, string(cmp.Or(e.Kind, remote.Easyrl)), err
		}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// publishTiny makes random weights a version of the fleet's.
func publishTiny(t *testing.T, r *Roster, version int64) {
	t.Helper()
	require.NoError(t, r.Publish(t.Context(), tinyWeights(t, version)))
}

func tinyWeights(t *testing.T, version int64) *model.Snapshot {
	t.Helper()
	dev, err := cpu.Open(1)
	require.NoError(t, err)
	w, err := model.NewWeights(dev, tinyShape(t), npu.Weights)
	require.NoError(t, err)
	w.Init(1)
	require.NoError(t, dev.Sync())
	return model.NewSnapshot(w, version)
}

func tinyRequest() inference.Request {
	return inference.Request{PromptIDs: []int32{3, 4}, N: 2, Seed: 7, Sampling: inference.Sampling{Temperature: 1, TopP: 1, MaxTokens: 4}}
}
