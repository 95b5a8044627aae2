package sharded

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/internal/soak"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/source"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/parallel"
	trimodel "github.com/easyrl/easyrl/tri_model"
	"github.com/easyrl/easyrl/tri_model/sharded/reduce"
)

// shapes are decoders with four key-value heads whose feed-forward size and vocabulary do not
// divide evenly.
func shapes() map[string]*model.Config {
	base := model.Config{HiddenSize: 40, FFNSize: 150, Layers: 3, Heads: 8, KVHeads: 4, HeadDim: 10, VocabSize: 157,
		MaxPositions: 128, NormEps: 1e-6, RopeTheta: 1e4, InitStd: 0.1, BOS: -1}
	llama, qwen2, qwen3 := base, base, base
	llama.Type, qwen2.Type, qwen3.Type = "llama", "qwen2", "qwen3"
	qwen2.QKVBias, qwen2.Tied = true, true
	qwen3.QKNorm = true
	return map[string]*model.Config{"llama": &llama, "qwen2": &qwen2, "qwen3": &qwen3}
}

func openCPU(t testing.TB, threads int) npu.Device {
	t.Helper()
	return openIn(t, npu.FP32, threads)
}

func openIn(t testing.TB, n npu.Numerics, threads int) npu.Device {
	t.Helper()
	dev, err := cpu.Open(n, threads)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	return dev
}

func start(t testing.TB, dev npu.Device, c *model.Config) *model.Weights {
	t.Helper()
	w, err := model.NewMasters(dev, c)
	require.NoError(t, err)
	require.NoError(t, w.Init(7))
	return w
}

// drawn passes on the weights of start.
func drawn(c *model.Config) func(source.Use) error {
	return func(use source.Use) error { return source.Drawn(c, 7, use) }
}

func config() trimodel.Config {
	o := optim.Default()
	o.LR = 1e-3
	return trimodel.Config{OldPolicy: loss.Behaviour, Temperature: 0.9, Optim: o, Format: optim.FixedPoint(64, 16)}
}

func open(t testing.TB, c *model.Config, cfg Config) *Models {
	t.Helper()
	return openOver(t, c, cfg, func(end *parallel.Local) parallel.Transport { return end })
}

// openOver opens models whose ranks use what over returns for their transports.
func openOver(t testing.TB, c *model.Config, cfg Config, over func(*parallel.Local) parallel.Transport) *Models {
	t.Helper()
	dev := openIn(t, cfg.Models.Numerics, 1)
	var ends []parallel.Transport
	for _, end := range parallel.NewLocal(cfg.Mesh.Size()) {
		ends = append(ends, over(end))
	}
	m, err := New(t.Context(), dev, c, drawn(c), cfg, ends, 1)
	require.NoError(t, err)
	t.Cleanup(m.Close)
	return m
}

// layouts returns n micro-batches.
func layouts(c *model.Config, seed uint64, n int) (all []*attention.Layout) {
	draw(c, seed, n, func() *attention.Layout {
		all = append(all, &attention.Layout{})
		return all[len(all)-1]
	})
	return all
}

// whole returns one micro-batch with all leaves of layouts.
func whole(c *model.Config, seed uint64, n int) []*attention.Layout {
	l := &attention.Layout{}
	draw(c, seed, n, func() *attention.Layout { return l })
	return []*attention.Layout{l}
}

// draw adds random leaves, in n parts, each to the layout that next returns.
func draw(c *model.Config, seed uint64, n int, next func() *attention.Layout) {
	rng := rand.New(rand.NewPCG(seed, 2))
	ids := func(n int) []int32 {
		out := make([]int32, n)
		for i := range out {
			out[i] = int32(rng.IntN(c.VocabSize))
		}
		return out
	}
	for i := range n {
		l := next()
		for range 1 + rng.IntN(3) {
			l.AddGroup(ids(3+rng.IntN(9)), [][]int32{ids(1 + rng.IntN(20)), ids(1 + rng.IntN(20))})
			if i == 0 { // a leaf of two units
				l.AddGroup(ids(5), slices.Repeat([][]int32{ids(20)}, npu.UnitRows/16))
			}
			l.EndLeaf()
		}
	}
}

