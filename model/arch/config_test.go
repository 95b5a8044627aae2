package arch

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// aConfig returns a valid config.json in which old is replaced.
func aConfig(old, replacement string) []byte {
	config :=
		`{"model_type":"qwen3","hidden_size":32,"intermediate_size":48,"num_hidden_layers":2,"num_attention_heads":4,` +
			`"num_key_value_heads":2,"head_dim":8,"vocab_size":16,"max_position_embeddings":64,` +
			`"rms_norm_eps":1e-6,"rope_theta":10000,` +
			`"hidden_act":"silu","tie_word_embeddings":true,"eos_token_id":1,"initializer_range":0.05}`
	return bytes.Replace([]byte(config), []byte(old), []byte(replacement), 1)
}

func TestParseConfigNamesTheField(t *testing.T) {
	t.Parallel()
	_, err := ParseConfig(aConfig("", ""))
	require.NoError(t, err)
	for _, test := range []struct{ old, replacement, want string }{
		{`"hidden_size":32`, `"hidden_size":1099511627776`, "hidden_size is 1099511627776, expected 1 to 16777216"},
		{`"hidden_size":32`, `"hidden_size":99999999999999999999`,
			"hidden_size is a JSON number 99999999999999999999, expected a whole number"},
		{`"hidden_size":32`, `"hidden_size":32.5`, "hidden_size is a JSON number 32.5, expected a whole number"},
		{`"hidden_size":32`, `"hidden_size":"32"`, "hidden_size is a JSON string, expected a whole number"},
		{`"hidden_size":32,`, ``, "hidden_size is 0, expected 1 to 16777216"},
		{`"num_hidden_layers":2`, `"num_hidden_layers":-1`, "num_hidden_layers is -1, expected 1 to 4096"},
		{`"num_hidden_layers":2`, `"num_hidden_layers":16777216`, "num_hidden_layers is 16777216, expected 1 to 4096"},
		{`"vocab_size":16`, `"vocab_size":262145`, "vocab_size is 262145, expected 1 to 262144"},
		{`"vocab_size":16`, `"vocab_size":262144,"hidden_size":16777216`,
			"the sizes give 4.41e+12 parameters, expected at most 2.2e+12"},
		{`"num_attention_heads":4`, `"num_attention_heads":0`, "num_attention_heads is 0, expected 1 to 16777216"},
		{`"num_key_value_heads":2`, `"num_key_value_heads":3`,
			"num_attention_heads is 4, expected a multiple of num_key_value_heads (3)"},
		{`"head_dim":8`, `"head_dim":7`, "head_dim is 7, expected an even number"},
		{`"qwen3"`, `"gpt2"`, `model_type is "gpt2", expected llama, mistral, qwen2 or qwen3`},
		{`"qwen3"`, `7`, "model_type is a JSON number, expected a string"},
		{`"silu"`, `"gelu"`, `hidden_act is "gelu", expected silu`},
		{`"hidden_act"`, `"attention_bias":true,"hidden_act"`, "attention_bias true is not supported for qwen3"},
		{`"hidden_act"`, `"mlp_bias":true,"hidden_act"`, "mlp_bias true is not supported"},
		{`"hidden_act"`, `"use_sliding_window":true,"max_window_layers":0,"sliding_window":8,"hidden_act"`,
			"sliding_window is 8, expected null or at least max_position_embeddings (64)"},
		{`"hidden_act"`, `"rope_scaling":{"rope_type":"yarn"},"hidden_act"`,
			`rope scaling "yarn": factor is 0, expected more than 0`},
		{`"hidden_act"`, `"rope_scaling":{"rope_type":"longrope"},"hidden_act"`,
			`rope scaling "longrope" is not supported, expected default, linear, dynamic, yarn or llama3`},
		{`"hidden_act"`, `"rope_scaling":{"type":"linear","factor":1,"beta_fast":"2"},"hidden_act"`,
			"rope_scaling: beta_fast is 2, expected a number"},
		{`"hidden_act"`, `"layer_types":["full_attention","sliding_attention"],"hidden_act"`,
			`layer_types has "sliding_attention", expected only "full_attention"`},
		{`"hidden_act"`, `"residual_multiplier":0.22,"hidden_act"`, "residual_multiplier is 0.22, expected 1 or unset"},
		{`"hidden_act"`, `"residual_multiplier":"1","hidden_act"`,
			"residual_multiplier is a JSON string, expected a number"},
		{`"hidden_act"`, `"embedding_multiplier":12,"hidden_act"`, "embedding_multiplier is 12, expected 1 or unset"},
		{`"hidden_act"`, `"logits_scaling":8,"hidden_act"`, "logits_scaling is 8, expected 1 or unset"},
		{`"hidden_act"`, `"logit_scale":0.0625,"hidden_act"`, "logit_scale is 0.0625, expected 1 or unset"},
		{`"hidden_act"`, `"attention_multiplier":0.5,"hidden_act"`,
			"attention_multiplier is 0.5, expected 0.35355339059327373 or unset"},
		{`"hidden_act"`, `"query_pre_attn_scalar":256,"hidden_act"`,
			"query_pre_attn_scalar is 256, expected 8 or unset"},
		{`"hidden_act"`, `"clip_qkv":8,"hidden_act"`, "clip_qkv is 8, expected unset"},
		{`"hidden_act"`, `"use_qk_norm":false,"hidden_act"`, "use_qk_norm is false, expected true or unset for qwen3"},
		{`"hidden_act"`, `"qkv_bias":true,"hidden_act"`, "qkv_bias is true, expected false or unset for qwen3"},
		{`"hidden_act"`, `"alibi":true,"hidden_act"`, "alibi is true, expected false or unset for qwen3"},
		{`"hidden_act"`, `"no_rope_layers":[1,0],"hidden_act"`,
			"no_rope_layers contains 0, but layers without rotary positions are not supported"},
		{`"qwen3"`, `"llama","use_qk_norm":true`, "use_qk_norm is true, expected false or unset for llama"},
		{`"qwen3"`, `"mistral","sliding_window":null,"attention_bias":true`,
			"attention_bias true is not supported for mistral"},
		{`"hidden_act"`, `"rope_scaling":3,"hidden_act"`, "rope_scaling is a JSON number, expected an object"},
		{`10000`, `0`, "rope_theta is 0, expected a finite number above 0"},
		{`10000`, `-1`, "rope_theta is -1, expected a finite number above 0"},
		{`10000`, `1e999`, "rope_theta is a JSON number 1e999, expected a number"},
		{`1e-6`, `0`, "rms_norm_eps is 0, expected more than 0 and at most 1"},
		{`1e-6`, `-1`, "rms_norm_eps is -1, expected more than 0 and at most 1"},
		{`0.05`, `-1`, "initializer_range is -1, expected 0 to 100"},
		{`0.05`, `1e300`, "initializer_range is 1e+300, expected 0 to 100"},
		{`"eos_token_id":1`, `"eos_token_id":16`, "eos_token_id 16 is outside the vocabulary of 16"},
		{`"eos_token_id":1`, `"eos_token_id":[1,-1]`, "eos_token_id -1 is outside the vocabulary of 16"},
		{`"eos_token_id":1`, `"eos_token_id":[1,"x"]`,
			`eos_token_id is [1,"x"], expected a token id or a list of them`},
		{`true`, `"yes"`, "tie_word_embeddings is a JSON string, expected true or false"},
		{`"hidden_act"`, "\n\nhidden_act",
			"line 3: not JSON: invalid character 'h' looking for beginning of object key string"},
		{`{`, ``, "line 1: not JSON: invalid character ':' after top-level value"},
	} {
		_, err := ParseConfig(aConfig(test.old, test.replacement))
		require.EqualError(t, err, test.want, test.replacement)
	}
	for text, want := range map[string]string{
		"":      "line 1: not JSON: unexpected end of JSON input",
		"null":  "a JSON null, expected an object",
		"[]":    "a JSON array, expected an object",
		"{\n\"": "line 2: not JSON: unexpected end of JSON input",
	} {
		_, err := ParseConfig([]byte(text))
		require.EqualError(t, err, want)
	}
}

