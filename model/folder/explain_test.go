package folder

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/usage"
)

// Errors say what a path is instead of a model folder.
func TestOpenExplains(t *testing.T) {
	for _, test := range []struct {
		name  string
		files map[string]string // in the working directory
		path  string
		want  []string
	}{
		{"name of the Hub", nil, "Qwen/Qwen2.5-0.5B",
			[]string{"there is no folder ", "/Qwen/Qwen2.5-0.5B; download the model from the Hugging Face Hub with: " +
				"hf download Qwen/Qwen2.5-0.5B --local-dir Qwen/Qwen2.5-0.5B"}},
		{"another owner", nil, "somebody/My-Model_1.5",
			[]string{"hf download somebody/My-Model_1.5 --local-dir somebody/My-Model_1.5"}},
		{"address of the Hub", nil, "https://huggingface.co/meta-llama/Llama-3.2-1B/tree/main",
			[]string{"hf download meta-llama/Llama-3.2-1B --local-dir meta-llama/Llama-3.2-1B"}},
		{"another model of a publisher", map[string]string{"Qwen/Qwen3-0.6B/x": ""}, "Qwen/Qwen2.5-0.5B",
			[]string{"hf download Qwen/Qwen2.5-0.5B "}},
		{"folder of this machine", map[string]string{"local/other/x": ""}, "local/model",
			[]string{"local/model does not exist; paths are relative to the working directory /"}},
		{"deeper", nil, "a/b/c", []string{"a/b/c does not exist; paths are relative to the working directory /"}},
		{"one name", nil, "qwen", []string{"qwen does not exist; paths are relative"}},
		{"home", nil, "~/models/qwen",
			[]string{"~/models/qwen does not exist; ~ is not expanded: write the whole path"}},
		{"variable", nil, "$HOME/qwen", []string{"variables are not expanded"}},
		{"absolute", nil, "/none/qwen", []string{"read model folder: /none/qwen does not exist"}},
		{"GGUF", map[string]string{"m.gguf": "GGUF"}, "m.gguf",
			[]string{"m.gguf is a file, expected a Hugging Face model folder; GGUF files hold weights for llama.cpp"}},
		{"weights", map[string]string{"m/model.safetensors": ""}, "m/model.safetensors",
			[]string{"is a file, expected a Hugging Face model folder; did you mean its folder, m?"}},
		{"bin", map[string]string{"pytorch_model.bin": ""}, "pytorch_model.bin",
			[]string{"is a file, expected a Hugging Face model folder; convert the weights with transformers"}},
		{"LoRA",
			map[string]string{"l/adapter_config.json": `{"peft_type":"LORA",` +
				`"base_model_name_or_path":"Qwen/Qwen3-0.6B"}`, "l/adapter_model.safetensors": ""}, "l",
			[]string{"l holds a LORA adapter of Qwen/Qwen3-0.6B, expected a whole model; merge it into its base " +
				"model with peft's merge_and_unload"}},
		{"cache", map[string]string{"models--Qwen--Qwen3-0.6B/snapshots/abc/config.json": "{}"},
			"models--Qwen--Qwen3-0.6B",
			[]string{"is a download cache; did you mean models--Qwen--Qwen3-0.6B/snapshots/abc?"}},
		{"folder of GGUF", map[string]string{"g/m-Q4.gguf": ""}, "g",
			[]string{"g has m-Q4.gguf, expected model.safetensors"}},
		{"only weights", map[string]string{"w/model.safetensors": ""}, "w",
			[]string{"w has weights but no config.json"}},
		{"empty", map[string]string{"e/x": ""}, "e",
			[]string{"open e/config.json", "e is not a Hugging Face model folder"}},
		{"Git LFS", map[string]string{"p/config.json": "version https://git-lfs.github.com/spec/v1\noid sha256:ab\n"},
			"p", []string{"p/config.json: found a Git LFS pointer, expected JSON; fetch the file itself"}},
		{"web page", map[string]string{"h/config.json": "<!doctype html><title>Sign in"}, "h",
			[]string{"h/config.json: found a web page, expected JSON"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			for name, content := range test.files {
				require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
				require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
			}
			_, err := Open(test.path)
			require.True(t, usage.Is(err), err)
			for _, want := range test.want {
				require.ErrorContains(t, err, want)
			}
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

// A folder whose weights have another format, or were not downloaded, says so.
func TestWeightsExplain(t *testing.T) {
	config, err := Sizes{Hidden: 8, FFN: 8, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 4, Vocab: 16}.Config()
	require.NoError(t, err)
	for name, test := range map[string]struct{ file, content, want string }{
		"bin": {"pytorch_model.bin", "PK\x03\x04",
			"m has its weights in pytorch_model.bin, expected " +
				"model.safetensors; convert the weights with transformers"},
		"shards":   {"pytorch_model-00001-of-00002.bin", "", "m has its weights in pytorch_model-00001-of-00002.bin"},
		"original": {"consolidated.00.pth", "", "m has its weights in consolidated.00.pth"},
		"GGUF":     {"q4.gguf", "", "m has q4.gguf, expected model.safetensors"},
		"unfinished": {".cache/huggingface/download/abc.incomplete", "",
			"m is an unfinished download; run hf download again"},
		"Git LFS": {"model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
			"found a Git LFS pointer, expected safetensors; fetch the file itself"},
		"pickle": {"model.safetensors", "PK\x03\x04archive/data.pkl", "found a zip archive, expected safetensors"},
		"web page": {"model.safetensors", "<html>Access to model is restricted</html>",
			"found a web page, expected safetensors"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join("m", test.file)), 0o755))
			require.NoError(t, os.WriteFile("m/config.json", config, 0o600))
			require.NoError(t, os.WriteFile(filepath.Join("m", test.file), []byte(test.content), 0o600))
			f, err := Open("m")
			require.NoError(t, err)
			_, err = f.Weights(nil)
			require.True(t, usage.Is(err), err)
			require.ErrorContains(t, err, test.want)
		})
	}
}
