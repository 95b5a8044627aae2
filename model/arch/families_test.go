package arch

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention/rope"
)

type fields = map[string]any

// with merges fields; later ones win.
func with(all ...fields) fields {
	out := fields{}
	for _, f := range all {
		maps.Copy(out, f)
	}
	return out
}

// size returns the fields in which the models of a family differ.
func size(hidden, ffn, layers, heads, kvHeads, vocab int, tied bool) fields {
	return fields{"hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": layers,
		"num_attention_heads": heads,
		"num_key_value_heads": kvHeads, "vocab_size": vocab, "tie_word_embeddings": tied}
}

func qwen25() fields {
	return fields{"architectures": []string{"Qwen2ForCausalLM"}, "model_type": "qwen2", "attention_dropout": 0.0,
		"bos_token_id": 151643,
		"eos_token_id": 151645, "hidden_act": "silu", "initializer_range": 0.02, "max_position_embeddings": 32768,
		"max_window_layers": 21,
		"rms_norm_eps":      1e-6, "rope_theta": 1000000.0, "sliding_window": 32768, "torch_dtype": "bfloat16",
		"use_cache": true,
		"use_mrope": false, "use_sliding_window": false}
}

func qwen3Base() fields {
	return fields{"architectures": []string{"Qwen3ForCausalLM"}, "model_type": "qwen3", "attention_bias": false,
		"attention_dropout": 0.0,
		"bos_token_id":      151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
		"initializer_range":       0.02,
		"max_position_embeddings": 40960, "max_window_layers": 28, "rms_norm_eps": 1e-6, "rope_scaling": nil,
		"rope_theta":     1000000,
		"sliding_window": nil, "torch_dtype": "bfloat16", "use_cache": true, "use_sliding_window": false}
}

func llama3(factor float64) fields {
	return fields{"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "attention_bias": false,
		"attention_dropout": 0.0,
		"bos_token_id":      128000, "eos_token_id": []int{128001, 128008, 128009}, "hidden_act": "silu",
		"initializer_range":       0.02,
		"max_position_embeddings": 131072, "mlp_bias": false, "pretraining_tp": 1, "rms_norm_eps": 1e-5,
		"rope_theta": 500000.0,
		"rope_scaling": fields{"factor": factor, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
			"original_max_position_embeddings": 8192,
			"rope_type":                        "llama3"}, "torch_dtype": "bfloat16", "use_cache": true}
}

// llama1 returns the fields of the Llama generations before Llama 3.
func llama1(positions int, theta, eps float64) fields {
	return fields{"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "bos_token_id": 1,
		"eos_token_id": 2,
		"hidden_act":   "silu", "initializer_range": 0.02, "max_position_embeddings": positions, "pretraining_tp": 1,
		"rms_norm_eps": eps,
		"rope_scaling": nil, "rope_theta": theta, "torch_dtype": "bfloat16", "use_cache": true}
}

func mistral7(window any) fields {
	return fields{"architectures": []string{"MistralForCausalLM"}, "model_type": "mistral", "bos_token_id": 1,
		"eos_token_id": 2,
		"hidden_act":   "silu", "initializer_range": 0.02, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
		"rope_theta":     10000.0,
		"sliding_window": window, "torch_dtype": "bfloat16", "use_cache": true}
}

func parseFields(t *testing.T, f fields) (*Config, error) {
	t.Helper()
	b, err := json.Marshal(f)
	require.NoError(t, err)
	return ParseConfig(b)
}

