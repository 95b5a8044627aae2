// Package folder reads and writes model folders in Hugging Face's layout: shape,
// weights, tokenizer, chat template and generation settings.
package folder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"github.com/easyrl/easyrl/attention/rope"
	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/arch"
	"github.com/easyrl/easyrl/model/source"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/tokenizer"
	"github.com/easyrl/easyrl/tokenizer/chat"
)

// GenerationFile is the name of the generation settings.
const GenerationFile = "generation_config.json"

// Folder is a model folder without its weights, or the description of a model with
// random weights. It is immutable.
type Folder struct {
	Dir       string // empty if the weights are random
	Source    string // name of the model in errors
	Shape     *model.Config
	Tokenizer *tokenizer.Tokenizer // nil without tokenizer files
	Template  *chat.Template       // nil without a chat template
	Files     map[string][]byte    // files that a trained copy keeps: config.json, tokenizer and generation files
	StopIDs   []int32              // stop ids of the model and the tokenizer
	// Foreign means that package model cannot compute the decoder. Shape then has only the fields
	// that arch.ReadForeign sets.
	Foreign    bool
	parameters int64  // number of parameters of a foreign decoder
	seed       uint64 // seed of random weights
}

// Open reads a model folder, except its weights.
func Open(dir string) (*Folder, error) {
	shape, err := arch.ReadConfig(dir)
	if err != nil {
		return nil, usage.Wrap(explain(dir, err))
	}
	config, err := filetype.Read(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, usage.Wrap(err)
	}
	return read(dir, dir, config, shape)
}

// OpenAny is Open for decoders of any architecture. transformers, which computes those, opens
// files of the folder by itself, so every entry must be a regular file or a folder.
func OpenAny(dir string) (*Folder, error) {
	if err := filetype.CheckFolder(dir); errors.Is(err, filetype.ErrIrregular) {
		return nil, usage.Wrap(err)
	}
	f, err := Open(dir)
	if err == nil {
		return f, nil
	}
	shape, parameters, foreign := arch.ReadForeign(dir)
	if foreign != nil {
		return nil, err // says why Open rejects the folder
	}
	config, foreign := filetype.Read(filepath.Join(dir, "config.json"))
	if foreign != nil {
		return nil, err
	}
	if f, err = read(dir, dir, config, shape); err == nil {
		f.Foreign, f.parameters = true, parameters
	}
	return f, err
}

// NumParams returns the number of weights. Tied embeddings count once.
func (f *Folder) NumParams() int64 {
	if f.Foreign {
		return f.parameters
	}
	return f.Shape.NumParams()
}

// Random describes a model with random weights drawn from seed, in the shape of a
// config.json. tokenizerDir holds the tokenizer's files and may be empty. source
// names the model in errors.
func Random(source, tokenizerDir string, config []byte, seed uint64) (*Folder, error) {
	shape, err := arch.ParseConfig(config)
	if err != nil {
		return nil, usage.Prefix(source, usage.Wrap(err))
	}
	f, err := read("", tokenizerDir, config, shape)
	if err != nil {
		return nil, err
	}
	f.seed, f.Source = seed, source
	return f, nil
}

// Sizes are the sizes of a Qwen3 decoder with tied embeddings.
type Sizes struct {
	Hidden, FFN, Layers, Heads, KVHeads, HeadDim, Vocab int
}

// Config returns the config.json of a decoder of these sizes.
func (s Sizes) Config() ([]byte, error) {
	return json.MarshalIndent(map[string]any{
		"architectures": []string{"Qwen3ForCausalLM"}, "model_type": "qwen3", "hidden_size": s.Hidden,
		"intermediate_size": s.FFN, "num_hidden_layers": s.Layers, "num_attention_heads": s.Heads,
		"num_key_value_heads": s.KVHeads, "head_dim": s.HeadDim, "vocab_size": s.Vocab,
		"max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 10000, "hidden_act": "silu",
		"tie_word_embeddings": true, "attention_bias": false, "initializer_range": 0.02,
	}, "", "  ")
}

// read returns a Folder with the files of tokenizerDir, which may be empty.
func read(dir, tokenizerDir string, config []byte, shape *model.Config) (*Folder, error) {
	f := &Folder{Dir: dir, Source: dir, Shape: shape, StopIDs: shape.StopIDs, Files: map[string][]byte{}}
	config, err := withType(config, npu.Float32)
	if err != nil {
		return nil, usage.Errorf("%s: config.json: %w", tokenizerDir, err)
	}
	f.Files["config.json"] = config
	if tokenizerDir == "" {
		return f, nil
	}
	if f.Tokenizer, err = tokenizer.Load(tokenizerDir); err != nil && !errors.Is(err, tokenizer.ErrNone) {
		return nil, usage.Wrap(err)
	}
	if f.Template, err = chat.Load(tokenizerDir); err != nil && !errors.Is(err, chat.ErrNone) {
		return nil, usage.Wrap(err)
	}
	names := []string{GenerationFile, "chat_template.jinja", "chat_template.json", "special_tokens_map.json"}
	if f.Tokenizer != nil {
		if n := f.Tokenizer.VocabSize(); n > shape.VocabSize {
			return nil, usage.Errorf("%s: the tokenizer has %d ids, but the embedding has %d rows", tokenizerDir, n,
				shape.VocabSize)
		}
		for _, id := range f.Tokenizer.StopIDs() {
			if !slices.Contains(f.StopIDs, id) {
				f.StopIDs = append(f.StopIDs, id)
			}
		}
		names = append(names, f.Tokenizer.Files()...)
	}
	for _, name := range names {
		b, err := filetype.Read(filepath.Join(tokenizerDir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, usage.Wrap(err)
		}
		f.Files[name] = b
	}
	return f, nil
}

// FilesAs returns Files for weights of the type of numerics.
func (f *Folder) FilesAs(n npu.Numerics) (map[string][]byte, error) {
	files := maps.Clone(f.Files)
	config, err := withType(files["config.json"], n.Type())
	files["config.json"] = config
	return files, err
}

// withType returns config with the weights' type set to t.
func withType(config []byte, t npu.DType) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(config, &fields); err != nil {
		return nil, err
	}
	for _, key := range []string{"torch_dtype", "dtype"} {
		if _, ok := fields[key]; ok || key == "torch_dtype" {
			fields[key] = json.RawMessage(strconv.Quote(t.String()))
		}
	}
	return json.MarshalIndent(fields, "", "  ")
}

