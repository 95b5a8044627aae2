package findings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference/engine"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/source"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/report/trace"
	"github.com/easyrl/easyrl/run/memory"
	trimodel "github.com/easyrl/easyrl/tri_model"
	"github.com/easyrl/easyrl/tri_model/sharded"
)

// ranked is a mesh whose ranks, apart from rank 0, have their own devices.
type ranked struct {
	*sharded.Models
	trainer npu.Device   // of rank 0's process
	others  []npu.Device // of ranks 1 and up
}

func openMesh(t *testing.T, set *parallel.Settings, shape *model.Config, cfg trimodel.Config) *ranked {
	t.Helper()
	mesh := set.Mesh()
	open := func() npu.Device {
		dev, err := cpu.Open(npu.FP32, 1)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, dev.Close()) })
		return dev
	}
	m := &ranked{trainer: open()}
	for range mesh.Size() - 1 {
		m.others = append(m.others, open())
	}
	var followers conc.WaitGroup
	t.Cleanup(followers.Wait)
	var first parallel.Transport
	for i, end := range parallel.NewLocal(mesh.Size()) {
		if i == 0 {
			first = end
		} else {
			// failures reach rank 0
			followers.Go(func() { _ = sharded.Follow(t.Context(), m.others[i-1], end, trace.Track{}) })
		}
	}
	var err error
	each := func(use source.Use) error { return source.Drawn(shape, 3, use) }
	m.Models, err = sharded.New(t.Context(), m.trainer, shape, each,
		sharded.Config{Mesh: mesh, Models: cfg, Whole: true, Reduce: set.Reduce == parallel.Sum, Zero: set.Zero,
			Sequence: set.Sequence}, []parallel.Transport{first}, 1)
	require.NoError(t, err)
	t.Cleanup(m.Close)
	return m
}

// step publishes, passes micro-batches and updates.
func (m *ranked) step(t *testing.T, number int, micros []*attention.Layout) {
	t.Helper()
	ctx := t.Context()
	_, err := m.Publish(ctx, int64(number))
	require.NoError(t, err)
	for _, l := range micros {
		require.NoError(t, m.Pass(ctx, l, int64(number), func(lp backend.Outputs) (backend.Values, error) {
			return lp.Values, nil
		}))
	}
	require.NoError(t, m.Flush(ctx))
	_, err = m.Step(ctx, backend.Update{Number: number, Scale: 1, LR: 1e-3})
	require.NoError(t, err)
}

// allocated returns the memory of each rank's part of the models, without rank 0's whole weights.
func (m *ranked) allocated() [][npu.NumPurposes]int64 {
	first := m.Allocated()
	for i, n := range m.trainer.Allocated() {
		first[i] -= n
	}
	all := [][npu.NumPurposes]int64{first}
	for _, dev := range m.others {
		held := dev.Allocated()
		for i, n := range held {
			all[0][i] -= n
		}
		all = append(all, held)
	}
	return all
}

// batches returns micro-batches of some groups.
func batches(shape *model.Config, n int) (all []*attention.Layout) {
	rng := rand.New(rand.NewPCG(1, 2))
	ids := func(n int) []int32 {
		list := make([]int32, n)
		for i := range list {
			list[i] = int32(rng.IntN(shape.VocabSize))
		}
		return list
	}
	for range n {
		l := &attention.Layout{}
		for range 4 + rng.IntN(3) {
			l.AddGroup(ids(5+rng.IntN(20)), [][]int32{ids(2 + rng.IntN(mostTokens-2)), ids(1 + rng.IntN(9))})
			l.EndLeaf()
		}
		all = append(all, l)
	}
	return all
}

// mostTokens is the most tokens of a response of batches.
const mostTokens = 32

