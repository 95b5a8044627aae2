package remote

import (
	"fmt"
	"os"
	"path/filepath"
)

func (f *fake) vllm(call string, body object) (any, int) {
	switch call {
	case "GET /version":
		return object{"version": "0.22.0"}, 200
	case "GET /server_info":
		return object{"vllm_config": object{
			"scheduler_config": object{"max_num_seqs": 96}, "parallel_config": object{"data_parallel_size": 2},
			"model_config": object{"logprobs_mode": "processed_logprobs"},
		}}, 200
	case "POST /v1/completions":
		own := f.value
		defer func() { f.value = own }()
		if name := body["model"].(string); name != "tiny" {
			value, ok := f.adapters[name]
			if !ok {
				return object{"error": object{"message": fmt.Sprintf("The model `%s` does not exist.", name),
					"type": "NotFoundError"}}, 404
			}
			f.value = value
		}
		return f.completions(body), 200
	case "POST /v1/load_lora_adapter", "POST /v1/unload_lora_adapter":
		return f.adapter(call, body)
	case "POST /pause":
		f.paused = true
		return object{"status": "paused"}, 200
	case "POST /resume":
		f.paused = false
		return object{"status": "resumed"}, 200
	case "POST /reset_prefix_cache":
		return object{"success": true}, 200
	case "POST /collective_rpc":
		args := body["args"].([]any)
		if body["method"] == "easyrl_load" {
			data, err := os.ReadFile(filepath.Join(args[0].(string), "model.safetensors"))
			if err != nil {
				return object{"detail": err.Error()}, 500
			}
			if !f.old {
				f.value, _ = readFake(data)
			}
			f.label = args[1].(string)
		}
		return object{"results": []any{f.label, f.label}}, 200
	}
	return notFound()
}

// adapter loads or unloads a LoRA adapter.
func (f *fake) adapter(call string, body object) (any, int) {
	name := body["lora_name"].(string)
	_, held := f.adapters[name]
	if call == "POST /v1/unload_lora_adapter" {
		if !held {
			return object{"error": object{"message": "cannot be found", "type": "NotFoundError"}}, 404
		}
		delete(f.adapters, name)
		return "Success: LoRA adapter removed successfully.", 200
	}
	if held {
		return object{"error": object{"message": "already loaded"}}, 400
	}
	data, err := os.ReadFile(filepath.Join(body["lora_path"].(string), "adapter_model.safetensors"))
	if err == nil {
		_, err = os.Stat(filepath.Join(body["lora_path"].(string), "adapter_config.json"))
	}
	if err != nil {
		return object{"error": object{"message": fmt.Sprintf("Loading lora %s failed: No adapter found", name)}}, 404
	}
	f.adapters[name] = f.value // of the model alone
	if !f.old {
		f.adapters[name], _ = readFake(data)
	}
	return "Success: LoRA adapter added successfully.", 200
}