// Fields of other decoders with neutral values and unknown fields are accepted.
func TestNeutralFieldsAreAccepted(t *testing.T) {
	t.Parallel()
	for _, neutral := range []string{
		`"residual_multiplier":1.0,"embedding_multiplier":1,"scale_emb":1,"logits_scaling":1,"logit_scale":null,` +
			`"clip_qkv":null`,
		`"attention_multiplier":0.3535534,"query_pre_attn_scalar":8,"use_qk_norm":true,"qkv_bias":false,` +
			`"alibi":false,"no_rope_layers":[1,1]`,
		`"pretraining_tp":1,"use_cache":true,"transformers_version":"4.51.0","attention_dropout":0.0,` +
			`"flavour":{"of":["the","week"]}`,
	} {
		_, err := ParseConfig(aConfig(`"hidden_act"`, neutral+`,"hidden_act"`))
		require.NoError(t, err, neutral)
	}
}

func TestReadConfigNamesTheFile(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, config, generation string
		want                     []string // follows the folder's name
	}{
		{"right", string(aConfig("", "")), `{"eos_token_id":[1,2]}`, nil},
		{"generation is no list", string(aConfig("", "")), `{"eos_token_id":"x"}`, []string{
			`/generation_config.json: eos_token_id is "x", expected a token id or a list of them`}},
		{"generation outside", string(aConfig("", "")), `{"eos_token_id":77}`, []string{
			"/generation_config.json: eos_token_id 77 is outside the vocabulary of 16"}},
		{"generation cut", string(aConfig("", "")), `{"eos`,
			[]string{"/generation_config.json: line 1: not JSON: unexpected end of JSON input"}},
		{"two faults", string(aConfig(`"head_dim":8`, `"head_dim":7,"hidden_act":"gelu","mlp_bias":true`)),
			"", []string{
				"/config.json: mlp_bias true is not supported",
				"/config.json: head_dim is 7, expected an even number"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(test.config), 0o644))
			if test.generation != "" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "generation_config.json"),
					[]byte(test.generation), 0o644))
			}
			c, err := ReadConfig(dir)
			if test.want == nil {
				require.NoError(t, err)
				require.Equal(t, []int32{1, 2}, c.StopIDs)
				return
			}
			want := ""
			for i, line := range test.want {
				if i > 0 {
					want += "\n"
				}
				want += dir + line
			}
			require.EqualError(t, err, want)
		})
	}
}