// shape returns a decoder whose matrices need no padding, also in parts.
func shape(tied, normed bool) *model.Config {
	return &model.Config{Type: "llama", HiddenSize: 64, FFNSize: 256, Layers: 5, Heads: 8, KVHeads: 4, HeadDim: 32,
		VocabSize: 512, MaxPositions: 128,
		NormEps: 1e-6, RopeTheta: 1e4, InitStd: 0.05, BOS: -1, Tied: tied, QKNorm: normed, QKVBias: !normed}
}

// padding returns the most bytes by which a device pads the tensors of a part in an allocation of
// values of this size: each to a cache line, and sums of gradients with a mark.
func padding(part *model.Config, size int) int64 { return int64(len(part.Params()) * 16 * size) }

func TestMeshesAllocateWhatIsPredicted(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		set                              parallel.Settings
		tied, normed, reference, smaller bool
	}{
		{set: parallel.Settings{DP: 1, TP: 2, PP: 1}, normed: true},
		{set: parallel.Settings{DP: 1, TP: 4, PP: 1}, reference: true, smaller: true},
		{set: parallel.Settings{DP: 1, TP: 1, PP: 2}, tied: true},
		{set: parallel.Settings{DP: 1, TP: 1, PP: 3}, reference: true, smaller: true},
		{set: parallel.Settings{DP: 2, TP: 1, PP: 1}, reference: true},
		{set: parallel.Settings{DP: 3, TP: 1, PP: 1}, tied: true},
		{set: parallel.Settings{DP: 2, TP: 2, PP: 2}, tied: true, normed: true, reference: true, smaller: true},
		{set: parallel.Settings{DP: 2, TP: 1, PP: 1, Zero: 1}, reference: true},
		{set: parallel.Settings{DP: 3, TP: 1, PP: 2, Zero: 1}, tied: true},
		{set: parallel.Settings{DP: 2, TP: 1, PP: 1, Zero: 2}, tied: true},
		{set: parallel.Settings{DP: 2, TP: 2, PP: 2, Zero: 2}, normed: true, smaller: true},
		{set: parallel.Settings{DP: 1, TP: 2, PP: 1, Sequence: true}, normed: true, smaller: true},
		{set: parallel.Settings{DP: 1, TP: 4, PP: 2, Sequence: true}, reference: true},
		{set: parallel.Settings{DP: 1, TP: 4, PP: 1, Reduce: parallel.Sum}, reference: true, smaller: true},
		{set: parallel.Settings{DP: 1, TP: 4, PP: 1, Sequence: true, Reduce: parallel.Sum}, reference: true,
			smaller: true},
		{set: parallel.Settings{DP: 1, TP: 2, PP: 2, Sequence: true, Reduce: parallel.Sum}, normed: true},
	} {
		t.Run(fmt.Sprintf("%s zero=%d sequence=%v %s", test.set.Mesh(), test.set.Zero, test.set.Sequence,
			test.set.Reduce), func(t *testing.T) {
			t.Parallel()
			c := shape(test.tied, test.normed)
			m := openMesh(t, &test.set, c, trimodel.Config{OldPolicy: loss.Behaviour, Reference: test.reference,
				Recompute: test.smaller, Temperature: 1,
				Optim: optim.Default(), Format: optim.FixedPoint(64, 16)})
			micros := batches(c, 5)
			for step := 1; step <= 2; step++ {
				m.step(t, step, micros)
			}
			rows := 0
			for _, l := range micros {
				rows = max(rows, l.Rows(), len(l.Targets))
			}
			cfg := configs.Default()
			cfg.Parallel = test.set
			cfg.Train.MicroBatchTokens, cfg.Train.Recompute = rows, test.smaller
			if test.reference {
				cfg.Loss.Beta = 0.1
			}
			requireMemory(t, m, &cfg, c, memory.Tokens{Leaf: mostTokens + 35, Step: 100 * rows})
		})
	}
}