// train takes steps and returns the folder of a checkpoint.
func train(t testing.TB, m backend.Models, c *model.Config, from, to int) string {
	t.Helper()
	return trainOn(t, m, c, from, to, layouts)
}

// trainOn is train with other micro-batches than layouts.
func trainOn(t testing.TB, m backend.Models, c *model.Config, from, to int,
	cut func(c *model.Config, seed uint64, n int) []*attention.Layout) string {
	t.Helper()
	ctx := t.Context()
	for step := from; step <= to; step++ {
		w, err := m.Publish(ctx, int64(step))
		require.NoError(t, err)
		require.NotEmpty(t, w.Checksum())
		for range 2 { // minibatches
			for _, l := range cut(c, uint64(step), 7) {
				require.NoError(t, m.Pass(ctx, l, int64(step), func(lp backend.Outputs) (backend.Values, error) {
					gradient := make([]float32, len(lp.Values[backend.Policy]))
					for i, p := range lp.Values[backend.Policy] {
						gradient[i] = p + 0.5*lp.Values[backend.OldPolicy][i] - lp.Entropy[i]/3
						if lp.Values[backend.Reference] != nil {
							gradient[i] += lp.Values[backend.Reference][i] / 4
						}
						if lp.Values[backend.Sampler] != nil {
							gradient[i] -= lp.Values[backend.Sampler][i] / 8
						}
					}
					return backend.Values{backend.Policy: gradient}, nil
				}))
			}
			require.NoError(t, m.Flush(ctx))
			norm, err := m.Step(ctx, backend.Update{Number: 2*step - 1, Scale: 1.0 / 64, LR: 1e-3, Clip: 0.5})
			require.NoError(t, err)
			require.Positive(t, norm)
			require.NoError(t, m.CheckFinite())
		}
	}
	write, err := m.Capture(ctx, to)
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, write(dir))
	return dir
}

// hashOf returns a hash of all files of a checkpoint.
func hashOf(t testing.TB, dir string) string {
	t.Helper()
	h := sha256.New()
	require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		h.Write([]byte(filepath.Base(path)))
		h.Write(b)
		return err
	}))
	return fmt.Sprintf("%x", h.Sum(nil))
}

// one returns the checkpoint of one rank.
func one(t testing.TB, c *model.Config, cfg trimodel.Config, steps int) string {
	t.Helper()
	dev := openIn(t, cfg.Numerics, 1)
	m, err := trimodel.New(dev, start(t, dev, c), cfg)
	require.NoError(t, err)
	defer m.Close()
	return train(t, m, c, 1, steps)
}

// settings are the ways in which replicas divide their state and tensor ranks their rows.
func settings() map[string]Config {
	return map[string]Config{"plain": {}, "zero": {Zero: 1}, "sequence": {Sequence: true},
		"both": {Zero: 1, Sequence: true}, "zero 2": {Zero: 2},
		"zero 2 and sequence": {Zero: 2, Sequence: true}}
}

// Weights and moments of all meshes have the bits of one rank. Under the race detector, each mesh
// and setting runs with one decoder.
func TestMeshesEndInTheSameBits(t *testing.T) {
	steps := 2 // the second one has an old policy other than the policy
	if soak.Long() {
		steps = 3
	}
	names := slices.Sorted(maps.Keys(shapes()))
	for i, name := range names {
		c := shapes()[name]
		cfg := config()
		cfg.Reference = name == "llama"
		if name == "qwen3" {
			cfg.OldPolicy = loss.PreviousStep
		}
		want := hashOf(t, one(t, c, cfg, steps))
		for _, s := range [][3]int{{1, 1, 1}, {2, 1, 1}, {3, 1, 1}, {1, 2, 1}, {1, 4, 1}, {1, 1, 2}, {1, 1, 3},
			{1, 2, 2}, {2, 2, 2}} {
			mesh := parallel.Mesh{DP: s[0], TP: s[1], PP: s[2]}
			for n, setting := range slices.Sorted(maps.Keys(settings())) {
				own := settings()[setting]
				if own.Zero > 0 && mesh.DP == 1 || own.Sequence && mesh.TP == 1 {
					continue
				}
				if soak.Race && (mesh.Size()+n)%len(names) != i {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%s", name, mesh, setting), func(t *testing.T) {
					t.Parallel()
					own.Mesh, own.Models = mesh, cfg
					require.Equal(t, want, hashOf(t, train(t, open(t, c, own), c, 1, steps)))
				})
			}
		}
	}
}

