package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/easyrl/easyrl/chat"
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/rope"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
	"github.com/easyrl/easyrl/npu/plugin"
	"github.com/easyrl/easyrl/tokenizer"
)

// folder is a model folder: the decoder's shape, its tokenizer, and the files
// that a trained copy takes along.
type folder struct {
	dir    string // empty where the weights are random
	source string // what a user calls it
	key    string // of the configuration that names it; empty where none does
	seed   uint64 // of random weights
	shape  *model.Config
	tok    *tokenizer.Tokenizer // nil where the folder has none
	chat   *chat.Template       // nil where the folder has none
	files  map[string][]byte    // config.json, the tokenizer's files and generation_config.json
	stops  []int32              // of the model and the tokenizer

	sources []string // of the prompts that were read
	plain   string   // the first file of them with text instead of a conversation
	begins  []int32  // the tokens of the first ones, as many as a canary takes
}

const generationFile = "generation_config.json"

// openFolder reads all of a model folder but the weights.
func openFolder(dir string) (*folder, error) {
	shape, err := model.ReadConfig(dir)
	if err != nil {
		return nil, usageError{err}
	}
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, usageError{err}
	}
	return readFolder(dir, dir, config, shape)
}

// initFolder is a folder of random weights, drawn from seed, in the shape that a
// configuration gives.
func initFolder(init configs.Init, seed uint64) (*folder, error) {
	source := init.Config
	if source == "" {
		source = "[model.init]"
	}
	config, err := initConfig(init)
	if err != nil {
		return nil, usagef("read model configuration: %w", err)
	}
	shape, err := model.ParseConfig(config)
	if err != nil {
		return nil, usageError{inFile(source, err)}
	}
	tok := init.Tokenizer
	if tok == "" {
		tok = filepath.Dir(init.Config)
	}
	f, err := readFolder("", tok, config, shape)
	if err != nil {
		return nil, err
	}
	f.seed, f.source = seed, source
	return f, nil
}

// initConfig is the config.json of random weights: a file, or a Qwen3 of the
// given sizes.
func initConfig(init configs.Init) ([]byte, error) {
	if init.Config != "" {
		return os.ReadFile(init.Config)
	}
	return json.MarshalIndent(map[string]any{
		"architectures": []string{"Qwen3ForCausalLM"}, "model_type": "qwen3", "hidden_size": init.HiddenSize,
		"intermediate_size": init.FFN, "num_hidden_layers": init.Layers, "num_attention_heads": init.Heads,
		"num_key_value_heads": init.KVHeads, "head_dim": init.HeadDim, "vocab_size": init.VocabSize,
		"max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 10000, "hidden_act": "silu",
		"tie_word_embeddings": true, "attention_bias": false, "initializer_range": 0.02,
	}, "", "  ")
}

func readFolder(dir, tokDir string, config []byte, shape *model.Config) (*folder, error) {
	f := &folder{dir: dir, source: dir, shape: shape, stops: shape.StopIDs, files: map[string][]byte{}}
	config, err := asFloat32(config)
	if err != nil {
		return nil, usageError{fmt.Errorf("%s: config.json: %w", tokDir, err)}
	}
	f.files["config.json"] = config
	if f.tok, err = tokenizer.Load(tokDir); err != nil && !errors.Is(err, tokenizer.ErrNone) {
		return nil, usageError{err}
	}
	if f.chat, err = chat.Load(tokDir); err != nil && !errors.Is(err, chat.ErrNone) {
		return nil, usageError{err}
	}
	names := []string{generationFile, "chat_template.jinja", "chat_template.json", "special_tokens_map.json"}
	if f.tok != nil {
		if n := f.tok.VocabSize(); n > shape.VocabSize {
			return nil, usagef("%s: the tokenizer has %d ids, but the embedding %d rows", tokDir, n, shape.VocabSize)
		}
		for _, id := range f.tok.StopIDs() {
			if !slices.Contains(f.stops, id) {
				f.stops = append(f.stops, id)
			}
		}
		names = append(names, f.tok.Files()...)
	}
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(tokDir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, usageError{err}
		}
		f.files[name] = b
	}
	return f, nil
}

// asFloat32 is a config.json for weights saved as float32, otherwise unchanged.
func asFloat32(config []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(config, &fields); err != nil {
		return nil, err
	}
	for _, key := range []string{"torch_dtype", "dtype"} {
		if _, ok := fields[key]; ok || key == "torch_dtype" {
			fields[key] = json.RawMessage(`"float32"`)
		}
	}
	return json.MarshalIndent(fields, "", "  ")
}

// weights loads the folder's weights, or draws them where they are random. Files
// that are not those of the shape are a usage error, found before any memory is
// taken for them.
func (f *folder) weights(dev npu.Device) (*model.Weights, error) {
	if f.dir != "" {
		if err := f.shape.CheckFolder(f.dir); err != nil {
			return nil, ofKey(f.key, usageError{err})
		}
	}
	w, err := model.NewWeights(dev, f.shape, npu.Weights)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.source, err)
	}
	if f.dir == "" {
		w.Init(f.seed)
		return w, dev.Sync()
	}
	if err := w.Load(f.dir); err != nil {
		w.Free()
		return nil, ofKey(f.key, usageError{err})
	}
	return w, nil
}

// text is what a person reads of a response: without the token that ended it
// and without special tokens; empty where there is no tokenizer.
func (f *folder) text(ids []int32) string {
	if n := len(ids); n > 0 && slices.Contains(f.stops, ids[n-1]) {
		ids = ids[:n-1]
	}
	if f.tok == nil {
		return ""
	}
	return f.tok.Decode(ids)
}

// openDevice opens the device of a configuration with a number of threads, 0
// for all. What it cannot open is a usage error.
func openDevice(kind string, threads int) (npu.Device, error) {
	var dev npu.Device
	var err error
	if kind == configs.CPU {
		dev, err = cpu.Open(threads)
	} else {
		dev, err = plugin.Open(kind, 0, threads)
	}
	switch {
	case err != nil && (kind == configs.CUDA || kind == configs.Ascend):
		return nil, usagef("device.kind is %q, expected %q, or the path of a kernel library: %w", kind, configs.CPU, err)
	case err != nil:
		return nil, usageError{err}
	}
	return dev, nil
}

// fingerprint names what a decoder of this shape computes from its weights: what
// does not change that is left out.
func fingerprint(shape *model.Config) string {
	c := *shape
	c.MaxPositions, c.InitStd, c.StopIDs, c.BOS = 0, 0, nil, 0
	if c.RopeScaling.Kind == "default" {
		c.RopeScaling = rope.Scaling{}
	}
	return fmt.Sprintf("%016x", xxhash.Sum64String(fmt.Sprintf("%+v", c)))
}
