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
// side was idle, from idle/…. Both are nil where nothing was recorded.
func Times(steps []report.Values) (parts, idle []Share) {
	sum := func(name string) (seconds float64) {
		for _, values := range steps {
			seconds += values["timing_s/"+name]
		}
		return seconds
	}
	inSteps := sum("step")
	whole := inSteps + sum("eval") + sum("checkpoint")
	if inSteps <= 0 {
		return nil, nil
	}
	rest := whole
	for _, name := range []string{"publish", "wait", "train", "optimizer", "checkpoint", "eval"} {
		if seconds := sum(name); seconds > 0 {
			parts = append(parts, Share{name, seconds, seconds / whole})
			rest -= seconds
		}
	}
	if rest > whole/1000 {
		parts = append(parts, Share{"other", rest, rest / whole})
	}
	for _, name := range allNames(steps) {
		side, ok := strings.CutPrefix(name, "idle/")
		if !ok {
			continue
		}
		seconds := 0.0
		for _, values := range steps {
			seconds += values[name] * values["timing_s/step"]
		}
		idle = append(idle, Share{side, seconds, seconds / inSteps})
	}
	return parts, idle
}