// In npu.BF16 ranks also divide master weights.
func TestMeshesInBF16(t *testing.T) {
	t.Parallel()
	c := shapes()["qwen3"]
	c.HeadDim = 16 // ranks divide the terms of products at multiples of 16
	cfg := config()
	cfg.Numerics, cfg.Reference, cfg.OldPolicy = npu.BF16, true, loss.PreviousStep
	want := hashOf(t, one(t, c, cfg, 2))
	for name, own := range map[string]Config{
		"dp2":              {Mesh: parallel.Mesh{DP: 2, TP: 1, PP: 1}},
		"dp2, zero 1":      {Mesh: parallel.Mesh{DP: 2, TP: 1, PP: 1}, Zero: 1},
		"dp3, zero 2":      {Mesh: parallel.Mesh{DP: 3, TP: 1, PP: 1}, Zero: 2},
		"tp2":              {Mesh: parallel.Mesh{DP: 1, TP: 2, PP: 1}},
		"tp2, sequence":    {Mesh: parallel.Mesh{DP: 1, TP: 2, PP: 1}, Sequence: true},
		"pp2":              {Mesh: parallel.Mesh{DP: 1, TP: 1, PP: 2}},
		"dp2, tp2 and pp2": {Mesh: parallel.Mesh{DP: 2, TP: 2, PP: 2}, Zero: 2, Sequence: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own.Models = cfg
			require.Equal(t, want, hashOf(t, train(t, open(t, c, own), c, 1, 2)))
		})
	}
}

// The heads of a unit share its limit in norms of queries and keys, on a rank with some of the heads too.
func TestTerms(t *testing.T) {
	t.Parallel()
	c := shapes()["qwen3"]
	part, err := c.Shard(parallel.Mesh{DP: 1, TP: 2, PP: 1}, parallel.Coord{TP: 1}, false)
	require.NoError(t, err)
	dev := openCPU(t, 1)
	for _, shape := range []*model.Config{c, part} {
		w := start(t, dev, shape)
		pieces := reduce.Pieces(w.Params, parallel.Mesh{DP: 1, TP: 1, PP: 1}, parallel.Coord{}, 0)
		s, err := trimodel.NewSet(dev, w, config(), pieces, nil)
		require.NoError(t, err)
		split := 0
		for _, p := range s.Policy.Params() {
			want := 1
			if strings.Contains(p.Name, "q_norm") || strings.Contains(p.Name, "k_norm") {
				want = 8
				split++
			}
			require.Equal(t, want, p.Terms, p.Name)
		}
		require.Equal(t, 6, split)
		s.Close()
	}
}

// An ordinary all-reduce of partial sums gives nearly the same weights, and the same ones again, in whatever
// micro-batches.
func TestReduce(t *testing.T) {
	t.Parallel()
	c := shapes()["qwen3"]
	want := valuesOfCheckpoint(t, one(t, c, config(), 3))
	for _, sequence := range []bool{false, true} {
		cfg := Config{Mesh: parallel.Mesh{DP: 1, TP: 2, PP: 1}, Models: config(), Reduce: true, Sequence: sequence}
		dir := train(t, open(t, c, cfg), c, 1, 3)
		got, differ := valuesOfCheckpoint(t, dir), 0
		for i, v := range want {
			require.InDelta(t, v, got[i], 2e-2)
			if v != got[i] {
				differ++
			}
		}
		require.Positive(t, differ, "sums in another order")
		require.Equal(t, hashOf(t, dir), hashOf(t, train(t, open(t, c, cfg), c, 1, 3)))
		require.Equal(t, hashOf(t, dir), hashOf(t, trainOn(t, open(t, c, cfg), c, 1, 3, whole)),
			"sequence %v", sequence)
	}
}