func requireMemory(t *testing.T, m *ranked, cfg *configs.Config, c *model.Config, tokens memory.Tokens) {
	t.Helper()
	need := memory.Of(cfg, c, engine.Config{MaxRunning: 1}, tokens, false, parallel.Process{Size: 1})
	mesh := cfg.Parallel.Mesh()
	require.Len(t, need.Ranks, mesh.Size())
	require.Equal(t, mesh.Size(), need.Here)
	within := func(predicted, allocated, slack int64, what string, rank int) {
		t.Helper()
		require.LessOrEqual(t, predicted, allocated, "%s of rank %d", what, rank)
		require.LessOrEqual(t, allocated, predicted+slack, "%s of rank %d", what, rank)
	}
	var sum memory.Rank
	for i, held := range m.allocated() {
		part, err := c.Shard(mesh, mesh.Coord(i), cfg.Parallel.Sequence)
		require.NoError(t, err)
		r := need.Ranks[i]
		within(r.Weights, held[npu.Weights], int64(need.Copies)*padding(part, 4), "weights", i)
		within(r.Moments, held[npu.Optimizer], 2*padding(part, 4), "moments", i)
		within(r.Gradients, held[npu.Gradients], padding(part, 8), "gradients", i)
		// Index arrays and rotary positions are not predicted. The order of events decides how
		// many micro-batches a rank holds.
		const small = 64 << 10
		require.LessOrEqual(t, held[npu.Activations], r.Activations+int64(r.InFlight)*small,
			"activations of rank %d", i)
		if held[npu.Activations] > 0 || mesh.DP == 1 { // of several replicas, one may get no micro-batch
			require.Greater(t, 2*held[npu.Activations], r.Pass, "activations of rank %d", i)
		}
		sum.Weights += r.Weights
		sum.Gradients += r.Gradients
		sum.Moments += r.Moments
		sum.Activations += r.Activations
	}
	require.Equal(t, memory.Rank{Weights: need.Weights, Gradients: need.Gradients, Moments: need.Moments,
		Activations: need.Activations}, sum)
	within(need.Whole, m.trainer.Allocated()[npu.Weights], 2*padding(c, 4), "whole weights", 0)
	alone := memory.Of(cfg, c, engine.Config{MaxRunning: 1}, tokens, false, parallel.Process{Size: mesh.Size()})
	require.Equal(t, need.Ranks, alone.Ranks)
	require.Equal(t, need.Ranks[0].Weights, alone.Weights)
	require.Equal(t, need.Whole, alone.Whole)
	require.Less(t, alone.Certain(), need.Certain())
}

// described returns the findings about a mesh, with the memory of rank 0's process.
func described(t *testing.T, cfg *configs.Config, c *model.Config, p parallel.Process) *Findings {
	t.Helper()
	var tokens memory.Tokens
	tokens.AddPrompt(30, 128, cfg)
	f := &Findings{Task: "train", OK: true}
	require.NoError(t, f.AddRanks(cfg, c))
	need := memory.Of(cfg, c, engine.Config{MaxRunning: 1}, tokens, false, p)
	f.Memory = &Memory{Need: need, Certain: need.Certain(), Most: need.Max()}
	return f
}

