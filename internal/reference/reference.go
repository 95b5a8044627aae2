// Package reference implements a decoder in float64 that tests compare the kernels with.
// It follows the formulas directly, with a dense mask and no cache, and shares no code
// with the kernels.
package reference

import (
	"fmt"
	"math"

	"github.com/easyrl/easyrl/attention"
)

// Decoder is a decoder's shape and its row-major tensors by Hugging Face name.
type Decoder struct {
	HiddenSize, Layers, Heads, KVHeads, HeadDim int

	NormEps, RopeTheta float64
	QKNorm, Tied       bool
	Tensor             map[string][]float64
}

// Set stores a tensor, converted to float64.
func (r *Decoder) Set(name string, values []float32) {
	wide := make([]float64, len(values))
	for i, v := range values {
		wide[i] = float64(v)
	}
	if r.Tensor == nil {
		r.Tensor = map[string][]float64{}
	}
	r.Tensor[name] = wide
}

// linear returns w·x plus the bias, if there is one. w is the tensor name.weight, [len(y), len(x)].
func (r *Decoder) linear(x []float64, name string) []float64 {
	w := r.Tensor[name+".weight"]
	in := len(x)
	y := make([]float64, len(w)/in)
	for o := range y {
		if b := r.Tensor[name+".bias"]; b != nil {
			y[o] = b[o]
		}
		for i, v := range x {
			y[o] += w[o*in+i] * v
		}
	}
	return y
}

// norm returns the RMS norm of x, scaled by the tensor name.weight.
func (r *Decoder) norm(x []float64, name string) []float64 {
	ss := 0.0
	for _, v := range x {
		ss += v * v
	}
	s := 1 / math.Sqrt(ss/float64(len(x))+r.NormEps)
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v * s * r.Tensor[name+".weight"][i]
	}
	return y
}

// heads applies RMS norm, if QKNorm is set, and the rotary embedding of position to each head of x, in
// place. name is the norm's.
func (r *Decoder) heads(x []float64, name string, position int32) {
	d := r.HeadDim
	for h := 0; h < len(x); h += d {
		head := x[h : h+d]
		if r.QKNorm {
			copy(head, r.norm(head, name))
		}
		for i := range d / 2 {
			sin, cos := math.Sincos(float64(position) * math.Pow(r.RopeTheta, -float64(2*i)/float64(d)))
			a, b := head[i], head[i+d/2]
			head[i], head[i+d/2] = a*cos-b*sin, b*cos+a*sin
		}
	}
}

// Logprobs returns the log-probability of each of l's targets under
// softmax(logits / temperature), and the entropy at its row.
func (r *Decoder) Logprobs(l *attention.Layout, temperature float64) (logp, entropy []float64) {
	x := make([][]float64, l.Rows())
	for t, id := range l.Tokens {
		x[t] = append([]float64(nil), r.Tensor["model.embed_tokens.weight"][int(id)*r.HiddenSize:][:r.HiddenSize]...)
	}
	for i := range r.Layers {
		r.block(i, l, x)
	}
	head := "lm_head"
	if r.Tied {
		head = "model.embed_tokens"
	}
	for _, target := range l.Targets {
		logits := r.linear(r.norm(x[target.Row], "model.norm"), head)
		largest, sum, e := math.Inf(-1), 0.0, 0.0
		for j := range logits {
			logits[j] /= temperature
			largest = max(largest, logits[j])
		}
		for _, v := range logits {
			sum += math.Exp(v - largest)
		}
		lse := largest + math.Log(sum)
		for _, v := range logits {
			e -= math.Exp(v-lse) * (v - lse)
		}
		logp, entropy = append(logp, logits[target.Token]-lse), append(entropy, e)
	}
	return logp, entropy
}

// block applies decoder layer i to x, [row][hidden], in place.
func (r *Decoder) block(i int, l *attention.Layout, x [][]float64) {
	name := fmt.Sprintf("model.layers.%d.", i)
	q, k, v := make([][]float64, len(x)), make([][]float64, len(x)), make([][]float64, len(x))
	for t := range x {
		n := r.norm(x[t], name+"input_layernorm")
		q[t], k[t], v[t] = r.linear(n, name+"self_attn.q_proj"), r.linear(n, name+"self_attn.k_proj"),
			r.linear(n, name+"self_attn.v_proj")
		r.heads(q[t], name+"self_attn.q_norm", l.Positions[t])
		r.heads(k[t], name+"self_attn.k_norm", l.Positions[t])
	}
	d := r.HeadDim
	for t := range x {
		att := make([]float64, r.Heads*d)
		for h := range r.Heads {
			kv := h / (r.Heads / r.KVHeads) * d
			sum := 0.0
			for u := range x {
				if !l.Visible(t, u) {
					continue
				}
				s := 0.0
				for e := range d {
					s += q[t][h*d+e] * k[u][kv+e]
				}
				p := math.Exp(s / math.Sqrt(float64(d)))
				sum += p
				for e := range d {
					att[h*d+e] += p * v[u][kv+e]
				}
			}
			for e := range d {
				att[h*d+e] /= sum
			}
		}
		for j, y := range r.linear(att, name+"self_attn.o_proj") {
			x[t][j] += y
		}
		n := r.norm(x[t], name+"post_attention_layernorm")
		gate, up := r.linear(n, name+"mlp.gate_proj"), r.linear(n, name+"mlp.up_proj")
		for j, g := range gate {
			gate[j] = g / (1 + math.Exp(-g)) * up[j]
		}
		for j, y := range r.linear(gate, name+"mlp.down_proj") {
			x[t][j] += y
		}
	}
}
