package folder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/internal/paths"
)

// explain replaces err, an error of reading a model folder, by one that says what dir is instead and
// what to do about it. It returns err if it knows no better.
func explain(dir string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, checkpoint.ErrNotFound) && !paths.IsFile(dir) {
		return err
	}
	if paths.IsFile(dir) {
		return fmt.Errorf("read model folder: %s is a file, expected a Hugging Face model folder%s", dir,
			insteadOfFile(dir))
	}
	if _, statErr := os.Stat(dir); errors.Is(statErr, fs.ErrNotExist) {
		if name := hubName(dir); name != "" {
			return fmt.Errorf("read model folder: there is no folder %s; download the model from the Hugging Face "+
				"Hub with: hf download %s --local-dir %s", paths.Absolute(name), name, name)
		}
		return fmt.Errorf("read model folder: %s", paths.Missing(dir))
	}
	if more := insteadOfFolder(dir); more != "" {
		return fmt.Errorf("read model folder: %s %s", dir, more)
	}
	return err
}

// hubName returns the name of a model of the Hugging Face Hub that a path without a folder
// probably means, such as "Qwen/Qwen2.5-0.5B", or "".
func hubName(path string) string {
	for _, prefix := range []string{"https://", "http://", "hf://", "www.", "huggingface.co/", "hf.co/", "models/"} {
		path = strings.TrimPrefix(path, prefix)
	}
	path, _, _ = strings.Cut(path, "/tree/")
	path, _, _ = strings.Cut(path, "/resolve/")
	path = strings.TrimSuffix(path, "/")
	if !regexp.MustCompile(`^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$`).MatchString(path) {
		return ""
	}
	owner, _, _ := strings.Cut(path, "/")
	if _, err := os.Stat(owner); err == nil && !publisher(owner) {
		return "" // a folder of this machine
	}
	return path
}

// publisher reports whether owner publishes models of the supported families on the Hub.
func publisher(owner string) bool {
	switch strings.ToLower(owner) {
	case "qwen", "meta-llama", "mistralai", "huggingfacetb", "deepseek-ai", "unsloth", "tinyllama", "nousresearch",
		"allenai", "primeintellect", "open-thoughts", "agentica-org":
		return true
	}
	return false
}

// insteadOfFile returns a hint for a file that was given as a model folder, or "".
func insteadOfFile(path string) string {
	parent := filepath.Dir(path)
	switch strings.ToLower(filepath.Ext(path)) {
	case ".gguf":
		return "; GGUF files hold weights for llama.cpp: download the model's safetensors"
	case ".safetensors", ".json", ".model", ".jinja":
		return "; did you mean its folder, " + parent + "?"
	case ".bin", ".pt", ".pth", ".ckpt":
		return "; " + convert
	}
	return ""
}

// convert says how to get a folder with safetensors.
const convert = "convert the weights with transformers: AutoModelForCausalLM.from_pretrained(…).save_pretrained(…)"

// insteadOfFolder returns what a folder is that lacks a model's files, and what to do, or "".
func insteadOfFolder(dir string) string {
	first := func(pattern string) string { // name of the first file that matches, or ""
		found, _ := filepath.Glob(filepath.Join(dir, pattern))
		if len(found) == 0 {
			return ""
		}
		return filepath.Base(found[0])
	}
	if text, err := filetype.Read(filepath.Join(dir, "adapter_config.json")); err == nil {
		var adapter struct {
			Kind string `json:"peft_type"`
			Base string `json:"base_model_name_or_path"`
		}
		_ = json.Unmarshal(text, &adapter) // for the message only
		ofBase := ""
		if adapter.Base != "" {
			ofBase = " of " + adapter.Base
		}
		return fmt.Sprintf("holds a %s adapter%s, expected a whole model; merge it into its base model with peft's "+
			"merge_and_unload", adapter.Kind, ofBase)
	}
	for _, snapshot := range []string{"snapshots/*/config.json", "*/snapshots/*/config.json"} {
		if found, _ := filepath.Glob(filepath.Join(dir, snapshot)); len(found) > 0 {
			return "is a download cache; did you mean " + filepath.Dir(found[len(found)-1]) + "?"
		}
	}
	if first("*.safetensors") != "" && first("config.json") == "" {
		return "has weights but no config.json; download the model's other files too"
	}
	for _, pattern := range []string{"pytorch_model*.bin", "consolidated*.pth", "*.pt", "*.pth", "tf_model.h5",
		"flax_model.msgpack"} {
		if name := first(pattern); name != "" {
			return fmt.Sprintf("has its weights in %s, expected model.safetensors; %s", name, convert)
		}
	}
	if name := first("*.gguf"); name != "" {
		return fmt.Sprintf("has %s, expected model.safetensors; GGUF files hold weights for llama.cpp: download the "+
			"model's safetensors", name)
	}
	if first("*.incomplete") != "" || first(".cache/huggingface/download/*.incomplete") != "" {
		return "is an unfinished download; run hf download again"
	}
	return ""
}
