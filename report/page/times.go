package page

import (
	"strings"

	"github.com/easyrl/easyrl/report"
)

// Share is a part of a run's time.
type Share struct {
	Name    string
	Seconds float64
	Of      float64 // the fraction of the whole
}

// Times says where the trainer's time went, from the steps' timing_s/…: the parts
// of all steps, what came after them, and the rest; and how much of the steps each
// side was idle, from idle/…, and what is left at least for both to work at once.
// Both are nil where nothing was recorded.
func Times(steps *report.Steps) (parts, idle []Share) {
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
	for _, part := range [][2]string{{"publish", "publish weights"}, {"wait", "wait for groups"}, {"train", "forward and backward"},
		{"optimizer", "optimizer"}, {"checkpoint", "checkpoints"}, {"eval", "evaluation"}} {
		if seconds := total(part[0]); seconds > 0 {
			parts = append(parts, Share{part[1], seconds, seconds / whole})
			rest -= seconds
		}
	}
	if rest > whole/1000 && len(parts) > 0 {
		parts = append(parts, Share{"other", rest, rest / whole})
	}
	both := Share{"both at work at once, at least", inSteps, 1}
	for _, name := range steps.Names() {
		side, ok := strings.CutPrefix(name, "idle/")
		if !ok {
			continue
		}
		seconds := weighed(steps.Series(name, "timing_s/step"))
		idle = append(idle, Share{side + " idle", seconds, seconds / inSteps})
		both.Seconds -= seconds
	}
	if len(idle) > 1 {
		both.Seconds = max(both.Seconds, 0)
		both.Of = both.Seconds / inSteps
		idle = append(idle, both)
	}
	return parts, idle
}

// weighed is the sum of shares, each of its whole.
func weighed(shares, of []float64) (all float64) {
	for i, share := range shares {
		all += share * of[i]
	}
	return all
}
