package loss

import "math"

// measure fills in what is reported and not optimised.
func (o *Objective) measure(r *Result, v Vars) {
	logs := make([]float64, len(v.Policy))
	for i, p := range v.Policy {
		logs[i] = float64(p) - float64(v.Old[i])
	}
	if sequenceLevel(o.cfg.Kind) {
		means(logs, logs, v.Lengths)
	}
	low, high := correctionBounds(o.cfg)
	for i, p := range v.Policy {
		ratio := math.Exp(logs[i])
		r.Ratio += ratio
		r.RatioMax = max(r.RatioMax, ratio)
		if o.clips(float64(v.Advantage[i]), ratio) {
			r.Clipped++
		}
		if o.cfg.Correction != NoCorrection {
			if d := float64(v.Behaviour[i]) - float64(v.Recorded[i]); d < low || d > high {
				r.Corrected++
			}
		}
		if v.Reference != nil {
			d := float64(v.Reference[i]) - float64(p)
			r.KL += math.Exp(d) - 1 - d
		}
	}
}

// clips says that the clip acts on a token.
func (o *Objective) clips(advantage, ratio float64) bool {
	below, above := ratio < 1-o.cfg.EpsilonLow, ratio > 1+o.cfg.EpsilonHigh
	switch o.cfg.Kind {
	case REINFORCE:
		return false
	case CISPO:
		return below || above
	}
	dual := o.cfg.DualClip > 0 && ratio > o.cfg.DualClip
	return advantage > 0 && above || advantage < 0 && (below || dual)
}
