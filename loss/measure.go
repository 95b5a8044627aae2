package loss

import "github.com/easyrl/easyrl/internal/rounded"

// measure adds each token's ratio, clip, correction and KL to the sums of r, which are
// metrics and do not affect the loss.
func (o *Objective) measure(r *Result, v Vars) {
	logRatios := make([]float64, len(v.Policy))
	for i, p := range v.Policy {
		logRatios[i] = float64(p) - float64(v.Old[i])
	}
	m := methodOf(o.cfg.Kind)
	if m.perResponse {
		responseMeans(logRatios, logRatios, v.Lengths)
	}
	low, high := correctionBounds(o.cfg)
	for i, p := range v.Policy {
		ratio := rounded.Exp(logRatios[i])
		r.Ratio.Add(ratio)
		r.RatioMax = max(r.RatioMax, ratio)
		if m.clips != nil && m.clips(o.cfg, float64(v.Advantage[i]), ratio) {
			r.Clipped++
		}
		if o.cfg.Correction != NoCorrection {
			if logRho := float64(v.Recomputed[i]) - float64(v.Behaviour[i]); logRho < low || logRho > high {
				r.Corrected++
			}
		}
		if v.Reference != nil {
			d := float64(v.Reference[i]) - float64(p)
			r.KL.Add(rounded.Exp(d) - 1 - d) // the k3 estimate, whichever one the loss uses
		}
	}
}