// Configurations of widely trained models, with the parameter counts that
// transformers reports.
func TestFamilies(t *testing.T) {
	t.Parallel()
	distilled := fields{"eos_token_id": 151643, "bos_token_id": 151646, "max_position_embeddings": 131072,
		"rope_theta": 10000, "sliding_window": 4096}
	for _, m := range []struct {
		name    string
		config  fields
		params  int64
		headDim int
	}{
		{"Qwen2.5-0.5B", with(qwen25(), size(896, 4864, 24, 14, 2, 151936, true)), 494032768, 64},
		{"Qwen2.5-1.5B", with(qwen25(), size(1536, 8960, 28, 12, 2, 151936, true)), 1543714304, 128},
		{"Qwen2.5-3B", with(qwen25(), size(2048, 11008, 36, 16, 2, 151936, true)), 3085938688, 128},
		{"Qwen2.5-7B", with(qwen25(), size(3584, 18944, 28, 28, 4, 152064, false)), 7615616512, 128},
		{"Qwen2.5-14B", with(qwen25(), size(5120, 13824, 48, 40, 8, 152064, false)), 14770033664, 128},
		{"Qwen2.5-32B", with(qwen25(), size(5120, 27648, 64, 40, 8, 152064, false)), 32763876352, 128},
		{"Qwen2.5-72B", with(qwen25(), size(8192, 29568, 80, 64, 8, 152064, false)), 72706203648, 128},
		{"Qwen2.5-7B-Instruct with YaRN, as its card says",
			with(qwen25(), size(3584, 18944, 28, 28, 4, 152064, false), fields{
				"rope_scaling": fields{"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"}}),
			7615616512, 128},
		{"Qwen3-0.6B", with(qwen3Base(), size(1024, 3072, 28, 16, 8, 151936, true)), 596049920, 128},
		{"Qwen3-1.7B", with(qwen3Base(), size(2048, 6144, 28, 16, 8, 151936, true)), 1720574976, 128},
		{"Qwen3-4B", with(qwen3Base(), size(2560, 9728, 36, 32, 8, 151936, true), fields{"max_window_layers": 36}),
			4022468096, 128},
		{"Qwen3-8B", with(qwen3Base(), size(4096, 12288, 36, 32, 8, 151936, false)), 8190735360, 128},
		{"Qwen3-14B", with(qwen3Base(), size(5120, 17408, 40, 40, 8, 151936, false)), 14768307200, 128},
		{"Qwen3-32B", with(qwen3Base(), size(5120, 25600, 64, 64, 8, 151936, false)), 32762123264, 128},
		{"Llama-3.1-8B", with(llama3(8), size(4096, 14336, 32, 32, 8, 128256, false)), 8030261248, 128},
		{"Llama-3.1-70B and 3.3-70B", with(llama3(8), size(8192, 28672, 80, 64, 8, 128256, false)), 70553706496, 128},
		{"Llama-3.2-1B", with(llama3(32), size(2048, 8192, 16, 32, 8, 128256, true), fields{"head_dim": 64}),
			1235814400, 64},
		{"Llama-3.2-3B", with(llama3(32), size(3072, 8192, 28, 24, 8, 128256, true), fields{"head_dim": 128}),
			3212749824, 128},
		{"Mistral-7B-v0.3", with(mistral7(nil), size(4096, 14336, 32, 32, 8, 32768, false), fields{"rope_theta": 1e6}),
			7248023552, 128},
		{"Mistral-Nemo", with(mistral7(nil), size(5120, 14336, 40, 32, 8, 131072, false),
			fields{"head_dim": 128, "max_position_embeddings": 1024000}),
			12247782400, 128},
		{"Mistral-7B-v0.1 cut to its window", with(mistral7(4096), size(4096, 14336, 32, 32, 8, 32000, false), fields{
			"max_position_embeddings": 4096}), 7241732096, 128},
		{"DeepSeek-R1-Distill-Qwen-1.5B", with(qwen25(), size(1536, 8960, 28, 12, 2, 151936, false), distilled),
			1777088000, 128},
		{"DeepSeek-R1-Distill-Qwen-7B", with(qwen25(), size(3584, 18944, 28, 28, 4, 152064, false), distilled),
			7615616512, 128},
		{"DeepSeek-R1-Distill-Llama-8B", with(llama3(8), size(4096, 14336, 32, 32, 8, 128256, false),
			fields{"eos_token_id": 128001}), 8030261248, 128},
		{"SmolLM2-135M", with(llama1(8192, 1e5, 1e-5), size(576, 1536, 30, 9, 3, 49152, true)), 134515008, 64},
		{"SmolLM2-360M", with(llama1(8192, 1e5, 1e-5), size(960, 2560, 32, 15, 5, 49152, true)), 361821120, 64},
		{"SmolLM2-1.7B", with(llama1(8192, 130000, 1e-5), size(2048, 8192, 24, 32, 32, 49152, true)), 1711376384, 64},
		{"TinyLlama-1.1B", with(llama1(2048, 10000, 1e-5), size(2048, 5632, 22, 32, 4, 32000, false)), 1100048384, 64},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			c, err := parseFields(t, m.config)
			require.NoError(t, err)
			require.Equal(t, m.params, c.NumParams())
			require.Equal(t, m.headDim, c.HeadDim)
			require.Equal(t, m.config["tie_word_embeddings"], c.Tied)
			require.InDelta(t, m.config["rope_theta"], c.RopeTheta, 0)
			require.NotEmpty(t, c.StopIDs)
		})
	}
}

