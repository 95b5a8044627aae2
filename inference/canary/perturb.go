package canary

import (
	"math"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/easyrl/easyrl/internal/splitmix"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/tensor"
)

// perturb gives every tensor of w other values than those of any model: draws that only its
// name and the values' positions determine. The decoder that results is one in which each
// tensor counts. Embedding and blocks contribute similarly to the residual stream,
// attention prefers some positions, and no softmax saturates. All values are exact in
// bfloat16, so that only an engine's arithmetic shows.
func perturb(w *model.Weights) error {
	err := w.Fill(func(p *tensor.Param, vals []float32, first int) error {
		key, scale := xxh3.HashString(p.Name), scaleOf(w.Config, p)
		signs := p.Cols == 0 && !strings.HasSuffix(p.Name, ".bias") // norms are ±scale, others uniform
		for i := range vals {
			x := splitmix.At(key, uint64(first+i))
			v := scale * float64(float64(x>>11)/(1<<52)-1) * math.Sqrt(3)
			if signs {
				v = math.Copysign(scale, v)
			}
			vals[i] = math.Float32frombits(math.Float32bits(float32(v)) &^ 0xffff)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return w.CheckFinite()
}

// scaleOf returns the standard deviation of the values of p.
func scaleOf(c *model.Config, p *tensor.Param) float64 {
	part := strings.TrimSuffix(p.Name, ".weight")
	if at := strings.LastIndex(part, ".layers."); at >= 0 {
		_, part, _ = strings.Cut(part[at+len(".layers."):], ".")
	}
	stream := 2 / math.Sqrt(float64(c.HiddenSize)) // gives logits a standard deviation of 2
	in := math.Sqrt(float64(max(p.Cols, 1)))
	switch part {
	case "self_attn.q_proj", "self_attn.k_proj", "self_attn.q_norm", "self_attn.k_norm":
		return 1.25 / in // scores of about 1.6
	case "self_attn.q_proj.bias", "self_attn.k_proj.bias":
		return 1.5
	case "self_attn.v_proj.bias":
		return 0.5
	case "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj":
		return 1 / in
	case "self_attn.o_proj":
		return 0.8 * stream / in
	case "mlp.down_proj":
		return 0.6 * stream / in
	}
	if p.Cols == 0 { // the norms of the stream
		return 1
	}
	return stream // embedding and head
}
