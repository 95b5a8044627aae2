package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/report/steptime"
)

// Recommend is the mode and the split of cores of the fastest run.
type Recommend struct {
	Mode     string         `json:"mode"`
	Settings []string       `json:"settings"` // for easyrl train -set
	Share    steptime.Split `json:"share"`
	Step     float64        `json:"step"`    // seconds, at the speed the machine had during the first run
	Speedup  float64        `json:"speedup"` // over the first run
	Run      string         `json:"run"`     // its name
}

// scaledStep returns the run's step time in seconds, scaled to the machine's speed during the first run.
func (r *Result) scaledStep(first *Result) float64 {
	return first.Step / r.Speedup * (r.Tokens / float64(r.Timed)) / (first.Tokens / float64(first.Timed))
}

// recommend picks the fastest of the runs with no more threads than this machine has cores. It returns
// nil if there is none or if the sweep changes the work itself.
func (c *comparing) recommend(variants []variant) *Recommend {
	runs := c.found.Runs
	first, best := &runs[0], &Recommend{Step: math.Inf(1)}
	if !c.sameWork() {
		return nil
	}
	for i := range runs {
		r := &runs[i]
		if r.Share.Threads() <= c.o.Cores && r.scaledStep(first) < best.Step {
			best = &Recommend{Mode: r.Mode, Share: r.Share, Step: r.scaledStep(first), Run: r.Name,
				Settings: settingsOf(variants, r.Name)}
		}
	}
	if best.Mode == "" {
		return nil
	}
	best.Speedup = first.Step / best.Step
	return best
}

// settingsOf returns the settings of the variant with a name.
func settingsOf(variants []variant, name string) []string {
	return variants[slices.IndexFunc(variants, func(v variant) bool { return v.name == name })].settings
}

// sameWork reports whether the swept key changes only where work runs, not what it computes.
func (c *comparing) sameWork() bool {
	section, name, swept := strings.Cut(c.sweptKey(), ".")
	return !swept || section == "inference" || section == "device" || section == "parallel" && name != "reduce"
}

// advice names the recommended mode and split, or says that the configuration should stay.
func (c *comparing) advice() string {
	r, runs := c.found.Recommend, c.found.Runs
	switch {
	case !c.sameWork():
		return fmt.Sprintf(
			"No recommendation: %s changes the work itself, so the times of the runs are not comparable.",
			c.sweptKey())
	case r == nil:
		return fmt.Sprintf("No recommendation: every run computes with more threads than the %d cores "+
			"of this machine. Compare with fewer instances or threads.", c.o.Cores)
	case r.Run == c.found.Current:
		return fmt.Sprintf("Keep the configuration: it already has %s, %s, the fastest of the measured ones.",
			r.Mode, r.Share)
	}
	for i := range runs {
		if own := &runs[i]; own.Name == c.found.Current && r.Speedup < own.Speedup*(1+own.uncertainty()) {
			return fmt.Sprintf(
				"Keep the configuration: nothing measured is faster than %s by more than the measurement noise.",
				own.Name)
		}
	}
	text := fmt.Sprintf("Recommended: %s, %s: -set %s.", r.Mode, r.Share, strings.Join(r.Settings, " -set "))
	if r.Run != runs[0].Name {
		text += fmt.Sprintf(" It is %s× as fast as %s.", times(r.Speedup), runs[0].Name)
	}
	return text
}
