package page

import (
	"strings"

	"github.com/easyrl/easyrl/report"
)

// share is a part of a total time.
type share struct {
	Name    string
	Seconds float64
	Of      float64 // fraction of the total
}

// times divides the run's time. parts says where the trainer's time went, according to the timing_s
// metrics: phases of the steps, evaluations, checkpoints and the rest. idle says how long each side was
// idle during the steps, according to the idle metrics. With two sides it ends with the minimum time in
// which both worked at once. Both results are nil without step times.
func times(steps *report.Steps) (parts, idle []share) {
	total := func(name string) float64 {
		_, seconds := steps.Series("step", "timing_s/"+name)
		return sum(seconds)
	}
	inSteps := total("step")
	whole := inSteps + total("eval") + total("checkpoint")
	if inSteps <= 0 {
		return nil, nil
	}
	rest := whole
	for _, part := range [][2]string{{"publish", "publish weights"}, {"wait", "wait for groups"},
		{"train", "forward and backward"},
		{"optimizer", "optimizer"}, {"checkpoint", "checkpoints"}, {"eval", "evaluation"}} {
		if seconds := total(part[0]); seconds > 0 {
			parts = append(parts, share{part[1], seconds, seconds / whole})
			rest -= seconds
		}
	}
	if rest > whole/1000 && len(parts) > 0 {
		parts = append(parts, share{"other", rest, rest / whole})
	}
	both := share{"both busy, at least", inSteps, 1}
	for _, name := range steps.Names() {
		side, ok := strings.CutPrefix(name, "idle/")
		if !ok {
			continue
		}
		seconds := weighed(steps.Series(name, "timing_s/step"))
		idle = append(idle, share{side + " idle", seconds, seconds / inSteps})
		both.Seconds -= seconds
	}
	if len(idle) > 1 {
		both.Seconds = max(both.Seconds, 0)
		both.Of = both.Seconds / inSteps
		idle = append(idle, both)
	}
	return parts, idle
}

// weighed returns the sum of shares, each multiplied by the total that it is a share of.
func weighed(shares, of []float64) (all float64) {
	for i, share := range shares {
		all += share * of[i]
	}
	return all
}
