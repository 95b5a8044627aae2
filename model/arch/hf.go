package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/internal/filetype"
)

// Values of model_type for the supported decoder families.
const (
	llama   = "llama"
	mistral = "mistral"
	qwen2   = "qwen2"
	qwen3   = "qwen3"
)

// configFile holds the fields of config.json that affect the decoder.
type configFile struct {
	ModelType         string         `json:"model_type"`
	Architectures     []string       `json:"architectures"`
	HiddenSize        int            `json:"hidden_size"`
	IntermediateSize  int            `json:"intermediate_size"`
	NumHiddenLayers   int            `json:"num_hidden_layers"`
	NumAttentionHeads int            `json:"num_attention_heads"`
	NumKeyValueHeads  *int           `json:"num_key_value_heads"`
	HeadDim           *int           `json:"head_dim"`
	VocabSize         int            `json:"vocab_size"`
	MaxPositions      int            `json:"max_position_embeddings"`
	OriginalPositions *float64       `json:"original_max_position_embeddings"`
	RMSNormEps        float64        `json:"rms_norm_eps"`
	RopeTheta         float64        `json:"rope_theta"`
	RopeScaling       map[string]any `json:"rope_scaling"`
	RopeParameters    map[string]any `json:"rope_parameters"`
	PartialRotary     float64        `json:"partial_rotary_factor"`
	InitializerRange  float64        `json:"initializer_range"`
	TieWordEmbeddings bool           `json:"tie_word_embeddings"`
	HiddenAct         string         `json:"hidden_act"`
	AttentionBias     bool           `json:"attention_bias"`
	MLPBias           bool           `json:"mlp_bias"`
	SlidingWindow     *int           `json:"sliding_window"`
	UseSlidingWindow  bool           `json:"use_sliding_window"`
	MaxWindowLayers   int            `json:"max_window_layers"`
	LayerTypes        []string       `json:"layer_types"`
	EOS               tokenIDs       `json:"eos_token_id"`
	BOS               *int32         `json:"bos_token_id"`

	// Features of similar decoders that this one lacks.
	Quantization  map[string]any `json:"quantization_config"`
	Experts       int            `json:"num_experts"`
	LocalExperts  int            `json:"num_local_experts"`
	RoutedExperts int            `json:"n_routed_experts"`
	AttnSoftcap   *float64       `json:"attn_logit_softcapping"`
	FinalSoftcap  *float64       `json:"final_logit_softcapping"`
	MRope         bool           `json:"use_mrope"`
	multipliers
	switches
}

// multipliers are fields by which other decoders scale their activations. A missing
// field is nil.
type multipliers struct {
	Residual   *float64 `json:"residual_multiplier"`
	Embedding  *float64 `json:"embedding_multiplier"`
	ScaleEmb   *float64 `json:"scale_emb"`
	Logits     *float64 `json:"logits_scaling"`
	Logit      *float64 `json:"logit_scale"`
	RotaryPct  *float64 `json:"rotary_pct"`
	Attention  *float64 `json:"attention_multiplier"`
	QueryScale *float64 `json:"query_pre_attn_scalar"`
	ClipQKV    *float64 `json:"clip_qkv"`
}

// switches are fields that add parts to other decoders or remove parts from them.
type switches struct {
	UseQKNorm        *bool `json:"use_qk_norm"`
	QKNormalised     *bool `json:"qk_norm"`
	QKLayerNorm      *bool `json:"qk_layernorm"`
	QKVBias          *bool `json:"qkv_bias"`
	ParallelAttn     bool  `json:"parallel_attn"`
	ParallelResidual bool  `json:"use_parallel_residual"`
	Alibi            bool  `json:"alibi"`
	NoRopeLayers     []int `json:"no_rope_layers"` // 0 marks a layer without rotary positions
}

// tokenIDs is a token id, a list of them, or null.
type tokenIDs []int32

// UnmarshalJSON implements json.Unmarshaler.
func (l *tokenIDs) UnmarshalJSON(b []byte) error {
	var one *int32
	if json.Unmarshal(b, &one) == nil {
		*l = nil
		if one != nil {
			*l = tokenIDs{*one}
		}
		return nil
	}
	if json.Unmarshal(b, (*[]int32)(l)) != nil {
		return fmt.Errorf("eos_token_id is %.40s, expected a token id or a list of them", b)
	}
	return nil
}