// valuesOfCheckpoint returns all weights of a checkpoint.
func valuesOfCheckpoint(t *testing.T, dir string) (all []float32) {
	t.Helper()
	f, err := checkpoint.OpenFile(filepath.Join(dir, "model.safetensors"))
	require.NoError(t, err)
	defer f.Close()
	for _, name := range f.Names() {
		tensor, _ := f.Tensor(name)
		values := make([]float32, tensor.Len())
		require.NoError(t, tensor.ReadAt(values, 0))
		all = append(all, values...)
	}
	return all
}

// A checkpoint of one mesh continues on any other.
func TestRestoreOnAnotherMesh(t *testing.T) {
	t.Parallel()
	for _, n := range []npu.Numerics{npu.FP32, npu.BF16} {
		t.Run(n.String(), func(t *testing.T) {
			t.Parallel()
			testRestore(t, n)
		})
	}
}

func testRestore(t *testing.T, n npu.Numerics) {
	c, cfg := shapes()["qwen2"], config()
	c.HeadDim = 16
	cfg.OldPolicy, cfg.Numerics = loss.PreviousStep, n
	want := hashOf(t, one(t, c, cfg, 4))
	dir := train(t, open(t, c, Config{Mesh: parallel.Mesh{DP: 1, TP: 2, PP: 1}, Models: cfg}), c, 1, 1)
	for i, own := range []Config{{Mesh: parallel.Mesh{DP: 1, TP: 1, PP: 2}},
		{Mesh: parallel.Mesh{DP: 2, TP: 1, PP: 1}, Zero: 1}} {
		own.Models = cfg
		m := open(t, c, own)
		require.NoError(t, m.Restore(t.Context(), dir, i+1, 0))
		dir = train(t, m, c, i+2, i+2)
	}
	dev := openIn(t, n, 1)
	m, err := trimodel.New(dev, start(t, dev, c), cfg)
	require.NoError(t, err)
	defer m.Close()
	require.NoError(t, m.Restore(t.Context(), dir, 3, 0))
	require.Equal(t, want, hashOf(t, train(t, m, c, 4, 4)))
}

// Replicas divide moments with ZeRO-1 and also the gradients of layers with ZeRO-2, apart from the
// two layers that a backward pass works on.
func TestZeroDividesMemory(t *testing.T) {
	t.Parallel()
	deep := *shapes()["llama"]
	deep.Layers, deep.HiddenSize, deep.HeadDim, deep.FFNSize, deep.VocabSize = 12, 64, 8, 160, 160 // no padding
	sums := make([][npu.NumPurposes]int64, 3)
	for zero := range sums {
		m := open(t, &deep, Config{Mesh: parallel.Mesh{DP: 4, TP: 1, PP: 1}, Models: config(), Zero: zero})
		train(t, m, &deep, 1, 1)
		for _, r := range m.Current().ranks {
			for purpose, n := range r.memory {
				sums[zero][purpose] = max(sums[zero][purpose], n)
			}
		}
	}
	params := deep.NumParams()
	layers := params - 2*int64(deep.VocabSize*deep.HiddenSize)
	within := func(want, got int64) { require.InEpsilon(t, want, got, 0.1) } // padding, and blocks of rows
	within(8*params, sums[0][npu.Optimizer])
	within(8*params/4, sums[1][npu.Optimizer])
	within(8*params/4, sums[2][npu.Optimizer])
	within(8*params, sums[0][npu.Gradients])
	within(8*params, sums[1][npu.Gradients])
	within(8*(params-layers+layers/4+2*layers/12), sums[2][npu.Gradients])
	require.Equal(t, sums[0][npu.Weights], sums[2][npu.Weights])
}
