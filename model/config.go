package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/easyrl/easyrl/attention"
)

// Config is the shape of a decoder, as a Hugging Face config.json gives it.
type Config struct {
	Type         string // "llama", "mistral", "qwen2" or "qwen3"
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
	InitStd      float64
	Tied         bool // the output projection is the embedding
	QKVBias      bool
	QKNorm       bool    // RMS norm of each query and key head before RoPE
	StopIDs      []int32 // end-of-sequence ids
	BOS          int32   // -1 where there is none
}

// hfConfig names the fields of config.json that the decoder depends on.
type hfConfig struct {
	ModelType         string         `json:"model_type"`
	HiddenSize        int            `json:"hidden_size"`
	IntermediateSize  int            `json:"intermediate_size"`
	NumHiddenLayers   int            `json:"num_hidden_layers"`
	NumAttentionHeads int            `json:"num_attention_heads"`
	NumKeyValueHeads  *int           `json:"num_key_value_heads"`
	HeadDim           *int           `json:"head_dim"`
	VocabSize         int            `json:"vocab_size"`
	MaxPositions      int            `json:"max_position_embeddings"`
	RMSNormEps        float64        `json:"rms_norm_eps"`
	RopeTheta         float64        `json:"rope_theta"`
	RopeScaling       map[string]any `json:"rope_scaling"`
	RopeParameters    map[string]any `json:"rope_parameters"`
	InitializerRange  *float64       `json:"initializer_range"`
	TieWordEmbeddings bool           `json:"tie_word_embeddings"`
	HiddenAct         string         `json:"hidden_act"`
	AttentionBias     bool           `json:"attention_bias"`
	MLPBias           bool           `json:"mlp_bias"`
	SlidingWindow     *int           `json:"sliding_window"`
	UseSlidingWindow  *bool          `json:"use_sliding_window"`
	EOS               idList         `json:"eos_token_id"`
	BOS               *int32         `json:"bos_token_id"`
}

// idList is a token id, a list of them, or null.
type idList []int32

func (l *idList) UnmarshalJSON(b []byte) error {
	var one *int32
	if json.Unmarshal(b, &one) == nil {
		*l = nil
		if one != nil {
			*l = idList{*one}
		}
		return nil
	}
	return json.Unmarshal(b, (*[]int32)(l))
}

// ParseConfig reads a config.json. It refuses, naming the field, what the
// decoder here would compute wrongly.
func ParseConfig(b []byte) (*Config, error) {
	h := hfConfig{RMSNormEps: 1e-6, RopeTheta: 10000, HiddenAct: "silu"}
	if err := json.Unmarshal(b, &h); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("config.json: "+format, args...)) }
	if !slices.Contains([]string{"llama", "mistral", "qwen2", "qwen3"}, h.ModelType) {
		bad("model_type %q, expected llama, mistral, qwen2 or qwen3", h.ModelType)
	}
	if h.HiddenAct != "silu" {
		bad("hidden_act %q, expected silu", h.HiddenAct)
	}
	if h.AttentionBias && h.ModelType != "qwen2" {
		bad("attention_bias true is not supported for %s", h.ModelType)
	}
	if h.MLPBias {
		bad("mlp_bias true is not supported")
	}
	if h.SlidingWindow != nil && (h.UseSlidingWindow == nil || *h.UseSlidingWindow) && *h.SlidingWindow < h.MaxPositions {
		bad("sliding_window %d is not supported", *h.SlidingWindow)
	}
	theta, err := ropeTheta(&h)
	if err != nil {
		errs = append(errs, err)
	}
	c := &Config{Type: h.ModelType, HiddenSize: h.HiddenSize, FFNSize: h.IntermediateSize, Layers: h.NumHiddenLayers,
		Heads: h.NumAttentionHeads, KVHeads: h.NumAttentionHeads, VocabSize: h.VocabSize, MaxPositions: h.MaxPositions,
		NormEps: float32(h.RMSNormEps), RopeTheta: theta, InitStd: 0.02, Tied: h.TieWordEmbeddings,
		QKVBias: h.ModelType == "qwen2", QKNorm: h.ModelType == "qwen3", StopIDs: h.EOS, BOS: -1}
	if h.NumKeyValueHeads != nil {
		c.KVHeads = *h.NumKeyValueHeads
	}
	if h.HeadDim != nil {
		c.HeadDim = *h.HeadDim
	} else if c.Heads > 0 {
		c.HeadDim = c.HiddenSize / c.Heads
	}
	if h.InitializerRange != nil {
		c.InitStd = *h.InitializerRange
	}
	if h.BOS != nil {
		c.BOS = *h.BOS
	}
	return c, errors.Join(append(errs, c.validate())...)
}

