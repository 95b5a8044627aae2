package membership

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/engine"
	"github.com/easyrl/easyrl/inference/fleet"
	"github.com/easyrl/easyrl/inference/remote"
	"github.com/easyrl/easyrl/internal/notice"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/arch"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
)

// engineServer is an engine that takes the place of a server.
type engineServer struct {
	*engine.Engine
	kind string
}

func (s engineServer) Kind() remote.Kind { return remote.Kind{Name: s.kind} }

func (engineServer) Probe(context.Context) error { return nil }

func (engineServer) Claim(context.Context) error { return nil }

func (s engineServer) Pulse(context.Context) (string, error) {
	return fmt.Sprint(s.Stats().Tokens), nil
}

// notes collects the lines that a run writes.
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
	shape, err := arch.ParseConfig(
		[]byte(`{"model_type":"qwen3","hidden_size":32,"intermediate_size":48,"num_hidden_layers":1,
		"num_attention_heads":4,"num_key_value_heads":2,"head_dim":8,"vocab_size":16,` +
			`"max_position_embeddings":64,"rms_norm_eps":1e-6,
		"rope_theta":10000,"hidden_act":"silu","tie_word_embeddings":true,"eos_token_id":1,"initializer_range":0.05}`))
	require.NoError(t, err)
	return shape
}

func startEngine(t *testing.T, id string) *engine.Engine {
	t.Helper()
	e, err := newEngine(tinyShape(t), id)
	require.NoError(t, err)
	return e
}

func newEngine(shape *model.Config, id string) (*engine.Engine, error) {
	dev, err := cpu.Open(npu.FP32, 1)
	if err != nil {
		return nil, err
	}
	return engine.New(engine.Config{ID: id, MaxRunning: 7, Context: 28}, shape, nil, dev)
}

// setup is what differs between the runs of the tests.
type setup struct {
	engines      int               // of the run's process
	endpoints    []remote.Endpoint // configured
	minInstances int               // 0 is 1
	fixed        bool              // no server may join later
	watch        string            // a file, or "none" for a list that only the test changes
	dir          string            // empty is a temporary folder
	dial         Dialer            // nil is dialEngine
}

// connected returns open's membership after Connect.
func connected(ctx context.Context, t *testing.T, said *notes, s setup) *Membership {
	t.Helper()
	m := open(ctx, t, said, s)
	require.NoError(t, m.Connect(ctx))
	return m
}

// open returns the membership of a run.
func open(ctx context.Context, t *testing.T, said *notes, s setup) *Membership {
	t.Helper()
	shape := tinyShape(t)
	announcer := NewAnnouncer(ctx, func(_ notice.Kind, format string, args ...any) { said.warn(format, args...) })
	fc := fleet.DefaultConfig()
	fc.Vocab, fc.MinServing, fc.Notify = shape.VocabSize, max(1, s.minInstances), announcer.FleetEvent
	f, err := fleet.New(fc)
	require.NoError(t, err)
	for i := range s.engines {
		require.NoError(t, f.Add(ctx, startEngine(t, fmt.Sprintf("embedded-%d", i+1))))
	}
	c := Config{Endpoints: s.endpoints, Kind: remote.EasyRL, Watch: s.watch, MinInstances: fc.MinServing,
		Wait: fc.EmptyWait, MayJoin: !s.fixed,
		Dir: cmp.Or(s.dir, t.TempDir()), Dial: s.dial}
	if c.Dial == nil {
		c.Dial = dialEngine(shape)
	}
	m, err := New(ctx, c, f, announcer)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// dialEngine returns a Dialer that starts an engine instead of a server. One with "gone" in
// its URL does not answer.
func dialEngine(shape *model.Config) Dialer {
	return func(_ context.Context, e remote.Endpoint) (remote.Server, error) {
		if strings.Contains(e.URL, "gone") {
			return nil, fmt.Errorf("instance %s: connection refused", e.URL)
		}
		inst, err := newEngine(shape, e.URL)
		return engineServer{inst, cmp.Or(e.Kind, remote.EasyRL)}, err
	}
}

// dialThen returns dialEngine with wrap around each engine.
func dialThen(t *testing.T, wrap func(url string, e engineServer) remote.Server) Dialer {
	t.Helper()
	dial := dialEngine(tinyShape(t))
	return func(ctx context.Context, e remote.Endpoint) (remote.Server, error) {
		c, err := dial(ctx, e)
		if err != nil {
			return nil, err
		}
		return wrap(e.URL, c.(engineServer)), nil
	}
}

// publishTiny publishes random weights under a version.
func publishTiny(t *testing.T, m *Membership, version int64) {
	t.Helper()
	require.NoError(t, m.fleet.Publish(t.Context(), tinyWeights(t, version)))
}

func tinyWeights(t *testing.T, version int64) *model.Snapshot {
	t.Helper()
	dev, err := cpu.Open(npu.FP32, 1)
	require.NoError(t, err)
	w, err := model.NewWeights(dev, tinyShape(t), npu.Weights)
	require.NoError(t, err)
	require.NoError(t, w.Init(1))
	require.NoError(t, dev.Sync())
	return model.NewSnapshot(w, version)
}

func tinyRequest() inference.Request {
	return inference.Request{PromptIDs: []int32{3, 4}, N: 2, Seed: 7,
		Sampling: inference.Sampling{Temperature: 1, TopP: 1, MaxTokens: 4}}
}
