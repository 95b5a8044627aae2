package compare

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/report"
)

// words returns the findings in sentences: which run is fastest and why, whether the
// weights are equal, how close the ceiling is, and what to change.
func words(c *Comparison) []string {
	said := append(failed(c), winner(c))
	said = append(said, budgets(c)...)
	said = append(said, overlap(c)...)
	said = append(said, weights(c)...)
	if doubt := noise(c); doubt != "" {
		said = append(said, doubt)
	}
	if c.Recommend == nil {
		key, _, _ := strings.Cut(c.Sweep, "=")
		return append(said, fmt.Sprintf("No split is recommended: %s changes the work itself, so that the runs' times say nothing of each other.", key))
	}
	said = append(said, advice(c))
	if v := c.Verified; v != nil {
		off := "0%"
		if percent := math.Round(100 * v.Off); percent != 0 {
			off = fmt.Sprintf("%+.0f%%", percent)
		}
		said = append(said, fmt.Sprintf("Verified: predicted %s times %s, measured %s times, half of the steps between %s and %s: the prediction is off by %s.",
			times(c.Recommend.Speedup), c.Runs[0].Name, times(v.Speedup), times(v.Runs[1].Low), times(v.Runs[1].High), off))
	}
	return said
}

// failed reports the runs that ended with an error.
func failed(c *Comparison) (said []string) {
	for _, f := range c.Failed {
		said = append(said, fmt.Sprintf("%s failed: %s (%s). What is said here is of the runs that did not.", f.Name, f.Error, f.Folder))
	}
	return said
}

// budgets reports that runs have different numbers of cores, if they do.
func budgets(c *Comparison) []string {
	least, most := c.Runs[0].Cores, c.Runs[0].Cores
	for _, r := range c.Runs {
		least, most = min(least, r.Cores), max(most, r.Cores)
	}
	if least == most {
		return nil
	}
	return []string{fmt.Sprintf("The runs have %d to %d cores, as their keys of threads say: speed-ups are of whole runs, tokens/s/core is for each core.", least, most)}
}

// times formats a ratio.
func times(x float64) string { return fmt.Sprintf("%.2f", x) }

// telling is the minimum relative difference between two speeds that counts. It grows
// with the spread of the steps.
const telling = 0.03

// doubt returns the relative uncertainty of the run's speedup.
func (r *Result) doubt() float64 { return max(telling, (r.High-r.Low)/r.Speedup/4) }

// winner reports which run is fastest and by how much.
func winner(c *Comparison) string {
	if len(c.Runs) == 1 {
		return fmt.Sprintf("%s trained %s tokens a second a core.", c.Runs[0].Name, report.Number(round(c.Runs[0].Rate)))
	}
	order := slices.Clone(c.Runs)
	slices.SortStableFunc(order, func(a, b Result) int { return cmp.Compare(b.Speedup, a.Speedup) })
	best, next := order[0], order[1]
	lead := best.Speedup / next.Speedup
	if lead < 1+max(best.doubt(), next.doubt()) {
		return fmt.Sprintf("%s and %s are equally fast as far as can be told: %s times.", best.Name, next.Name, times(lead))
	}
	text := fmt.Sprintf("%s is the fastest: %s times as fast as %s", best.Name, times(lead), next.Name)
	if next.Name != c.Runs[0].Name && best.Name != c.Runs[0].Name {
		text += fmt.Sprintf(", and %s times as fast as %s", times(best.Speedup), c.Runs[0].Name)
	}
	return text + "."
}