func TestMeshText(t *testing.T) {
	t.Parallel()
	cfg := configs.Default()
	cfg.Parallel.TP, cfg.Parallel.PP, cfg.Inference.Instances = 2, 2, 0
	text := func(p parallel.Process) string {
		var out strings.Builder
		require.NoError(t, described(t, &cfg, shape(false, true), p).WriteText(&out))
		return out.String()
	}
	const head, memory, tail = `
# ranks: 4, counted from 0 like all indices
# rank 0: dp 0, tp 0, pp 0; layers 0-2, query heads 0-3, key-value heads 0-1, feed-forward 0-127, vocabulary ` +
		`0-255; trainer, queue, rewards, rollouts, metrics, checkpoints, pages, embedding, publishing
# rank 1: dp 0, tp 1, pp 0; layers 0-2, query heads 4-7, key-value heads 2-3, feed-forward 128-255, vocabulary ` +
		`256-511; embedding, publishing
# rank 2: dp 0, tp 0, pp 1; layers 3-4, query heads 0-3, key-value heads 0-1, feed-forward 0-127, vocabulary ` +
		`0-255; log-probabilities, publishing
# rank 3: dp 0, tp 1, pp 1; layers 3-4, query heads 4-7, key-value heads 2-3, feed-forward 128-255, vocabulary ` +
		`256-511; log-probabilities, publishing
# memory of ranks 0-1 (estimated, each): weights 1.9 MiB, gradients 1.3 MiB, optimizer 1.3 MiB, activations up ` +
		`to 114.8 MiB (2 micro-batches of 4096 rows), plus 1.9 MiB while a checkpoint is written
# memory of ranks 2-3 (estimated, each): weights 1.3 MiB, gradients 0.9 MiB, optimizer 0.9 MiB, activations up ` +
		`to 49.5 MiB (1 micro-batch of 4096 rows), plus 1.3 MiB while a checkpoint is written
`, `# memory of rank 0's process (estimated): 4 ranks
# memory of the weights that servers receive: 0.2 MiB
# memory in total (estimated): 343.6 MiB, plus 6.5 MiB while a checkpoint is written
`, `# ok: easyrl train can start
`
	require.Equal(t, head+memory+tail, text(parallel.Process{Size: 1}))
	require.Equal(t, head+`# memory of rank 0's process (estimated): 1 rank
# memory of the weights that servers receive: 0.2 MiB
# memory of this process in total (estimated): 119.4 MiB, plus 2.0 MiB while a checkpoint is written
`+tail, text(parallel.Process{Size: 4}))
	cfg.Inference.Instances = 1
	require.Contains(t, text(parallel.Process{Size: 1}),
		"\n# memory of rank 0's process (estimated): 4 ranks; 2 versions of the whole weights, 4.3 MiB\n")
	cfg.Parallel.DP = 5
	long := text(parallel.Process{Size: 1})
	require.Contains(t, long, "# rank 15: ")
	require.NotContains(t, long, "# rank 16: ")
	require.Contains(t, long, "# ranks: 4 more, see -json\n# memory of ranks 0-1 (estimated, each): ")
	cfg.Parallel = configs.Default().Parallel
	f := described(t, &cfg, shape(false, true), parallel.Process{Size: 1})
	require.Empty(t, f.Memory.Ranks)
}

// JSON describes all ranks.
func TestMeshJSON(t *testing.T) {
	t.Parallel()
	cfg := configs.Default()
	cfg.Parallel.DP, cfg.Parallel.TP, cfg.Parallel.PP = 5, 2, 2
	var out bytes.Buffer
	require.NoError(t, described(t, &cfg, shape(false, true), parallel.Process{Size: 1}).WriteJSON(&out))
	var found struct {
		Ranks  []map[string]any
		Memory struct {
			Ranks []memory.Rank
			Here  int `json:"ranks_here"`
		}
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &found))
	require.Len(t, found.Ranks, 20)
	require.Len(t, found.Memory.Ranks, 20)
	require.Equal(t, 20, found.Memory.Here)
	require.Equal(t, map[string]any{"rank": 19.0, "dp": 4.0, "tp": 1.0, "pp": 1.0,
		"layers":          map[string]any{"first": 3.0, "last": 4.0},
		"query_heads":     map[string]any{"first": 4.0, "last": 7.0},
		"key_value_heads": map[string]any{"first": 2.0, "last": 3.0},
		"feed_forward":    map[string]any{"first": 128.0, "last": 255.0},
		"vocabulary":      map[string]any{"first": 256.0, "last": 511.0},
		"duties":          []any{"log-probabilities"}}, found.Ranks[19])
}

func TestHosts(t *testing.T) {
	t.Parallel()
	cfg := configs.Default()
	require.Equal(t, []string{"trainer", "instances", "queue", "rewards", "rollouts", "metrics", "checkpoints",
		"pages"}, hosts(&cfg, false))
	require.Equal(t, []string{"trainer", "metrics", "checkpoints", "pages"}, hosts(&cfg, true))
}