// Each setting that the decoder would compute wrongly is rejected by its field name.
func TestFamiliesRefused(t *testing.T) {
	t.Parallel()
	small := size(64, 128, 4, 4, 2, 1000, false)
	qwen := with(qwen25(), small, fields{"eos_token_id": 1, "bos_token_id": nil})
	qwen3 := with(qwen3Base(), small, fields{"eos_token_id": 1, "bos_token_id": nil})
	llama := with(llama1(2048, 1e4, 1e-5), small)
	mistral := with(mistral7(nil), small)
	const window = "sliding_window is 4096, expected null or at least max_position_embeddings (32768)"
	const kinds = "expected llama, mistral, qwen2 or qwen3"
	for _, m := range []struct {
		name   string
		config fields
		want   string
	}{
		{"Mistral-7B-v0.1", with(mistral7(4096), size(4096, 14336, 32, 32, 8, 32000, false)), window},
		{"a Mistral that leaves the window to its family",
			func() fields { f := with(mistral); delete(f, "sliding_window"); return f }(), window},
		{"Qwen2 with its window in use",
			with(qwen, fields{"use_sliding_window": true, "sliding_window": 4096, "max_window_layers": 2}), window},
		{"Qwen3 with its window in use",
			with(qwen3, fields{"use_sliding_window": true, "sliding_window": 4096, "max_window_layers": 0,
				"max_position_embeddings": 32768}), window},
		{"Qwen2 with a sliding layer", with(qwen, fields{"use_sliding_window": true, "sliding_window": 4096,
			"layer_types": []string{"full_attention", "sliding_attention", "full_attention", "full_attention"}}),
			window},
		{"a sliding layer without a window", with(qwen3, fields{"layer_types": []string{"sliding_attention"}}),
			`layer_types has "sliding_attention", expected only "full_attention"`},
		{"another kind of layer", with(qwen3, fields{"layer_types": []string{"full_attention", "linear_attention"}}),
			`layer_types has "linear_attention", expected only "full_attention"`},
		{"Llama with biases", with(llama, fields{"attention_bias": true}),
			"attention_bias true is not supported for llama"},
		{"Llama with biases of the MLP", with(llama, fields{"mlp_bias": true}), "mlp_bias true is not supported"},
		{"Qwen3 with biases", with(qwen3, fields{"attention_bias": true}),
			"attention_bias true is not supported for qwen3"},
		{"AWQ", with(qwen, fields{"quantization_config": fields{"bits": 4, "quant_method": "awq"}}),
			"quantization_config (awq) is not supported, expected F32, BF16 or F16 weights"},
		{"a reward model", with(qwen, fields{"architectures": []string{"Qwen2ForSequenceClassification"}}),
			`architectures is ["Qwen2ForSequenceClassification"], expected a name that ends in ForCausalLM`},
		{"GeLU", with(llama, fields{"hidden_act": "gelu_pytorch_tanh"}),
			`hidden_act is "gelu_pytorch_tanh", expected silu`},
		{"soft capping", with(llama, fields{"attn_logit_softcapping": 50.0}),
			"attn_logit_softcapping is not supported"},
		{"final soft capping", with(llama, fields{"final_logit_softcapping": 30.0}),
			"final_logit_softcapping is not supported"},
		{"experts", with(llama, fields{"num_local_experts": 8}),
			"num_local_experts is 8, but mixture-of-experts models are not supported"},
		{"mrope", with(qwen, fields{"use_mrope": true}), "use_mrope true is not supported"},
		{"partial rotary", with(llama, fields{"partial_rotary_factor": 0.5}),
			"partial_rotary_factor 0.5 is not supported, expected 1"},
		{"partial rotary inside",
			with(llama, fields{"rope_parameters": fields{"rope_type": "default", "partial_rotary_factor": 0.25}}),
			"rope_parameters: partial_rotary_factor 0.25 is not supported, expected 1"},
		{"long rope",
			with(llama, fields{"rope_scaling": fields{"type": "longrope", "long_factor": []float64{1},
				"short_factor": []float64{1}}}),
			`rope scaling "longrope" is not supported, expected default, linear, dynamic, yarn or llama3`},
		{"mrope scaling",
			with(qwen, fields{"rope_scaling": fields{"type": "mrope", "mrope_section": []int{16, 24, 24}}}),
			`rope scaling "mrope" is not supported, expected default, linear, dynamic, yarn or llama3`},
		{"rope by layer type",
			with(qwen, fields{"rope_parameters": fields{"full_attention": fields{"rope_type": "default"}}}),
			"rope_parameters: full_attention is an object, but settings per layer are not supported"},
		{"factor without rope_type", with(llama, fields{"rope_scaling": fields{"factor": 2.0}}),
			"rope_scaling: factor is 2 without a rope_type, expected one of linear, dynamic, yarn and llama3"},
		{"truncate", with(llama, fields{"rope_scaling": fields{"rope_type": "yarn", "factor": 2.0, "truncate": 1}}),
			"rope_scaling: truncate is 1, expected true or false"},
		{"YaRN without a base",
			with(llama, fields{"rope_theta": 1, "rope_scaling": fields{"rope_type": "yarn", "factor": 2.0}}),
			"rope_scaling: rope_theta is 1, expected more than 1 for yarn"},
		{"rope_type", with(llama, fields{"rope_scaling": fields{"rope_type": 3}}),
			"rope_scaling: rope_type is 3, expected a string"},

		{"Phi-3-mini", fields{"architectures": []string{"Phi3ForCausalLM"}, "model_type": "phi3", "hidden_act": "silu",
			"hidden_size":  3072,
			"rope_scaling": nil, "sliding_window": 2047, "num_hidden_layers": 32}, `model_type is "phi3", ` + kinds},
		{"Gemma-2-2b", fields{"architectures": []string{"Gemma2ForCausalLM"}, "model_type": "gemma2",
			"hidden_act":             "gelu_pytorch_tanh",
			"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "query_pre_attn_scalar": 256,
			"sliding_window": 4096},
			`model_type is "gemma2", ` + kinds + "\nhidden_act is \"gelu_pytorch_tanh\", expected silu\n" +
				"attn_logit_softcapping is not supported\nfinal_logit_softcapping is not supported"},
		{"Gemma-3-4b", fields{"architectures": []string{"Gemma3ForConditionalGeneration"}, "model_type": "gemma3",
			"eos_token_id": []int{1, 106},
			"text_config":  fields{"hidden_size": 2560}}, `model_type is "gemma3", ` + kinds +
			"\narchitectures is [\"Gemma3ForConditionalGeneration\"], expected a name that ends in ForCausalLM"},
		{"Qwen3-30B-A3B", with(qwen3, fields{"model_type": "qwen3_moe",
			"architectures": []string{"Qwen3MoeForCausalLM"}, "num_experts": 128,
			"num_experts_per_tok": 8}), "num_experts is 128, but mixture-of-experts models are not supported\n" +
			`model_type is "qwen3_moe", ` + kinds},
		{"Mixtral-8x7B", with(mistral, fields{"model_type": "mixtral", "num_local_experts": 8}),
			"num_local_experts is 8, but mixture-of-experts models are not supported\n" +
				`model_type is "mixtral", ` + kinds},
		{"DeepSeek-V3", fields{"model_type": "deepseek_v3", "n_routed_experts": 256,
			"quantization_config": fields{"quant_method": "fp8"}},
			"n_routed_experts is 256, but mixture-of-experts models are not supported\n" +
				`model_type is "deepseek_v3", ` + kinds +
				"\nquantization_config (fp8) is not supported, expected F32, BF16 or F16 weights"},
		{"GPT-2", fields{"model_type": "gpt2", "n_embd": 768, "activation_function": "gelu_new"},
			`model_type is "gpt2", ` + kinds},
		{"a type of other fields", fields{"model_type": "other", "hidden_size": []int{1, 2}},
			`model_type is "other", ` + kinds},
		{"SmolLM3", with(llama, fields{"model_type": "smollm3", "no_rope_layers": []int{1, 1, 1, 0}}),
			`model_type is "smollm3", ` + kinds},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			_, err := parseFields(t, m.config)
			require.EqualError(t, err, m.want)
		})
	}
}