// overlap reports how much of the possible gain asynchrony achieved, and why colocation
// gained more if it did.
func overlap(c *Comparison) (said []string) {
	sync, async, turns := find(c, configs.Sync), find(c, configs.PeriodicAsync), find(c, configs.Colocated)
	if sync != nil {
		longer := "training"
		if sync.Sampling > sync.Training {
			longer = "sampling"
		}
		said = append(said, fmt.Sprintf("One after the other, sampling takes Ti = %s a step and training Tt = %s, so hiding one behind the other can make it %s times as fast at most: %s is the longer.",
			Time(sync.Sampling), Time(sync.Training), times(sync.Ceiling), longer))
	}
	if sync != nil && async != nil {
		gain := async.Speedup / sync.Speedup
		text := fmt.Sprintf("Asynchrony makes it %s times as fast, of %s.", times(gain), times(sync.Ceiling))
		if gain < 1+async.doubt() {
			text = fmt.Sprintf("Asynchrony gains nothing here that can be told: %s times, of %s.", times(gain), times(sync.Ceiling))
		}
		if sync.Share.LendsIdle && gain < 0.9*sync.Ceiling {
			text += " Here sync trains with the threads of the resting instances too, which it has to itself; beside sampling there are fewer, and the ceiling is for cores that would otherwise rest."
		}
		said = append(said, text)
	}
	if turns != nil && async != nil && turns.Speedup > async.Speedup*(1+max(turns.doubt(), async.doubt())) {
		said = append(said, fmt.Sprintf("Taking turns on all %d cores (colocated) beats asynchrony here by %s times: where both sides share one machine and speed up with its cores, nobody needs to wait for anybody. Asynchrony is for instances that have devices of their own, or that cannot use all the cores.",
			turns.Cores, times(turns.Speedup/async.Speedup)))
	}
	return said
}

// find returns the first run of a mode, nil if there is none.
func find(c *Comparison, mode string) *Result {
	for i := range c.Runs {
		if c.Runs[i].Mode == mode {
			return &c.Runs[i]
		}
	}
	return nil
}

// weights reports whether runs of the same work ended in the same bits.
func weights(c *Comparison) []string {
	key, _, swept := strings.Cut(c.Sweep, "=")
	same, compared := true, false
	for i, r := range c.Runs {
		repeats := strings.Fields(r.Weights)
		compared = compared || len(r.Folders) > 1
		same = same && len(repeats) == 1
		for _, other := range c.Runs[:i] {
			if !swept || sameWork(key) || other.Value == r.Value {
				compared, same = true, same && other.Weights == r.Weights
			}
		}
	}
	switch {
	case !compared:
		return nil
	case same && !swept || same && sameWork(key):
		return []string{fmt.Sprintf("All ended in the same weights, bit for bit (sha256 %.12s…).", c.Runs[0].Weights)}
	case same:
		return []string{"Runs of the same value ended in the same weights, bit for bit."}
	case c.Order == configs.Arrival:
		return []string{"The weights differ: train.order is \"arrival\", so groups are summed as they come, and sums differ by rounding. With train.order = \"prompt\" they are equal, bit for bit."}
	}
	return []string{"The weights differ although train.order is \"prompt\": something computes differently from run to run, such as servers, a reward or a device whose sums have no fixed order."}
}

// noise warns if the machine's noise blurs the measurements.
func noise(c *Comparison) string {
	groups := [][]Result{c.Runs}
	if c.Verified != nil {
		groups = append(groups, c.Verified.Runs)
	}
	for _, runs := range groups {
		for _, r := range runs {
			if r.High-r.Low > 0.25*r.Speedup {
				return fmt.Sprintf("The steps of %s are between %s and %s times as fast as those of %s (quartiles): the machine is busy or the steps are short. -repeats %d gives steadier figures.",
					r.Name, times(r.Low), times(r.High), runs[0].Name, 2*c.Repeats+1)
			}
		}
	}
	return ""
}

// advice describes the recommended split and how its gain was computed.
func advice(c *Comparison) string {
	r, first := c.Recommend, c.Runs[0].Name
	if r.Share.Instances == 0 {
		return fmt.Sprintf("Recommended: periodic-async with %d servers, expected to be %s times as fast as %s. With as many, sampling takes no longer than training; Ti is taken to fall as their number grows.",
			r.Servers, times(r.Speedup), first)
	}
	text := fmt.Sprintf("Recommended: %s, %s: -set %s.", r.Mode, r.Share, strings.Join(r.Settings, " -set "))
	if r.Run == "" {
		text += fmt.Sprintf(" Expected, from Ti and Tt: a step of %s, %s times as fast as %s. -verify runs it.", Time(r.Step), times(r.Speedup), first)
	} else {
		text += fmt.Sprintf(" That is the run %s as it was measured, %s times as fast as %s", r.Run, times(r.Speedup), first)
		if r.Mode == configs.PeriodicAsync && r.Model.Scale != 1 {
			text += fmt.Sprintf(" (computed from Ti and Tt alone: %s times)", times(r.Speedup*r.Model.Scale))
		}
		text += "; nothing else is predicted to be faster."
	}
	if r.Partial {
		text += " Splits with more or fewer threads to sample are left out, since how Ti depends on them was not measured: colocated among the -modes measures it."
	}
	return text
}
