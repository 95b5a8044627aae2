package model

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/model/source"
	"github.com/easyrl/easyrl/npu"
)

func TestCheckFolder(t *testing.T) {
	t.Parallel()
	c := shapes()["qwen3"]
	dev := openCPU(t, 1)
	w := testWeights(t, dev, c)
	save := func(change func([]checkpoint.Source) []checkpoint.Source) string {
		dir := t.TempDir()
		require.NoError(t, checkpoint.WriteFile(filepath.Join(dir, "model.safetensors"), change(w.Sources()), nil))
		return dir
	}
	require.NoError(t, source.Check(c, save(func(s []checkpoint.Source) []checkpoint.Source { return s })))
	require.ErrorContains(t, source.Check(c, save(func(s []checkpoint.Source) []checkpoint.Source { return s[1:] })),
		": load weights: tensor model.embed_tokens.weight is missing")
	require.ErrorContains(t, source.Check(c, save(func(s []checkpoint.Source) []checkpoint.Source {
		s[0].Shape = []int{s[0].Shape[1], s[0].Shape[0]}
		return s
	})), ": load weights: tensor model.embed_tokens.weight has shape [19 65], expected [65 19] from config.json")
	require.ErrorIs(t, source.Check(c, t.TempDir()), checkpoint.ErrNotFound)
}

// A tensor that config.json does not account for is rejected if it takes part in a
// decoder's computation.
func TestUnexpectedTensors(t *testing.T) {
	t.Parallel()
	c := shapes()["qwen3"]
	require.True(t, c.Tied)
	dev := openCPU(t, 1)
	w := testWeights(t, dev, c)
	embed := w.Sources()[0]
	fill := func(v float32) func([]float32) error {
		return checkpoint.Filled(func(dst []float32) {
			for i := range dst {
				dst[i] = v
			}
		})
	}
	next := fmt.Sprintf("model.layers.%d.mlp.up_proj.weight", c.Layers)
	for _, test := range []struct {
		more   checkpoint.Source
		want   string // from the file's header
		loaded string // from its values
	}{
		{checkpoint.Source{Name: "model.layers.0.self_attn.q_proj.bias", Shape: []int{c.Heads * c.HeadDim},
			Write: fill(1)},
			"tensor model.layers.0.self_attn.q_proj.bias is not part of the qwen3 decoder in config.json", ""},
		{checkpoint.Source{Name: next, Shape: []int{c.FFNSize, c.HiddenSize}, Write: fill(1)},
			fmt.Sprintf("tensor %s belongs to layer %d, but num_hidden_layers is %d", next, c.Layers+1, c.Layers), ""},
		{checkpoint.Source{Name: "lm_head.bias", Shape: []int{c.VocabSize}, Write: fill(1)},
			"tensor lm_head.bias is not part of the", ""},
		{checkpoint.Source{Name: "lm_head.weight", Shape: embed.Shape, Write: fill(1)}, "",
			"tensor lm_head.weight differs from the embedding"},
		{checkpoint.Source{Name: "lm_head.weight", Shape: embed.Shape, Write: embed.Write}, "", ""},
		{checkpoint.Source{Name: "model.layers.0.self_attn.rotary_emb.inv_freq", Shape: []int{c.HeadDim / 2},
			Write: fill(1)}, "", ""},
		{checkpoint.Source{Name: "v_head.summary.weight", Shape: []int{1, c.HiddenSize}, Write: fill(1)}, "", ""},
	} {
		dir := t.TempDir()
		require.NoError(t, checkpoint.WriteFile(filepath.Join(dir, "model.safetensors"),
			append(w.Sources(), test.more), nil))
		again, err := NewWeights(dev, c, npu.Weights)
		require.NoError(t, err)
		checked, loaded := source.Check(c, dir), again.Load(dir)
		again.Free()
		if test.want == "" {
			require.NoError(t, checked, test.more.Name)
		} else {
			require.ErrorContains(t, checked, ": load weights: "+test.want)
			require.ErrorContains(t, loaded, ": load weights: "+test.want)
		}
		if test.loaded != "" {
			require.ErrorContains(t, loaded, ": load weights: "+test.loaded)
		} else if test.want == "" {
			require.NoError(t, loaded, test.more.Name)
		}
	}
}

func TestCheckFinite(t *testing.T) {
	t.Parallel()
	dev := openCPU(t, 1)
	for _, v := range []float32{float32(math.NaN()), float32(math.Inf(1)), 1e30} {
		w, err := NewWeights(dev, shapes()["llama"], npu.Weights)
		require.NoError(t, err)
		require.NoError(t, w.Init(1))
		require.NoError(t, w.CheckFinite())
		dev.Upload(w.Head.Vectors[0].Slice(0, 1), []float32{v})
		err = w.CheckFinite()
		require.ErrorIs(t, err, ErrNotFinite)
		require.ErrorContains(t, err, "weights of model.norm.weight: ")
		w.Free()
	}
}
