package main

// IDs of the special tokens and of the thinking delimiters.
const (
	pad = iota
	eos
	bos
	thinkOpen
	thinkClose
)

func addedTokens() []string { return []string{"<pad>", "<eos>", "<bos>", "<think>", "</think>"} }

// characters is the rest of the vocabulary, one token per character.
const characters = "0123456789" + "+-*=;," + " \n?" + "abcdefghijklmnopqrstuvwxyz" + ".()"

// tokenizerFile returns a tokenizer.json: a byte-level BPE without merges, so
// that every character is a token.
func tokenizerFile() any {
	type object = map[string]any
	vocab := object{}
	var added []object
	for id, token := range addedTokens() {
		vocab[token] = id
		added = append(added, object{"id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
			"normalized": false, "special": id <= bos})
	}
	for i, c := range characters {
		vocab[byteLevel(c)] = len(added) + i
	}
	bytes := object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}
	return object{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added, "normalizer": nil,
		"pre_tokenizer": bytes, "post_processor": nil, "decoder": bytes,
		"model": object{"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil,
			"end_of_word_suffix": nil, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": []string{}},
	}
}

// byteLevel returns the byte-level spelling of c: control characters and the
// space move up by 256.
func byteLevel(c rune) string {
	if c <= ' ' {
		c += 256
	}
	return string(c)
}

// tokenizerConfig returns a tokenizer_config.json.
func tokenizerConfig() any {
	names := addedTokens()
	return map[string]any{"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": names[bos],
		"eos_token": names[eos],
		"pad_token": names[pad], "model_max_length": maxPositions, "clean_up_tokenization_spaces": false}
}

// maxPositions is the maximum sequence length of the model.
const maxPositions = 256

// modelConfig returns a config.json: a Qwen3 with 0.795 million parameters.
func modelConfig() any {
	return map[string]any{
		"architectures": []string{"Qwen3ForCausalLM"}, "model_type": "qwen3", "torch_dtype": "float32",
		"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
		"intermediate_size": 384, "vocab_size": len(addedTokens()) + len(characters), "tie_word_embeddings": true,
		"hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "attention_bias": false,
		"max_position_embeddings": maxPositions, "initializer_range": 0.02,
		"bos_token_id": bos, "eos_token_id": eos, "pad_token_id": pad,
	}
}