// readFields parses a config.json. Missing fields take transformers' defaults for the
// family.
func readFields(b []byte) (*configFile, error) {
	var kind struct {
		ModelType string `json:"model_type"`
	}
	if err := unmarshal(b, &kind); err != nil {
		return nil, err
	}
	h := &configFile{RMSNormEps: 1e-6, RopeTheta: 10000, HiddenAct: "silu", InitializerRange: 0.02,
		SlidingWindow: new(4096), MaxWindowLayers: 28, PartialRotary: 1}
	switch kind.ModelType {
	case llama:
		h.MaxPositions = 2048
	case mistral:
		h.NumKeyValueHeads, h.MaxPositions = new(8), 131072
	case qwen2:
		h.NumKeyValueHeads, h.MaxPositions = new(32), 32768
	case qwen3:
		h.NumKeyValueHeads, h.HeadDim, h.MaxPositions = new(32), new(128), 32768
	}
	err := unmarshal(b, h)
	if !supported(kind.ModelType) { // replaces err: the fields of another family may have other types
		err = errors.Join(h.unsupported()...)
	}
	return h, err
}

// supported reports whether this package can compute the decoder family.
func supported(modelType string) bool {
	return slices.Contains([]string{llama, mistral, qwen2, qwen3}, modelType)
}

// unsupported returns an error for each field that this decoder would compute
// wrongly.
func (h *configFile) unsupported() (errs []error) {
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	for _, e := range []struct {
		name string
		n    int
	}{{"num_experts", h.Experts}, {"num_local_experts", h.LocalExperts}, {"n_routed_experts", h.RoutedExperts}} {
		bad(e.n > 0, "%s is %d, but mixture-of-experts models are not supported", e.name, e.n)
	}
	bad(!supported(h.ModelType), "model_type is %q, expected llama, mistral, qwen2 or qwen3", h.ModelType)
	causal := func(name string) bool { return strings.HasSuffix(name, "ForCausalLM") }
	bad(len(h.Architectures) > 0 && !slices.ContainsFunc(h.Architectures, causal),
		"architectures is %q, expected a name that ends in ForCausalLM", h.Architectures)
	bad(h.HiddenAct != "silu" && h.HiddenAct != "swish", "hidden_act is %q, expected silu", h.HiddenAct)
	bad(h.AttentionBias && h.ModelType != qwen2, "attention_bias true is not supported for %s", h.ModelType)
	bad(h.MLPBias, "mlp_bias true is not supported")
	bad(h.Quantization != nil, "quantization_config (%v) is not supported, expected F32, BF16 or F16 weights",
		h.Quantization["quant_method"])
	bad(h.AttnSoftcap != nil, "attn_logit_softcapping is not supported")
	bad(h.FinalSoftcap != nil, "final_logit_softcapping is not supported")
	bad(h.PartialRotary != 1, "partial_rotary_factor %v is not supported, expected 1", h.PartialRotary)
	bad(h.MRope, "use_mrope true is not supported")
	if supported(h.ModelType) {
		errs = append(errs, h.others()...)
	}
	return append(errs, h.sliding()...)
}

