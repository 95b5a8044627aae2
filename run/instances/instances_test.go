package instances

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/engine"
	"github.com/easyrl/easyrl/inference/fleet"
	"github.com/easyrl/easyrl/model/arch"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
)

func TestRejectedEngineIsClosed(t *testing.T) {
	t.Parallel()
	shape, err := arch.ParseConfig(
		[]byte(`{"model_type":"qwen3","hidden_size":32,"intermediate_size":48,"num_hidden_layers":1,
		"num_attention_heads":4,"num_key_value_heads":2,"head_dim":8,"vocab_size":16,` +
			`"max_position_embeddings":64,"rms_norm_eps":1e-6,
		"rope_theta":10000,"hidden_act":"silu","tie_word_embeddings":true,"eos_token_id":1,"initializer_range":0.05}`))
	require.NoError(t, err)
	f, err := fleet.New(fleet.DefaultConfig())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	var last *engine.Engine
	deps := &Deps{Shape: shape, Engine: func(ec engine.Config) (*engine.Engine, error) {
		dev, err := cpu.Open(npu.FP32, 1)
		if err != nil {
			return nil, err
		}
		last, err = engine.New(ec, shape, nil, dev)
		return last, err
	}}
	cfg := configs.Default()
	cfg.Data.MaxPromptTokens, cfg.Rollout.MaxTokens = 8, 8
	_, err = startEngines(t.Context(), &cfg, deps, f)
	require.NoError(t, err)
	_, err = startEngines(t.Context(), &cfg, deps, f)
	require.ErrorContains(t, err, "an instance of that name is already in the fleet")
	_, err = last.Generate(t.Context(), inference.Request{PromptIDs: []int32{3, 4}, N: 2, Seed: 7,
		Sampling: inference.Sampling{Temperature: 1, TopP: 1, MaxTokens: 4}})
	require.ErrorIs(t, err, inference.ErrClosed)
}
