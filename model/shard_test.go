package model

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/internal/soak"
	"github.com/easyrl/easyrl/model/carry"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/parallel"
)

// dividedShapes are decoders with four key-value heads whose feed-forward size and vocabulary do
// not divide evenly.
func dividedShapes() map[string]*Config {
	base := Config{HiddenSize: 48, FFNSize: 200, Layers: 3, Heads: 8, KVHeads: 4, HeadDim: 12, VocabSize: 203,
		MaxPositions: 64, NormEps: 1e-6, RopeTheta: 1e4, InitStd: 0.2, BOS: -1}
	llama, qwen2, qwen3 := base, base, base
	llama.Type, qwen2.Type, qwen3.Type = "llama", "qwen2", "qwen3"
	qwen2.QKVBias, qwen2.Tied = true, true
	qwen3.QKNorm, qwen3.Heads, qwen3.VocabSize = true, 12, 256
	return map[string]*Config{"llama": &llama, "qwen2": &qwen2, "qwen3": &qwen3}
}

// piece is one rank of a mesh in a test.
type piece struct {
	weights   *Weights
	gradients *Gradients
	tape      *Tape
}

// divide returns the ranks of a mesh with the values of w.
func divide(t *testing.T, dev npu.Device, w *Weights, mesh parallel.Mesh, recompute, sequence bool) []*piece {
	t.Helper()
	var pieces []*piece
	for rank, end := range parallel.NewLocal(mesh.Size()) {
		c, err := w.Config.Shard(mesh, mesh.Coord(rank), sequence)
		require.NoError(t, err)
		own, err := dev.Fork(1)
		require.NoError(t, err)
		p := &piece{tape: NewTape(own, c)}
		t.Cleanup(func() {
			p.tape.Close()
			require.NoError(t, own.Close())
		})
		p.tape.Recompute = recompute
		if mesh.TP > 1 {
			group, err := mesh.Join(end, parallel.Tensor, 0)
			require.NoError(t, err)
			p.tape.Divide(carry.New(t.Context(), own, group))
		}
		p.weights, err = NewWeights(own, c, npu.Weights)
		require.NoError(t, err)
		p.gradients, err = NewGradients(own, c)
		require.NoError(t, err)
		all := wholeValues(t, w)
		for i := range p.weights.Params {
			param := &p.weights.Params[i]
			vals := make([]float32, param.Rows*max(param.Cols, 1))
			param.Extract(vals, all[param.Name])
			require.NoError(t, p.weights.Write(i, vals, nil))
		}
		pieces = append(pieces, p)
	}
	return pieces
}

func wholeValues(t *testing.T, w *Weights) map[string][]float32 {
	t.Helper()
	all := map[string][]float32{}
	for i := range w.Params {
		p := &w.Params[i]
		all[p.Name] = make([]float32, p.Rows*max(p.Cols, 1))
		require.NoError(t, w.Read(i, all[p.Name]))
	}
	return all
}

// stages runs the tensor ranks of each stage at the same time, in the order of stages or, with
// back, the other way round, and hands on what passes between stages.
func stages(t *testing.T, pieces []*piece, mesh parallel.Mesh, l *attention.Layout, back bool,
	run func(p *piece) error) {
	t.Helper()
	for i := range mesh.PP {
		stage, next := i, i+1
		if back {
			stage, next = mesh.PP-1-i, mesh.PP-2-i
		}
		var wg sync.WaitGroup
		errs := make([]error, mesh.TP)
		for tp := range mesh.TP {
			wg.Add(1)
			go func() {
				defer wg.Done()
				p := pieces[mesh.Rank(parallel.Coord{TP: tp, PP: stage})]
				p.tape.Out = make([]float32, OwnRows(p.tape.cfg, l)*p.tape.cfg.HiddenSize)
				if errs[tp] = run(p); errs[tp] == nil {
					errs[tp] = p.tape.Wait()
				}
				if next >= 0 && next < mesh.PP {
					pieces[mesh.Rank(parallel.Coord{TP: tp, PP: next})].tape.In = p.tape.Out
				}
			}()
		}
		wg.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
	}
}

// rowMajor returns the sums of a tensor, row-major, and adds its mark.
func rowMajor(s npu.Sums, rows, cols int) []int64 {
	all := s.Int64s()
	if cols == 0 {
		return append(append([]int64(nil), all...), s.Mark.Int64s()...)
	}
	out := make([]int64, 0, rows*cols+1)
	for r := range rows {
		for k := range cols {
			out = append(out, all[r/npu.MatrixBlock*npu.MatrixBlock*cols+k*npu.MatrixBlock+r%npu.MatrixBlock])
		}
	}
	return append(out, s.Mark.Int64s()...)
}

// Log-probabilities and sums of gradients of all ranks of a mesh have the bits of one rank.
func TestMeshesGiveTheSameBits(t *testing.T) { inBoth(t, testMeshes) }

