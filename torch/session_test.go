package torch

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/backend/session"
	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/arch"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/torch/fake"
	"github.com/easyrl/easyrl/torch/wire"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

const temperature = 0.9

const shape = `{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 24, ` +
	`"intermediate_size": 40,
"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "vocab_size": 30,
"max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "initializer_range": 0.2, "hidden_act": "silu",
"tie_word_embeddings": true}`

// start writes a model folder.
func start(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(shape), 0o644))
	with(t, dir, func(_ npu.Device, w *model.Weights) {
		require.NoError(t, w.Init(1))
		require.NoError(t, checkpoint.WriteFile(filepath.Join(dir, "model.safetensors"), w.Sources(), nil))
	})
	return dir
}

// with calls use with weights of a folder's shape.
func with(t *testing.T, dir string, use func(dev npu.Device, w *model.Weights)) {
	t.Helper()
	cfg, err := arch.ReadConfig(dir)
	require.NoError(t, err)
	dev, err := cpu.Open(npu.FP32, 1)
	require.NoError(t, err)
	w, err := model.NewWeights(dev, cfg, npu.Weights)
	require.NoError(t, err)
	use(dev, w)
	w.Free()
	require.NoError(t, dev.Close())
}

// load returns the weights that ranks have written to a folder.
func load(t *testing.T, dir string) (all []float32) {
	t.Helper()
	with(t, start(t), func(_ npu.Device, w *model.Weights) {
		require.NoError(t, w.Load(dir))
		all = values(w)
	})
	return all
}

// adam returns the optimizer's settings.
func adam() optim.Config {
	cfg := optim.Default()
	cfg.WeightDecay = 0.01
	return cfg
}

// configure returns a session's configuration for ranks that the test starts.
func configure(dir string, into string) Config {
	o := adam()
	return Config{Token: "secret", Model: dir, Reference: dir, Dir: into, Temperature: temperature,
		Silence:   10 * time.Second,
		Optimizer: wire.Optimizer{Beta1: optim.Beta1, Beta2: o.Beta2, Eps: optim.Eps, WeightDecay: o.WeightDecay}}
}

// openTCP starts a session, and its ranks over TCP.
func openTCP(t *testing.T, cfg Config, ranks *fake.Ranks) *Session {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	cfg.Say = func(_ string, args ...any) {
		ranks.Token, ranks.World = cfg.Token, max(1, cfg.DP)*max(1, cfg.TP)
		ranks.Dial = func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", args[1].(string))
		}
		running.Go(func() { ranks.Run(ctx) })
	}
	s, err := Open(t.Context(), cfg)
	t.Cleanup(func() {
		if s != nil {
			s.Close()
		}
		cancel()
		running.Wait()
	})
	require.NoError(t, err)
	return s
}

// batch returns the micro-batches of an update.
func batch(update int) []*attention.Layout {
	random := rand.New(rand.NewPCG(uint64(update), 7))
	out := make([]*attention.Layout, 5)
	for i := range out {
		tokens := func(n int) []int32 {
			ids := make([]int32, n)
			for k := range ids {
				ids[k] = random.Int32N(29)
			}
			return ids
		}
		out[i] = &attention.Layout{}
		root := out[i].Add(-1, tokens(2+random.IntN(6)), false)
		for range 1 + random.IntN(3) {
			out[i].AddResponse(root, tokens(1+random.IntN(5)))
		}
	}
	return out
}

// objective is a loss's derivative.
func objective(lp backend.Outputs) backend.Values {
	out := make([]float32, len(lp.Values[backend.Policy]))
	for i := range out {
		out[i] = -1 - 0.25*lp.Values[backend.Policy][i] + 0.125*lp.Values[backend.Reference][i]
	}
	return backend.Values{backend.Policy: out}
}

// learner is what train uses of backend.Models.
type learner interface {
	Pass(ctx context.Context, l *attention.Layout, derive backend.Derive) error
	Poll(ctx context.Context) error
	Flush(ctx context.Context) error
	Step(ctx context.Context, u backend.Update) (norm float64, err error)
	CheckFinite() error
}

// oneRank is a learner whose weights are the versions' too.
type oneRank struct{ *trimodel.Models }

func (m oneRank) Pass(ctx context.Context, l *attention.Layout, derive backend.Derive) error {
	return m.Models.Pass(ctx, l, 0, derive)
}

// train makes the first updates.
func train(t *testing.T, m learner, updates int) {
	t.Helper()
	for n := 1; n <= updates; n++ {
		advance(t, m, n)
	}
}

// advance makes an update and counts the calls of each derive.
func advance(t *testing.T, m learner, n int) {
	t.Helper()
	calls := make([]int, len(batch(n)))
	for i, l := range batch(n) {
		require.NoError(t, m.Pass(t.Context(), l, func(lp backend.Outputs) (backend.Values, error) {
			calls[i]++
			require.Len(t, lp.Values[backend.Policy], len(l.Targets))
			require.Len(t, lp.Entropy, len(l.Targets))
			return objective(lp), nil
		}))
		if i%2 == 0 {
			require.NoError(t, m.Poll(t.Context()))
		}
	}
	require.NoError(t, m.Flush(t.Context()))
	for i, n := range calls {
		require.Equal(t, 1, n, "derive of micro-batch %d", i)
	}
	norm, err := m.Step(t.Context(), backend.Update{Number: n, Scale: 0.05, LR: 1e-2, Clip: 0.5})
	require.NoError(t, err)
	require.Positive(t, norm)
	require.NoError(t, m.CheckFinite())
}