// others returns an error for each field of another decoder family whose value changes the
// arithmetic. neutral and usual are the values that change nothing.
func (h *configFile) others() (errs []error) {
	head := 0.0
	if h.HeadDim != nil {
		head = float64(*h.HeadDim)
	} else if h.NumAttentionHeads > 0 {
		head = float64(h.HiddenSize / h.NumAttentionHeads)
	}
	for _, f := range []struct {
		name    string
		value   *float64
		neutral float64
	}{
		{"residual_multiplier", h.Residual, 1}, {"embedding_multiplier", h.Embedding, 1}, {"scale_emb", h.ScaleEmb, 1},
		{"logits_scaling", h.Logits, 1}, {"logit_scale", h.Logit, 1}, {"rotary_pct", h.RotaryPct, 1},
		{"attention_multiplier", h.Attention, 1 / math.Sqrt(head)}, {"query_pre_attn_scalar", h.QueryScale, head},
	} {
		if f.value != nil && !(math.Abs(*f.value-f.neutral) <= 1e-6*f.neutral) { // also true of NaN
			errs = append(errs, fmt.Errorf("%s is %v, expected %v or unset", f.name, *f.value, f.neutral))
		}
	}
	if h.ClipQKV != nil {
		errs = append(errs, fmt.Errorf("clip_qkv is %v, expected unset", *h.ClipQKV))
	}
	for _, f := range []struct {
		name  string
		value *bool
		usual bool
	}{
		{"use_qk_norm", h.UseQKNorm, h.ModelType == qwen3}, {"qk_norm", h.QKNormalised, h.ModelType == qwen3},
		{"qk_layernorm", h.QKLayerNorm, h.ModelType == qwen3}, {"qkv_bias", h.switches.QKVBias, h.ModelType == qwen2},
		{"parallel_attn", &h.ParallelAttn, false}, {"use_parallel_residual", &h.ParallelResidual, false},
		{"alibi", &h.Alibi, false},
	} {
		if f.value != nil && *f.value != f.usual {
			errs = append(errs, fmt.Errorf("%s is %t, expected %t or unset for %s", f.name, *f.value, f.usual,
				h.ModelType))
		}
	}
	if slices.Contains(h.NoRopeLayers, 0) {
		errs = append(errs,
			errors.New("no_rope_layers contains 0, but layers without rotary positions are not supported"))
	}
	return errs
}

// sliding rejects sliding windows shorter than the context. A window applies to all layers in
// Mistral, to the layers from max_window_layers on in Qwen if use_sliding_window is set, and to
// none in Llama. In Qwen and Llama, layer_types overrides this.
func (h *configFile) sliding() (errs []error) {
	slides := h.ModelType == mistral // a layer has a window
	if h.ModelType == qwen2 || h.ModelType == qwen3 {
		slides = h.UseSlidingWindow && h.MaxWindowLayers < h.NumHiddenLayers
	}
	if h.LayerTypes != nil {
		other := func(kind string) bool { return kind != "full_attention" && kind != "sliding_attention" }
		if at := slices.IndexFunc(h.LayerTypes, other); at >= 0 {
			errs = append(errs, fmt.Errorf("layer_types has %q, expected only \"full_attention\"", h.LayerTypes[at]))
		}
		if h.ModelType != mistral {
			slides = slices.Contains(h.LayerTypes, "sliding_attention")
		}
	}
	if !slides || h.SlidingWindow == nil && h.ModelType == mistral {
		return errs
	}
	if h.SlidingWindow == nil || h.ModelType != mistral && !h.UseSlidingWindow {
		return append(errs, errors.New("layer_types has \"sliding_attention\", expected only \"full_attention\""))
	}
	if *h.SlidingWindow < h.MaxPositions {
		errs = append(errs, fmt.Errorf("sliding_window is %d, expected null or at least max_position_embeddings (%d)",
			*h.SlidingWindow, h.MaxPositions))
	}
	return errs
}

// unmarshal parses a JSON object. Its errors give the position and use the file's
// terms, not Go's.
func unmarshal(b []byte, into any) error {
	err := json.Unmarshal(b, into)
	var syntax *json.SyntaxError
	var mismatch *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		at := min(max(syntax.Offset-1, 0), int64(len(b)))
		if other := filetype.NotJSON(b); other != nil {
			return other
		}
		return fmt.Errorf("line %d: not JSON: %w", 1+bytes.Count(b[:at], []byte("\n")), err)
	case errors.As(err, &mismatch) && mismatch.Field != "":
		field := mismatch.Field[strings.LastIndexByte(mismatch.Field, '.')+1:] // without the path through Go structs
		return fmt.Errorf("%s is a JSON %s, expected %s", field, mismatch.Value, jsonKind(mismatch.Type))
	case errors.As(err, &mismatch):
		return fmt.Errorf("a JSON %s, expected an object", mismatch.Value)
	case err == nil && string(bytes.TrimSpace(b)) == "null":
		return errors.New("a JSON null, expected an object")
	}
	return err
}

// jsonKind returns the JSON name for the values of a Go type.
func jsonKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Map:
		return "an object"
	}
	return "a whole number"
}