// Every accepted shape is usable, whatever the bytes.
func FuzzParseConfig(f *testing.F) {
	f.Add(aConfig("", ""))
	f.Add(aConfig(`"qwen3"`, `"qwen2"`))
	f.Add(aConfig(`1,"init`, `[1,2],"rope_scaling":{"type":"default","rope_theta":3},"init`))
	f.Add([]byte(`{"model_type":"llama","head_dim":null,"eos_token_id":null,"num_key_value_heads":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ParseConfig(text)
		if err != nil {
			require.Nil(t, c)
			require.NotEmpty(t, err.Error())
			return
		}
		require.NoError(t, c.validate())
		require.Positive(t, c.NumParams())
		// leaves room for norms, biases and an output projection
		require.LessOrEqual(t, c.NumParams(), int64(4*maxParams))
		require.False(t, math.IsNaN(c.FLOPs(1, 1, 1)))
	})
}

// The error for a run's folder names its newest checkpoint.
func TestReadConfigNamesNewestCheckpoint(t *testing.T) {
	t.Parallel()
	run := t.TempDir()
	says := func(dir, more string) {
		_, err := ReadConfig(dir)
		require.ErrorContains(t, err, "read model folder: open "+filepath.Join(dir, "config.json"))
		require.True(t, strings.HasSuffix(err.Error(), "; "+dir+" is not a Hugging Face model folder"+more), err)
	}
	says(run, "")
	for _, step := range []string{"step-000009", "step-000010", "step-000011"} {
		require.NoError(t, os.MkdirAll(filepath.Join(run, "checkpoints", step), 0o755))
	}
	says(run, "")
	for _, step := range []string{"step-000009", "step-000010"} {
		require.NoError(t, os.WriteFile(filepath.Join(run, "checkpoints", step, "config.json"), aConfig("", ""), 0o644))
	}
	newest := filepath.Join(run, "checkpoints", "step-000010")
	says(run, "; did you mean "+newest+"?")
	says(filepath.Join(run, "checkpoints"), "; did you mean "+newest+"?")
}

func FuzzGenerationConfig(f *testing.F) {
	f.Add([]byte(`{"eos_token_id":[1,2]}`))
	f.Add([]byte(`{"eos_token_id":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c := Config{VocabSize: 3, StopIDs: []int32{1}}
		err := c.addStops(text)
		require.NoError(t, c.checkStops(c.StopIDs))
		if err != nil {
			require.Equal(t, []int32{1}, c.StopIDs)
		}
	})
}

// A config.json without max_position_embeddings has the default of its family's configuration
// class in Transformers 5.23 (models/*/configuration_*.py).
func TestMissingPositions(t *testing.T) {
	t.Parallel()
	for family, want := range map[string]int{"llama": 2048, "mistral": 131072, "qwen2": 32768, "qwen3": 32768} {
		text := strings.Replace(string(aConfig(`"qwen3"`, `"`+family+`"`)), `"max_position_embeddings":64,`,
			`"sliding_window":null,`, 1)
		c, err := ParseConfig([]byte(text))
		require.NoError(t, err, family)
		require.Equal(t, want, c.MaxPositions, family)
		given, err := ParseConfig(aConfig(`"qwen3"`, `"`+family+`","sliding_window":null`))
		require.NoError(t, err, family)
		require.Equal(t, 64, given.MaxPositions, family)
	}
	_, err := ParseConfig(aConfig(`"max_position_embeddings":64`, `"max_position_embeddings":0`))
	require.ErrorContains(t, err, "max_position_embeddings is 0, expected 1 to ")
}