// Missing fields default to transformers' values for the family.
func TestMissingFields(t *testing.T) {
	t.Parallel()
	bare := fields{"hidden_size": 4096, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 32,
		"vocab_size":              10,
		"max_position_embeddings": 2048}
	for _, m := range []struct {
		modelType        string
		extra            fields
		kvHeads, headDim int
	}{
		{"llama", nil, 32, 128},
		{"llama", fields{"num_attention_heads": 64}, 64, 64},
		{"llama", fields{"sliding_window": 5}, 32, 128},
		{"mistral", nil, 8, 128},
		{"mistral", fields{"num_key_value_heads": nil}, 32, 128},
		{"qwen2", nil, 32, 128},
		{"qwen2", fields{"num_attention_heads": 64}, 32, 64},
		{"qwen2", fields{"sliding_window": 5}, 32, 128},
		{"qwen2", fields{"sliding_window": 5, "use_sliding_window": true, "max_window_layers": 1}, 32, 128},
		{"qwen2", fields{"sliding_window": 2048, "use_sliding_window": true, "max_window_layers": 0}, 32, 128},
		{"qwen3", nil, 32, 128},
		{"qwen3", fields{"num_attention_heads": 64}, 32, 128},
		{"qwen3", fields{"hidden_size": 1024, "layer_types": []string{"full_attention"}, "use_sliding_window": true,
			"max_window_layers": 0}, 32, 128},
		{"qwen3", fields{"hidden_act": "swish", "architectures": nil, "quantization_config": nil,
			"attn_logit_softcapping": nil}, 32, 128},
	} {
		c, err := parseFields(t, with(bare, fields{"model_type": m.modelType}, m.extra))
		require.NoError(t, err, "%s %v", m.modelType, m.extra)
		require.Equal(t, m.kvHeads, c.KVHeads, "%s %v", m.modelType, m.extra)
		require.Equal(t, m.headDim, c.HeadDim, "%s %v", m.modelType, m.extra)
		require.False(t, c.Tied)
		require.InDelta(t, 1e-6, c.NormEps, 1e-12)
		require.InDelta(t, 10000, c.RopeTheta, 0)
		require.Equal(t, "default", c.RopeScaling.Kind)
		require.Equal(t, m.modelType == "qwen2", c.QKVBias)
		require.Equal(t, m.modelType == "qwen3", c.QKNorm)
	}
}