func testMeshes(t *testing.T, n npu.Numerics) {
	for name, c := range dividedShapes() {
		if n == npu.BF16 {
			c.HeadDim = 16 // ranks divide the terms of products at multiples of 16
		}
		for i, size := range [][2]int{{2, 1}, {4, 1}, {3, 1}, {1, 2}, {1, 3}, {2, 2}, {4, 3}} {
			mesh := parallel.Mesh{DP: 1, TP: size[0], PP: size[1]}
			for _, recompute := range []bool{false, true} {
				for _, sequence := range []bool{false, true} {
					// two of four ways a mesh, the others with the next mesh
					if (recompute == sequence) != (i%2 == 0) && !soak.Long() {
						continue
					}
					t.Run(fmt.Sprintf("%s/tp=%d,pp=%d,recompute=%v,sequence=%v", name, mesh.TP, mesh.PP, recompute,
						sequence), func(t *testing.T) {
						checkMesh(t, n, c, mesh, recompute, sequence)
					})
				}
			}
		}
	}
}

func checkMesh(t *testing.T, n npu.Numerics, c *Config, mesh parallel.Mesh, recompute, sequence bool) {
	t.Helper()
	dev := openIn(t, n, 1)
	w := testWeights(t, dev, c)
	layout := testForest(c)
	rng := rand.New(rand.NewPCG(8, 9))
	for range 3 { // several chunks of rows
		layout.EndLeaf()
		layout.AddGroup(randomTokens(rng, 20, c.VocabSize),
			[][]int32{randomTokens(rng, 30, c.VocabSize), randomTokens(rng, 20, c.VocabSize)})
	}
	layout.EndLeaf()
	seed := make([]float32, len(layout.Targets))
	for i := range seed {
		seed[i] = float32(rng.NormFloat64())
	}
	want, wantEntropy := make([]float32, len(seed)), make([]float32, len(seed))
	tape := NewTape(dev, c)
	defer tape.Close()
	g, err := NewGradients(dev, c)
	require.NoError(t, err)
	require.NoError(t, tape.Forward(w, layout, 0.7, true, want, wantEntropy))
	require.NoError(t, tape.Backward(w, g, seed, fixed))

	pieces := divide(t, dev, w, mesh, recompute, sequence)
	logp, entropy := make([][]float32, mesh.Size()), make([][]float32, mesh.Size())
	for i, p := range pieces {
		logp[i], entropy[i] = make([]float32, len(seed)), make([]float32, len(seed))
		require.NoError(t, p.tape.Load(layout, true))
	}
	rank := func(p *piece) int { return mesh.Rank(p.tape.cfg.Part().At) }
	stages(t, pieces, mesh, layout, false, func(p *piece) error {
		return p.tape.Run(p.weights, 0.7, true, logp[rank(p)], entropy[rank(p)])
	})
	stages(t, pieces, mesh, layout, true, func(p *piece) error {
		return p.tape.Backward(p.weights, p.gradients, seed, fixed)
	})
	for tp := range mesh.TP {
		last := mesh.Rank(parallel.Coord{TP: tp, PP: mesh.PP - 1})
		require.Equal(t, want, logp[last])
		require.Equal(t, wantEntropy, entropy[last])
	}
	checkGradients(t, w, g, pieces)
}

// checkGradients compares the ranks' gradients with those of one rank.
func checkGradients(t *testing.T, w *Weights, g *Gradients, pieces []*piece) {
	t.Helper()
	whole := map[string][]int64{}
	for i := range w.Params {
		whole[w.Params[i].Name] = rowMajor(g.Params[i], w.Params[i].Rows, w.Params[i].Cols)
	}
	sums := map[string][]int64{} // of what ranks sum up
	for _, p := range pieces {
		for i := range p.weights.Params {
			param := &p.weights.Params[i]
			got, all := rowMajor(p.gradients.Params[i], param.Rows, param.Cols), whole[param.Name]
			places := placesOf(param, len(got)-1, len(all)-1)
			summed := param.Whole.Share == tensor.Summed || p.weights.Config.TiedStages(param)
			if summed && sums[param.Name] == nil {
				sums[param.Name] = make([]int64, len(all))
			}
			for j, place := range places {
				if summed {
					sums[param.Name][place] += got[j]
				} else if all[place] != got[j] {
					require.Equal(t, all[place], got[j], "%s[%d]", param.Name, j)
				}
			}
		}
	}
	for name, got := range sums {
		require.True(t, slices.Equal(whole[name], got), name)
	}
}

// placesOf returns the places of the n values of p in its whole tensor of all values.
func placesOf(p *tensor.Param, n, all int) []int {
	whole, part := make([]float32, all), make([]float32, n)
	for i := range whole {
		whole[i] = float32(i)
	}
	p.Extract(part, whole)
	places := make([]int, n)
	for i, v := range part {
		places[i] = int(v)
	}
	return places
}

// A mesh that cannot divide a decoder is refused with all reasons.
func TestCheckMesh(t *testing.T) {
	c := dividedShapes()["llama"]
	require.NoError(t, c.CheckMesh(parallel.Mesh{DP: 9, TP: 4, PP: 3}))
	require.ErrorContains(t, c.CheckMesh(parallel.Mesh{DP: 1, TP: 5, PP: 4}),
		"pp is 4, expected at most 3, the number of layers\ntp is 5, expected at most 4, the number of key-value heads")
}