// ropeTheta is the base of the rotary angles, from either place that versions
// of the format keep it in.
func ropeTheta(h *hfConfig) (float64, error) {
	theta := h.RopeTheta
	for _, m := range []map[string]any{h.RopeScaling, h.RopeParameters} {
		for _, key := range []string{"rope_type", "type"} {
			if s, ok := m[key].(string); ok && s != "default" {
				return 0, fmt.Errorf("config.json: rope scaling %q is not supported, expected none", s)
			}
		}
		if v, ok := m["rope_theta"].(float64); ok {
			theta = v
		}
	}
	return theta, nil
}

func (c *Config) validate() error {
	var errs []error
	const limit = 1 << 24 // far above any decoder, low enough that products fit
	for _, f := range []struct {
		name string
		v    int
	}{
		{"hidden_size", c.HiddenSize}, {"intermediate_size", c.FFNSize}, {"num_hidden_layers", c.Layers},
		{"num_attention_heads", c.Heads}, {"num_key_value_heads", c.KVHeads}, {"head_dim", c.HeadDim},
		{"vocab_size", c.VocabSize}, {"max_position_embeddings", c.MaxPositions},
	} {
		if f.v < 1 || f.v > limit {
			errs = append(errs, fmt.Errorf("config.json: %s is %d, expected 1 to %d", f.name, f.v, limit))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if c.Heads%c.KVHeads != 0 {
		errs = append(errs, fmt.Errorf("config.json: num_attention_heads %d is no multiple of num_key_value_heads %d", c.Heads, c.KVHeads))
	}
	if c.HeadDim%2 != 0 {
		errs = append(errs, fmt.Errorf("config.json: head_dim %d is odd, rotary positions need pairs", c.HeadDim))
	}
	for _, id := range c.StopIDs {
		if id < 0 || int(id) >= c.VocabSize {
			errs = append(errs, fmt.Errorf("config.json: eos_token_id %d is outside the vocabulary of %d", id, c.VocabSize))
		}
	}
	return errors.Join(errs...)
}

// ReadConfig reads dir/config.json, and the stop ids that
// dir/generation_config.json adds where there is one.
func ReadConfig(dir string) (*Config, error) {
	b, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, fmt.Errorf("read model folder: %w", err)
	}
	c, err := ParseConfig(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	b, err = os.ReadFile(filepath.Join(dir, "generation_config.json"))
	if errors.Is(err, os.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read model folder: %w", err)
	}
	var g struct {
		EOS idList `json:"eos_token_id"`
	}
	if err := json.Unmarshal(b, &g); err != nil {
		return nil, fmt.Errorf("%s/generation_config.json: %w", dir, err)
	}
	for _, id := range g.EOS {
		if !slices.Contains(c.StopIDs, id) {
			c.StopIDs = append(c.StopIDs, id)
		}
	}
	return c, c.validate()
}

// NumParams is the number of weights; tied embeddings count once.
func (c *Config) NumParams() int64 {
	var n int64
	for _, p := range c.params() {
		n += int64(p.Rows) * int64(max(p.Cols, 1))
	}
	return n
}

// FLOPs is the number of floating-point operations of a forward pass over rows
// tokens of which targets are predicted, with keys keys seen by all rows
// together.
func (c *Config) FLOPs(rows, targets int, keys int64) float64 {
	qd, kd := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	layer := 2*float64(rows)*float64(c.HiddenSize*(2*qd+2*kd)+3*c.HiddenSize*c.FFNSize) + 4*float64(keys)*float64(qd)
	return float64(c.Layers)*layer + 2*float64(targets)*float64(c.HiddenSize)*float64(c.VocabSize)
}

// TrainFLOPs is FLOPs of a forward and a backward pass over a layout: three
// times the forward pass.
func (c *Config) TrainFLOPs(l *attention.Layout) float64 {
	keys := int64(l.Rows())
	for _, p := range l.Positions {
		keys += int64(p)
	}
	return 3 * c.FLOPs(l.Rows(), len(l.Targets), keys)
}