// The rotary base and scaling may be in either place; rope_scaling wins.
func TestRopeFromEitherPlace(t *testing.T) {
	t.Parallel()
	base := with(llama1(4096, 1e4, 1e-5), size(64, 128, 4, 4, 2, 1000, false))
	yarn := fields{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024, "rope_theta": 77.0}
	for _, m := range []struct {
		name  string
		extra fields
		theta float64
		want  rope.Scaling
	}{
		{"beside", fields{"rope_theta": 5e5, "rope_scaling": fields{"type": "linear", "factor": 2.0}}, 5e5,
			rope.Scaling{Kind: "linear", Factor: 2, Original: 4096}},
		{"new", fields{"rope_parameters": yarn}, 77, rope.Scaling{Kind: "yarn", Factor: 4, Original: 1024}},
		{"new, with the base beside", fields{"rope_theta": 9.0, "rope_parameters": fields{"rope_type": "default"}}, 9,
			rope.Scaling{Kind: "default", Original: 4096}},
		{"both", fields{"rope_scaling": fields{"type": "linear", "factor": 2.0}, "rope_parameters": yarn}, 1e4,
			rope.Scaling{Kind: "linear", Factor: 2, Original: 4096}},
		{"an empty scaling", fields{"rope_scaling": fields{}, "rope_parameters": yarn}, 77,
			rope.Scaling{Kind: "yarn", Factor: 4, Original: 1024}},
		{"both types", fields{"rope_scaling": fields{"type": "dynamic", "rope_type": "linear", "factor": 2.0}}, 1e4,
			rope.Scaling{Kind: "linear", Factor: 2, Original: 4096}},
		{"original length on top", fields{"original_max_position_embeddings": 512, "rope_parameters": yarn}, 77,
			rope.Scaling{Kind: "yarn", Factor: 4, Original: 512}},
		{"factor of the lengths", fields{"rope_parameters": with(yarn, fields{"factor": nil})}, 77,
			rope.Scaling{Kind: "yarn", Factor: 4, Original: 1024}},
		{"no original length", fields{"rope_scaling": fields{"type": "yarn", "factor": 8.0}}, 1e4,
			rope.Scaling{Kind: "yarn", Factor: 8, Original: 4096}},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			c, err := parseFields(t, with(base, m.extra))
			require.NoError(t, err)
			require.InDelta(t, m.theta, c.RopeTheta, 0)
			m.want.BetaFast, m.want.BetaSlow, m.want.Truncate = 32, 1, true
			require.Equal(t, m.want, c.RopeScaling)
		})
	}
}
