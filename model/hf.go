package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// The families of decoders, as model_type names them.
const (
	llama   = "llama"
	mistral = "mistral"
	qwen2   = "qwen2"
	qwen3   = "qwen3"
)

// hfConfig names the fields of config.json that the decoder depends on.
type hfConfig struct {
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
	EOS               idList         `json:"eos_token_id"`
	BOS               *int32         `json:"bos_token_id"`

	// What other decoders of a like shape have and this one lacks.
	Quantization  map[string]any `json:"quantization_config"`
	Experts       int            `json:"num_experts"`
	LocalExperts  int            `json:"num_local_experts"`
	RoutedExperts int            `json:"n_routed_experts"`
	AttnSoftcap   *float64       `json:"attn_logit_softcapping"`
	FinalSoftcap  *float64       `json:"final_logit_softcapping"`
	MRope         bool           `json:"use_mrope"`
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
	if json.Unmarshal(b, (*[]int32)(l)) != nil {
		return fmt.Errorf("eos_token_id is %.40s, expected a token id or a list of them", b)
	}
	return nil
}

// readHF reads a config.json on top of what transformers takes where a family's
// file lacks a field.
func readHF(b []byte) (*hfConfig, error) {
	var kind struct {
		ModelType string `json:"model_type"`
	}
	if err := unmarshal(b, &kind); err != nil {
		return nil, err
	}
	window := 4096
	h := &hfConfig{RMSNormEps: 1e-6, RopeTheta: 10000, HiddenAct: "silu", InitializerRange: 0.02, SlidingWindow: &window, MaxWindowLayers: 28,
		PartialRotary: 1}
	of := func(n int) *int { return &n }
	switch kind.ModelType {
	case mistral:
		h.NumKeyValueHeads = of(8)
	case qwen2:
		h.NumKeyValueHeads = of(32)
	case qwen3:
		h.NumKeyValueHeads, h.HeadDim = of(32), of(128)
	}
	err := unmarshal(b, h)
	if !supported(kind.ModelType) { // the other fields may mean other things
		err = errors.Join(h.unsupported()...)
	}
	return h, err
}

func supported(modelType string) bool {
	return slices.Contains([]string{llama, mistral, qwen2, qwen3}, modelType)
}

// unsupported lists what the decoder would compute wrongly, by field.
func (h *hfConfig) unsupported() (errs []error) {
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	for _, e := range []struct {
		name string
		n    int
	}{{"num_experts", h.Experts}, {"num_local_experts", h.LocalExperts}, {"n_routed_experts", h.RoutedExperts}} {
		bad(e.n > 0, "%s is %d, expected none: mixtures of experts are not supported", e.name, e.n)
	}
	bad(!supported(h.ModelType), "model_type %q, expected llama, mistral, qwen2 or qwen3", h.ModelType)
	causal := func(name string) bool { return strings.HasSuffix(name, "ForCausalLM") }
	bad(len(h.Architectures) > 0 && !slices.ContainsFunc(h.Architectures, causal),
		"architectures %q, expected one that ends in ForCausalLM", h.Architectures)
	bad(h.HiddenAct != "silu" && h.HiddenAct != "swish", "hidden_act %q, expected silu", h.HiddenAct)
	bad(h.AttentionBias && (h.ModelType == llama || h.ModelType == qwen3), "attention_bias true is not supported for %s", h.ModelType)
	bad(h.MLPBias, "mlp_bias true is not supported")
	bad(h.Quantization != nil, "quantization_config (%v) is not supported, expected weights of F32, BF16 or F16", h.Quantization["quant_method"])
	bad(h.AttnSoftcap != nil, "attn_logit_softcapping is not supported")
	bad(h.FinalSoftcap != nil, "final_logit_softcapping is not supported")
	bad(h.PartialRotary != 1, "partial_rotary_factor %v is not supported, expected 1", h.PartialRotary)
	bad(h.MRope, "use_mrope true is not supported")
	return append(errs, h.sliding()...)
}

// sliding refuses layers that see fewer positions than there are. Mistral's all
// do where there is a window, Qwen's where they are told to, Llama's never.
func (h *hfConfig) sliding() (errs []error) {
	slides := h.ModelType == mistral
	if h.ModelType == qwen2 || h.ModelType == qwen3 {
		slides = h.UseSlidingWindow && h.MaxWindowLayers < h.NumHiddenLayers
	}
	if h.LayerTypes != nil {
		other := func(kind string) bool { return kind != "full_attention" && kind != "sliding_attention" }
		if at := slices.IndexFunc(h.LayerTypes, other); at >= 0 {
			errs = append(errs, fmt.Errorf("layer_types has %q, expected \"full_attention\" only", h.LayerTypes[at]))
		}
		if h.ModelType != mistral {
			slides = slices.Contains(h.LayerTypes, "sliding_attention")
		}
	}
	if !slides || h.SlidingWindow == nil && h.ModelType == mistral {
		return errs
	}
	if h.SlidingWindow == nil || h.ModelType != mistral && !h.UseSlidingWindow {
		return append(errs, errors.New("layer_types has \"sliding_attention\", expected \"full_attention\" only"))
	}
	if *h.SlidingWindow < h.MaxPositions {
		errs = append(errs, fmt.Errorf("sliding_window %d is not supported below max_position_embeddings %d: expected null, "+
			"or no more than %[1]d positions", *h.SlidingWindow, h.MaxPositions))
	}
	return errs
}

// unmarshal reads a JSON object. Its error says where and what, in words of the
// file and not of this program.
func unmarshal(b []byte, into any) error {
	err := json.Unmarshal(b, into)
	var syntax *json.SyntaxError
	var mismatch *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		at := min(max(syntax.Offset-1, 0), int64(len(b)))
		return fmt.Errorf("line %d: not JSON: %w", 1+bytes.Count(b[:at], []byte("\n")), err)
	case errors.As(err, &mismatch) && mismatch.Field != "":
		return fmt.Errorf("%s is a JSON %s, expected %s", mismatch.Field, mismatch.Value, jsonKind(mismatch.Type))
	case errors.As(err, &mismatch):
		return fmt.Errorf("a JSON %s, expected an object", mismatch.Value)
	case err == nil && string(bytes.TrimSpace(b)) == "null":
		return errors.New("a JSON null, expected an object")
	}
	return err
}

// jsonKind is what a file calls the values of a type.
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