// CheckWeights checks that the weights' files fit the shape, without reading values. It
// returns a usage error if they do not. Random weights have no files, and
// the tensors of a foreign decoder are not known.
func (f *Folder) CheckWeights() error {
	if f.Dir == "" || f.Foreign {
		return nil
	}
	if err := source.Check(f.Shape, f.Dir); err != nil {
		return usage.Wrap(explain(f.Dir, err))
	}
	return nil
}

// Weights loads the folder's weights into dev's memory, or draws them if they are
// random, in the type of dev's numerics. The caller frees them. It checks that the files fit the shape before it
// allocates memory; if they do not, the error is a usage error.
func (f *Folder) Weights(dev npu.Device) (*model.Weights, error) {
	return f.load(func() (*model.Weights, error) { return model.NewWeights(dev, f.Shape, npu.Weights) })
}

// Masters is Weights in float32, for training.
func (f *Folder) Masters(dev npu.Device) (*model.Weights, error) {
	return f.load(func() (*model.Weights, error) { return model.NewMasters(dev, f.Shape) })
}

// load fills weights that allocate returns.
func (f *Folder) load(allocate func() (*model.Weights, error)) (*model.Weights, error) {
	if err := f.CheckWeights(); err != nil {
		return nil, err
	}
	w, err := allocate()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Source, err)
	}
	if f.Dir == "" {
		if err := w.Init(f.seed); err != nil {
			w.Free()
			return nil, fmt.Errorf("%s: %w", f.Source, err)
		}
		return w, nil
	}
	if err := w.Load(f.Dir); err != nil {
		w.Free()
		return nil, usage.Wrap(err)
	}
	return w, nil
}

// Each calls use with the starting weights, tensor by tensor in the order of Config.Params. It needs
// memory for one tensor. Errors of use are returned as they are, others are usage errors.
func (f *Folder) Each(use source.Use) error {
	if err := f.CheckWeights(); err != nil {
		return err
	}
	var useErr error
	keepError := func(i int, p *tensor.Param, values []float32) error {
		useErr = use(i, p, values)
		return useErr
	}
	if f.Dir == "" {
		return source.Drawn(f.Shape, f.seed, keepError)
	}
	err := source.Folder(f.Shape, f.Dir, keepError)
	if useErr != nil {
		return useErr
	}
	return usage.Wrap(err)
}

// Text decodes a response without special tokens and without the token that ended it.
// It returns an empty string if the folder has no tokenizer.
func (f *Folder) Text(ids []int32) string {
	if n := len(ids); n > 0 && slices.Contains(f.StopIDs, ids[n-1]) {
		ids = ids[:n-1]
	}
	if f.Tokenizer == nil {
		return ""
	}
	return f.Tokenizer.Decode(ids)
}

// Fingerprint identifies what a decoder of this shape computes from its weights and
// ignores settings that do not affect that. It stays an XXH64, because trainers and
// servers of different versions compare it.
func Fingerprint(shape *model.Config) string {
	c := *shape
	c.MaxPositions, c.InitStd, c.StopIDs, c.BOS = 0, 0, nil, 0
	if c.RopeScaling.Kind == "default" {
		c.RopeScaling = rope.Scaling{}
	}
	return fmt.Sprintf("%016x", xxhash.Sum64String(fmt.Sprintf("%+v", c)))
}

// Write writes the folder with weights w to dir, which must be empty or not exist. On
// failure it removes what it wrote.
func (f *Folder) Write(dir string, w *model.Weights) (err error) {
	_, statErr := os.Stat(dir) // not nil if Write creates dir
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return usage.Errorf("write model folder: %w", err)
	}
	var wrote []string
	defer func() {
		if err == nil {
			return
		}
		for _, name := range wrote {
			_ = os.Remove(name) // may not exist
		}
		if statErr != nil {
			_ = os.Remove(dir)
		}
	}()
	for name, content := range f.Files {
		path := filepath.Join(dir, name)
		wrote = append(wrote, path)
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return fmt.Errorf("write model folder: %w", err)
		}
	}
	return checkpoint.WriteFile(filepath.Join(dir, "model.safetensors"), w.Sources(), map[string]string{"format": "pt"})
}