// expected returns the weights after some updates by package tri_model.
func expected(t *testing.T, updates int) (all []float32) {
	t.Helper()
	dir := start(t)
	cfg, err := arch.ReadConfig(dir)
	require.NoError(t, err)
	dev, err := cpu.Open(npu.FP32, 1)
	require.NoError(t, err)
	w, err := model.NewWeights(dev, cfg, npu.Weights)
	require.NoError(t, err)
	require.NoError(t, w.Load(dir))
	m, err := trimodel.New(dev, w, trimodel.Config{OldPolicy: "behaviour", Reference: true, Temperature: temperature,
		Optim:  adam(),
		Format: optim.FixedPoint(1e6, 1000)}) // as package fake
	require.NoError(t, err)
	train(t, oneRank{m}, updates)
	all = values(m.Policy.Weights)
	m.Close()
	require.NoError(t, dev.Close())
	return all
}

func values(w *model.Weights) []float32 {
	var all []float32
	for _, s := range w.Sources() {
		part := make([]float32, checkpoint.Tensor{Shape: s.Shape}.Len())
		s.Write(part)
		all = append(all, part...)
	}
	return all
}

// written returns the weights that the ranks write.
func written(t *testing.T, s *Session) []float32 {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, s.Write(t.Context(), wire.Weights, dir))
	return load(t, dir)
}

// requireClose checks weights that were trained at a learning rate of 1e-2 a step.
func requireClose(t *testing.T, want, got []float32) {
	t.Helper()
	require.Len(t, got, len(want))
	worst := 0.0
	for i := range want {
		worst = max(worst, math.Abs(float64(want[i]-got[i])))
	}
	require.Less(t, worst, 1e-4)
}

// One rank gives the bits of package tri_model.
func TestOneRankEqualsTriModel(t *testing.T) {
	t.Parallel()
	const updates = 12 // a recovery point in between
	dir := start(t)
	s := openTCP(t, configure(dir, t.TempDir()), &fake.Ranks{})
	train(t, s, updates)
	require.Equal(t, expected(t, updates), written(t, s))
	require.Equal(t, updates-session.RecoveryEvery, s.Kept())
}

// Replicas agree with one rank to rounding, and in lockstep receive the same sequence of
// messages.
func TestReplicas(t *testing.T) {
	t.Parallel()
	want := expected(t, 4)
	for _, test := range []struct {
		dp, tp int
		mode   string
	}{{2, 1, wire.Free}, {4, 1, wire.Free}, {1, 2, wire.Free}, {2, 2, wire.Lockstep}, {3, 1, wire.Lockstep}} {
		t.Run(fmt.Sprintf("dp %d tp %d %s", test.dp, test.tp, test.mode), func(t *testing.T) {
			t.Parallel()
			dir := start(t)
			cfg := configure(dir, t.TempDir())
			cfg.DP, cfg.TP, cfg.Mode = test.dp, test.tp, test.mode
			ranks := &fake.Ranks{}
			s := openTCP(t, cfg, ranks)
			train(t, s, 4)
			requireClose(t, want, written(t, s))
			if test.mode == wire.Lockstep {
				received := ranks.Received()
				for _, kinds := range received {
					require.Equal(t, received[0], kinds)
				}
			}
		})
	}
}

// A session describes its ranks and what they hold.
func TestRanks(t *testing.T) {
	t.Parallel()
	dir, into := start(t), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cfg := configure(dir, into)
		cfg.DP = 2
		st, err := play(t, cfg, &fake.Ranks{})
		defer st.end()
		require.NoError(t, err)
		ranks := st.Ranks()
		require.Len(t, ranks, 2)
		require.Equal(t, 1, ranks[1].Hello.Rank)
		require.Empty(t, ranks[1].Hello.Token)
		n := 4 * ranks[0].Ready.Parameters
		require.Equal(t, [npu.NumPurposes]int64{npu.Weights: 2 * n, npu.Gradients: 2 * n, npu.Optimizer: 4 * n},
			st.Allocated())
		advance(t, st, 1)
		require.Positive(t, st.Allocated()[npu.Activations])
		require.Equal(t, 64, st.MaxPositions())
		var l attention.Layout
		root := l.Add(-1, make([]int32, 4), false)
		l.AddResponse(root, make([]int32, 3)) // two rows after four
		l.AddResponse(root, make([]int32, 1)) // no row
		keys := float64(1+2+3+4) + 5 + 6
		require.Equal(t, 6*6.0+4*4+2*keys, st.FLOPs(&l))
	})
}

func TestConfigFaults(t *testing.T) {
	t.Parallel()
	_, err := Open(t.Context(), Config{DP: -1})
	require.ErrorContains(t, err, "dp")
	require.ErrorContains(t, err, "token is empty, expected the one that ranks send")
	require.ErrorContains(t, err, `model is "" and dir ""`)
	_, err = Open(t.Context(), Config{Listen: "nowhere"})
	require.ErrorContains(t, err, "torch: listen for ranks: ")
}
