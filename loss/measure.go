package loss

import "math"

// measure sets the metrics of r, which do not affect the loss.
func (o *Objective) measure(r *Result, v Vars) {
	logs := make([]float64, len(v.Policy))
	for i, p := range v.Policy {
		logs[i] = float64(p) - float64(v.Old[i])
	}
	kind := methodOf(o.cfg.Kind)
	if kind.whole {
		means(logs, logs, v.Lengths)
	}
	low, high := correctionBounds(o.cfg)
	for i, p := range v.Policy {
		ratio := math.Exp(logs[i])
		r.Ratio += ratio
		r.RatioMax = max(r.RatioMax, ratio)
		if kind.clips != nil && kind.clips(o.cfg, float64(v.Advantage[i]), ratio) {
			r.Clipped++
		}
		if o.cfg.Correction != NoCorrection {
			if d := float64(v.Recomputed[i]) - float64(v.Behaviour[i]); d < low || d > high {
				r.Corrected++
			}
		}
		if v.Reference != nil {
			d := float64(v.Reference[i]) - float64(p)
			r.KL += math.Exp(d) - 1 - d
		}
	}
}
