package canary

import (
	"math"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/easyrl/easyrl/internal/splitmix"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/tensor"
)

// fillPerturbed gives every tensor of w the values of Perturbation.
func fillPerturbed(w *model.Weights) error {
	var value func(i int) float32
	err := w.Fill(func(p *tensor.Param, vals []float32, first int) error {
		if first == 0 { // a new tensor; Fill visits each in order
			value = Perturbation(w.Config, p.Name, p.Cols)
		}
		for i := range vals {
			vals[i] = value(first + i)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return w.CheckFinite()
}

// Perturbation returns a function from a value's index in a tensor, in row-major order, to the value
// in perturbed weights. The tensor is called name; cols is the length of a matrix's rows, 0 for a
// vector. c need not be a decoder that package model can compute.
//
// A value is a random draw that only the tensor's name and the index determine, so every tensor
// differs from that of any real model. The draws are scaled so that each tensor of the decoder
// affects the log-probabilities: embedding and blocks contribute similarly to the residual stream,
// attention prefers some positions, and no softmax saturates. All values are exact in bfloat16, so
// that servers differ only in their arithmetic, not in rounding the weights.
func Perturbation(c *model.Config, name string, cols int) func(i int) float32 {
	seed := xxh3.HashString(name)
	scale := scaleOf(c, name, cols)
	norm := cols == 0 && !strings.HasSuffix(name, ".bias") // a norm's values are ±scale, others are uniform
	shift := 0.0
	if norm && strings.HasPrefix(c.Type, "gemma") { // Gemma's norms multiply by 1 + weight
		shift = -1
	}
	return func(i int) float32 {
		x := splitmix.At(seed, uint64(i))
		// x>>11 has 53 bits, so the draw is uniform in [-1, 1). The factor √3 gives it a standard
		// deviation of 1. Conversions to float64 forbid fused multiply-adds, whose results differ
		// between platforms.
		v := float64(scale * (float64(float64(x>>11)/(1<<52)) - 1) * math.Sqrt(3))
		if norm {
			v = math.Copysign(scale, v) + shift
		}
		const fraction = 0xffff // the bits of a float32 that bfloat16 lacks
		return math.Float32frombits(math.Float32bits(float32(v)) &^ fraction)
	}
}

// scaleOf returns the standard deviation of a tensor's values.
func scaleOf(c *model.Config, name string, cols int) float64 {
	residual := 2 / math.Sqrt(float64(c.HiddenSize)) // gives logits a standard deviation of 2
	in := math.Sqrt(float64(max(cols, 1)))           // a scale of 1/in keeps a row's product at the input's scale
	// The first rule whose part occurs in the name applies.
	for _, rule := range []struct {
		part  string
		scale float64
	}{
		{".q_proj.bias", 1.5}, {".k_proj.bias", 1.5}, {".bias", 0.5},
		// These give attention scores a standard deviation of about 1.6.
		{".q_proj.", 1.25 / in}, {".k_proj.", 1.25 / in}, {".q_norm.", 1.25 / in}, {".k_norm.", 1.25 / in},
		{".v_proj.", 1 / in}, {".gate_proj.", 1 / in}, {".up_proj.", 1 / in}, {".gate.", 1.25 / in},
		{".o_proj.", 0.8 * residual / in}, {".down_proj.", 0.6 * residual / in},
		{"embed", residual}, {"lm_head", residual},
	} {
		if strings.Contains(name, rule.part) {
			return rule.scale
		}
	}
	return 1 / in // 1 for the norms of the residual stream, which are vectors
}
