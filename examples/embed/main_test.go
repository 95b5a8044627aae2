package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEmbedTrains(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
		return path
	}
	model := write("config.json",
		`{"model_type":"qwen3","hidden_size":16,"intermediate_size":24,"num_hidden_layers":1,"num_attention_heads":2,
		"num_key_value_heads":1,"head_dim":8,"vocab_size":16,"max_position_embeddings":32,"rms_norm_eps":1e-6,`+
			`"rope_theta":10000,
		"hidden_act":"silu","tie_word_embeddings":true,"eos_token_id":1,"initializer_range":0.05}`)
	write("tokenizer_config.json", `{"char_ords":[48,49,50,51,52,53,54,55,56,57,44,58],"model_max_length":32}`)
	prompts := write("prompts.jsonl", `{"prompt":"1,2","answer":"3"}`+"\n"+`{"prompt":"4,5","answer":"9"}`+"\n")
	config := write("run.toml", fmt.Sprintf("[model.init]\nconfig = %q\n[data]\ntrain = "+
		"%q\n[rollout]\nprompts_per_step = 2\ngroup_size = 2\nmax_tokens = 8\n"+
		"[reward]\nkind = \"prefix\"\n", model, prompts))

	var out, log bytes.Buffer
	require.NoError(t, train(t.Context(), []string{config}, filepath.Join(dir, "run"), &out, &log), log.String())
	require.Regexp(t, `^step 1: mean reward \d\.\d{3}\nstep 2: .*\nstep 3: .*\n$`, out.String())
	require.FileExists(t, filepath.Join(dir, "run", "checkpoints", "step-000003", "model.safetensors"))
	require.EqualError(t, train(t.Context(), nil, dir, &out, &log), "no configuration given, expected RUN.toml")
}
