package compare

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/report"
)

// findings returns the conclusions of a comparison, a sentence or two each: which run is
// fastest, how close asynchrony comes to its ceiling, whether the weights are equal, and what to set. The last one
// is always the advice, which the page shows on top.
func (c *comparing) findings() (all []string) {
	for _, f := range c.found.Failed {
		all = append(all, fmt.Sprintf("%s failed: %s (%s). The findings cover only the finished runs.", f.Name,
			f.Error, f.Folder))
	}
	all = append(all, winner(c.found.Runs), overlap(c.found.Runs), c.weights(), noise(&c.found), c.advice())
	return slices.DeleteFunc(all, func(text string) bool { return text == "" })
}

// times formats a ratio.
func times(x float64) string { return fmt.Sprintf("%.2f", x) }

// minUncertainty is the relative uncertainty of a speedup whose steps do not vary.
const minUncertainty = 0.03

// uncertainty returns the relative uncertainty of the run's speedup, which grows with the
// spread of its steps.
func (r *Result) uncertainty() float64 {
	return max(minUncertainty, (r.High-r.Low)/r.Speedup/4)
}

// winner reports which run is fastest and by how much.
func winner(runs []Result) string {
	if len(runs) == 1 {
		return fmt.Sprintf("%s trained %s tokens per second per core.",
			runs[0].Name, report.Number(round(runs[0].Rate)))
	}
	order := slices.Clone(runs)
	slices.SortStableFunc(order, func(a, b Result) int { return cmp.Compare(b.Speedup, a.Speedup) })
	best, next := order[0], order[1]
	lead := best.Speedup / next.Speedup
	if lead < 1+max(best.uncertainty(), next.uncertainty()) {
		return fmt.Sprintf("%s and %s are equally fast within measurement noise (%s×).", best.Name,
			next.Name, times(lead))
	}
	text := fmt.Sprintf("%s is the fastest: %s× as fast as %s", best.Name, times(lead), next.Name)
	if next.Name != runs[0].Name && best.Name != runs[0].Name {
		text += fmt.Sprintf(" and %s× as fast as %s", times(best.Speedup), runs[0].Name)
	}
	return text + "."
}

// overlap reports how much of the possible gain asynchrony reached, or nothing if sync or
// periodic-async was not measured.
func overlap(runs []Result) string {
	find := func(mode string) int { return slices.IndexFunc(runs, func(r Result) bool { return r.Mode == mode }) }
	if find(configs.Sync) < 0 || find(configs.PeriodicAsync) < 0 {
		return ""
	}
	sync, async := &runs[find(configs.Sync)], &runs[find(configs.PeriodicAsync)]
	gain := async.Speedup / sync.Speedup
	text := fmt.Sprintf("periodic-async reached %s× of a possible %s×.", times(gain), times(sync.Ceiling))
	if gain < 1+async.uncertainty() {
		text = fmt.Sprintf("periodic-async gained nothing measurable: %s× of a possible %s×.",
			times(gain), times(sync.Ceiling))
	}
	if sync.Share.LendsIdle && gain < 0.9*sync.Ceiling {
		text += " It cannot reach the ceiling here because sync already lends idle sampling threads to the trainer."
	}
	return text
}

// weights reports whether runs of the same work ended in the same bits.
func (c *comparing) weights() string {
	same, compared := true, false
	for i, r := range c.found.Runs {
		same = same && len(strings.Fields(r.Weights)) == 1
		compared = compared || len(r.Folders) > 1
		for _, other := range c.found.Runs[:i] {
			if c.sameWork() || other.Value == r.Value {
				compared, same = true, same && other.Weights == r.Weights
			}
		}
	}
	switch {
	case !compared:
		return ""
	case same && c.sameWork():
		return fmt.Sprintf("All runs end with bit-identical weights (sha256 %.12s…).", c.found.Runs[0].Weights)
	case same:
		return "Runs with the same swept value end with bit-identical weights."
	case c.found.Backend == configs.PyTorch:
		return "The weights differ by rounding because PyTorch ranks sum groups in an order of their own."
	}
	return "The weights differ. Something is not deterministic, such as a server, a reward, " +
		"or a device without a fixed summation order."
}

// noise returns a warning if the steps of a run vary too much, otherwise an empty text.
func noise(c *Comparison) string {
	for _, r := range c.Runs {
		if r.High-r.Low > 0.25*r.Speedup {
			return fmt.Sprintf("Measurements are noisy: half of the steps of %s are %s× to %s× as fast as "+
				"those of %s. The machine is busy or the steps are short; use -repeats %d for steadier figures.",
				r.Name, times(r.Low), times(r.High), c.Runs[0].Name, 2*c.Repeats+1)
		}
	}
	return ""
}
