// Package arch describes decoders: their shape, their tensors, and how a mesh of ranks divides
// them.
package arch

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/easyrl/easyrl/attention/rope"
	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/npu"
)

// Config is the shape of a decoder, as given by a Hugging Face config.json.
type Config struct {
	Type         string // "llama", "mistral", "qwen2" or "qwen3"; any model_type from ReadForeign
	HiddenSize   int
	FFNSize      int
	Layers       int
	Heads        int
	KVHeads      int
	HeadDim      int
	VocabSize    int
	MaxPositions int
	NormEps      float32
	RopeTheta    float64
	RopeScaling  rope.Scaling
	InitStd      float64
	Tied         bool // the output projection shares the embedding's weights
	QKVBias      bool
	QKNorm       bool    // RMS norm of each query and key head before RoPE
	StopIDs      []int32 // end-of-sequence ids
	BOS          int32   // -1 if the model has none

	part *Part // nil for a complete decoder
}

// ParseConfig parses a config.json. It rejects settings that are known to change the arithmetic
// in a way that package model does not support. The error may name several fields.
func ParseConfig(b []byte) (*Config, error) {
	h, err := readFields(b)
	if err != nil {
		return nil, err
	}
	errs := h.unsupported()
	theta, scaling, err := rope.Read(rope.Fields{Theta: h.RopeTheta, MaxPositions: float64(h.MaxPositions),
		Scaling: h.RopeScaling, Parameters: h.RopeParameters, Original: h.OriginalPositions})
	if err != nil {
		errs = append(errs, err)
	}
	c := &Config{Type: h.ModelType, HiddenSize: h.HiddenSize, FFNSize: h.IntermediateSize, Layers: h.NumHiddenLayers,
		Heads: h.NumAttentionHeads, KVHeads: h.NumAttentionHeads, VocabSize: h.VocabSize, MaxPositions: h.MaxPositions,
		NormEps: float32(h.RMSNormEps), RopeTheta: theta, RopeScaling: scaling, InitStd: h.InitializerRange,
		Tied: h.TieWordEmbeddings, QKVBias: h.ModelType == qwen2, QKNorm: h.ModelType == qwen3, StopIDs: h.EOS, BOS: -1}
	if h.NumKeyValueHeads != nil {
		c.KVHeads = *h.NumKeyValueHeads
	}
	if h.HeadDim != nil {
		c.HeadDim = *h.HeadDim
	} else if c.Heads > 0 {
		c.HeadDim = c.HiddenSize / c.Heads
	}
	if h.BOS != nil {
		c.BOS = *h.BOS
	}
	if err := errors.Join(append(errs, c.validate())...); err != nil {
		return nil, err
	}
	return c, nil
}

// Limits on sizes, above those of any real decoder. They reject corrupt files before
// anything is allocated.
const (
	maxSize   = 1 << 24
	maxLayers = 1 << 12
	maxParams = 1 << 41
)

