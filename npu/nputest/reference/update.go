package reference

import (
	"math"

	"github.com/easyrl/easyrl/npu"
)

// AdamW updates w0 a number of times with the same gradient g0, by algorithm 2 of Loshchilov and Hutter
// 2019. It counts steps itself and ignores p.Step.
func AdamW[F Float](w0, g0 []float32, p npu.AdamWParams, steps int) (w, m, v []F) {
	n := len(w0)
	lr, b1, b2, decay := F(p.LR), F(p.Beta1), F(p.Beta2), F(p.WeightDecay)
	w, m, v = make([]F, n), make([]F, n), make([]F, n)
	for i := range w {
		w[i] = F(w0[i])
		for step := range steps {
			g := F(g0[i]) * F(p.GradScale)
			m[i] = b1*m[i] + (1-b1)*g
			v[i] = b2*v[i] + (1-b2)*g*g
			mh := m[i] / (1 - F(math.Pow(float64(p.Beta1), float64(step+1))))
			vh := v[i] / (1 - F(math.Pow(float64(p.Beta2), float64(step+1))))
			w[i] = w[i] - lr*decay*w[i] - lr*mh/(F(math.Sqrt(float64(vh)))+F(p.Eps))
		}
	}
	return w, m, v
}
