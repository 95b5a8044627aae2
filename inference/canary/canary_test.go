package canary

import (
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/arch"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
)

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

func TestPromptUsesRunTokens(t *testing.T) {
	t.Parallel()
	shape := tinyShape(t)
	require.Equal(t, []int32{2, 4, 6, 8}, Prompt(shape, nil, 4), "spread over the vocabulary of 16")
	tokens := []int32{3, 9, 4, 9, 5}
	require.Equal(t, tokens[:4], Prompt(shape, tokens, 4))
	require.Len(t, Prompt(shape, tokens, 32), 32)
	require.Len(t, Prompt(shape, tokens, 1000), shape.MaxPositions-1)
}

func TestLogprobsOfThePublishedVersion(t *testing.T) {
	t.Parallel()
	shape := tinyShape(t)
	dev, err := cpu.Open(npu.FP32, 1)
	require.NoError(t, err)
	defer dev.Close()
	w, err := model.NewWeights(dev, shape, npu.Weights)
	require.NoError(t, err)
	require.NoError(t, w.Init(1))
	require.NoError(t, dev.Sync())
	r := NewReference(shape, npu.FP32, Prompt(shape, nil, 8))
	_, err = r.Logprobs(t.Context(), 1)
	require.ErrorContains(t, err, "version 1 is no longer being published")
	r.SetWeights(model.NewSnapshot(w, 1))
	logp, err := r.Logprobs(t.Context(), 1)
	require.NoError(t, err)
	require.Len(t, logp, 8)
	require.Zero(t, logp[0])
	for _, v := range logp[1:] {
		require.Negative(t, v)
	}
	r.SetWeights(model.NewSnapshot(w, 2))
	again, err := r.Logprobs(t.Context(), 1)
	require.NoError(t, err, "already computed")
	require.Equal(t, logp, again)
	_, err = r.Logprobs(t.Context(), 3)
	require.ErrorContains(t, err, "version 3 is no longer being published")
	r.SetWeights(nil)
	_, err = r.Logprobs(t.Context(), 2)
	require.Error(t, err)
	require.NoError(t, NewReference(shape, npu.FP32, nil).Close())
	r.SetWeights(model.NewSnapshot(w, 2))
	require.NoError(t, r.Close())
	_, err = r.Logprobs(t.Context(), 2)
	require.ErrorContains(t, err, "version 2 is no longer being published", "after Close")
}

// Perturbed weights are shared, the same every time, finite, and unlike those of a model.
func TestPerturb(t *testing.T) {
	t.Parallel()
	shape := tinyShape(t)
	r := NewReference(shape, npu.FP32, Prompt(shape, nil, 8))
	defer func() { require.NoError(t, r.Close()) }()
	a, err := r.Perturb(t.Context())
	require.NoError(t, err)
	b, err := r.Perturb(t.Context())
	require.NoError(t, err)
	require.Same(t, a.Weights, b.Weights)
	require.Zero(t, a.Version())
	require.Equal(t, "7aab339662ff0cbf", a.Checksum(), "the same on every machine")
	require.Len(t, a.Logprobs, len(a.Prompt))
	a.Free()
	a.Free()
	require.NotNil(t, r.perturbed, "b still holds them")
	b.Free()
	require.Nil(t, r.perturbed)
	again, err := r.Perturb(t.Context())
	require.NoError(t, err)
	require.NotSame(t, a.Weights, again.Weights)
	require.Equal(t, a.Logprobs, again.Logprobs)
	again.Free()

	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			p, err := r.Perturb(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			defer p.Free()
			if p.Checksum() != a.Checksum() {
				t.Errorf("checksum is %s, expected %s", p.Checksum(), a.Checksum())
			}
		})
	}
	all.Wait()
	require.Nil(t, r.perturbed)
}

// The name and the rows' length of a tensor determine its values, also for decoders that package
// model does not know.
func TestPerturbation(t *testing.T) {
	t.Parallel()
	values := func(kind, name string, cols int) map[float32]bool {
		of := Perturbation(&model.Config{Type: kind, HiddenSize: 16}, name, cols)
		seen := map[float32]bool{}
		for i := range 200 {
			seen[of(i)] = true
		}
		return seen
	}
	require.Equal(t, map[float32]bool{-1: true, 1: true}, values("qwen3_moe", "model.norm.weight", 0))
	require.Equal(t, map[float32]bool{-2: true, 0: true}, values("gemma3_text", "model.norm.weight", 0),
		"multiplied by 1 + weight")
	require.Greater(t, len(values("x", "model.layers.0.self_attn.q_proj.bias", 0)), 100)
	for v := range values("x", "model.layers.0.mlp.experts.3.gate_proj.weight", 16) {
		require.LessOrEqual(t, math.Abs(float64(v)), math.Sqrt(3)/4)
	}
}
