package canary

import (
	"math"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/easyrl/easyrl/internal/splitmix"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/tensor"
)

// perturb gives every tensor of w the values of Perturbation.
func perturb(w *model.Weights) error {
	var value func(i int) float32
	err := w.Fill(func(p *tensor.Param, vals []float32, first int) error {
		if first == 0 {
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

// Perturbation returns a function from the position of a value to the value in perturbed
// weights. c need not be a decoder that package model can compute. cols is the length of a
// matrix's rows, 0 for a vector.
//
// Every tensor gets other values than in any model: draws that only its name and the values'
// positions determine. The decoder that results is one in which each tensor counts. Embedding
// and blocks contribute similarly to the residual stream, attention prefers some positions,
// and no softmax saturates. All values are exact in bfloat16, so that only an engine's
// arithmetic shows.
func Perturbation(c *model.Config, name string, cols int) func(i int) float32 {
	key, scale := xxh3.HashString(name), scaleOf(c, name, cols)
	norm := cols == 0 && !strings.HasSuffix(name, ".bias") // ±scale, others are uniform
	shift := 0.0
	if norm && strings.HasPrefix(c.Type, "gemma") { // its norms multiply by 1 + weight
		shift = -1
	}
	return func(i int) float32 {
		x := splitmix.At(key, uint64(i))
		v := float64(scale * (float64(float64(x>>11)/(1<<52)) - 1) * math.Sqrt(3))
		if norm {
			v = math.Copysign(scale, v) + shift
		}
		return math.Float32frombits(math.Float32bits(float32(v)) &^ 0xffff)
	}
}

// scaleOf returns the standard deviation of a tensor's values.
func scaleOf(c *model.Config, name string, cols int) float64 {
	stream := 2 / math.Sqrt(float64(c.HiddenSize)) // gives logits a standard deviation of 2
	in := math.Sqrt(float64(max(cols, 1)))
	for _, rule := range []struct {
		part  string
		scale float64
	}{
		{".q_proj.bias", 1.5}, {".k_proj.bias", 1.5}, {".bias", 0.5},
		// scores of about 1.6
		{".q_proj.", 1.25 / in}, {".k_proj.", 1.25 / in}, {".q_norm.", 1.25 / in}, {".k_norm.", 1.25 / in},
		{".v_proj.", 1 / in}, {".gate_proj.", 1 / in}, {".up_proj.", 1 / in}, {".gate.", 1.25 / in},
		{".o_proj.", 0.8 * stream / in}, {".down_proj.", 0.6 * stream / in},
		{"embed", stream}, {"lm_head", stream},
	} {
		if strings.Contains(name, rule.part) {
			return rule.scale
		}
	}
	return 1 / in // among others the norms of the stream
}