// validate reports all faults of the sizes or, if there are none, of the other fields.
func (c *Config) validate() error {
	var errs []error
	for _, f := range []struct {
		name   string
		v, max int
	}{
		{"hidden_size", c.HiddenSize, maxSize}, {"intermediate_size", c.FFNSize, maxSize},
		{"num_hidden_layers", c.Layers, maxLayers},
		{"num_attention_heads", c.Heads, maxSize}, {"num_key_value_heads", c.KVHeads, maxSize},
		{"head_dim", c.HeadDim, maxSize},
		{"vocab_size", c.VocabSize, npu.MaxVocab}, {"max_position_embeddings", c.MaxPositions, maxSize},
	} {
		if f.v < 1 || f.v > f.max {
			errs = append(errs, fmt.Errorf("%s is %d, expected 1 to %d", f.name, f.v, f.max))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	expect := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	expect(c.Heads%c.KVHeads == 0, "num_attention_heads is %d, expected a multiple of num_key_value_heads (%d)",
		c.Heads, c.KVHeads)
	expect(c.HeadDim%2 == 0, "head_dim is %d, expected an even number", c.HeadDim)
	expect(c.NormEps > 0 && c.NormEps <= 1, "rms_norm_eps is %v, expected more than 0 and at most 1", c.NormEps)
	expect(c.RopeTheta > 0 && !math.IsInf(c.RopeTheta, 0),
		"rope_theta is %v, expected a finite number above 0", c.RopeTheta)
	expect(c.InitStd >= 0 && c.InitStd <= 100, "initializer_range is %v, expected 0 to 100", c.InitStd)
	// In float64, because the product of the sizes may overflow an int. projected is the sum of the
	// attention's four projections' dimensions other than the hidden size.
	width, projected := float64(c.HiddenSize), float64(float64(c.HeadDim)*float64(2*c.Heads+2*c.KVHeads))
	params := width * (float64(c.VocabSize) + float64(float64(c.Layers)*(projected+float64(3*float64(c.FFNSize)))))
	expect(params <= maxParams, "the sizes give %.3g parameters, expected at most %.3g", params, float64(maxParams))
	return errors.Join(append(errs, c.checkStops(c.StopIDs))...)
}

// checkStops rejects ids outside the vocabulary.
func (c *Config) checkStops(ids []int32) error {
	for _, id := range ids {
		if id < 0 || int(id) >= c.VocabSize {
			return fmt.Errorf("eos_token_id %d is outside the vocabulary of %d", id, c.VocabSize)
		}
	}
	return nil
}

// ReadConfig reads dir/config.json and adds the stop ids of
// dir/generation_config.json, if that file exists.
func ReadConfig(dir string) (*Config, error) {
	b, err := filetype.Read(filepath.Join(dir, "config.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read model folder: %w; %s is not a Hugging Face model folder%s", err, dir, nearby(dir))
	}
	if err != nil {
		return nil, fmt.Errorf("read model folder: %w", err)
	}
	c, err := ParseConfig(b)
	if err != nil {
		return nil, inFile(filepath.Join(dir, "config.json"), err)
	}
	return c, c.readStops(dir)
}

// readStops adds the stop ids of dir/generation_config.json, if that file exists.
func (c *Config) readStops(dir string) error {
	name := filepath.Join(dir, "generation_config.json")
	b, err := filetype.Read(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read model folder: %w", err)
	}
	if err := c.addStops(b); err != nil {
		return inFile(name, err)
	}
	return nil
}

// nearby returns a hint that names the last checkpoint, in order of names, if dir is the folder of a
// run or of a run's checkpoints. Otherwise it returns "".
func nearby(dir string) string {
	for _, subfolder := range []string{"checkpoints", ""} {
		found, err := filepath.Glob(filepath.Join(dir, subfolder, "step-*", "config.json"))
		if n := len(found); err == nil && n > 0 {
			return "; did you mean " + filepath.Dir(found[n-1]) + "?"
		}
	}
	return ""
}

// addStops adds the stop ids of a generation_config.json.
func (c *Config) addStops(b []byte) error {
	var g struct {
		EOS tokenIDs `json:"eos_token_id"`
	}
	if err := unmarshal(b, &g); err != nil {
		return err
	}
	if err := c.checkStops(g.EOS); err != nil {
		return err
	}
	for _, id := range g.EOS {
		if !slices.Contains(c.StopIDs, id) {
			c.StopIDs = append(c.StopIDs, id)
		}
	}
	return nil
}

// inFile prefixes each of the joined errors with a file name.
func inFile(name string, err error) error {
	joined, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // split only err itself, not what it wraps
	if !ok {
		return fmt.Errorf("%s: %w", name, err)
	}
	var errs []error
	for _, e := range joined.Unwrap() {
		errs = append(errs, inFile(name, e))
	}
	return errors.Join(errs...)
}
