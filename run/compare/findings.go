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

// findings returns the conclusions of a comparison, a sentence or two each: which run is
// fastest and why, whether the weights are equal, how close the ceiling is, and what to
// change.
func findings(c *Comparison) []string {
	all := append(failed(c), winner(c))
	all = append(all, budgets(c)...)
	all = append(all, overlap(c)...)
	all = append(all, weights(c)...)
	if text := noise(c); text != "" {
		all = append(all, text)
	}
	key, _, swept := strings.Cut(c.Sweep, "=")
	if c.Recommend == nil && swept && sameWork(key) && !dividesCores(key) {
		return append(all, fmt.Sprintf("No recommendation for the cores: the runs differ in %s.", key))
	} else if c.Recommend == nil && swept && !sameWork(key) {
		return append(all, fmt.Sprintf("No recommendation: %s changes the work itself, so the times of the runs are not comparable.", key))
	} else if c.Recommend == nil {
		return append(all, fmt.Sprintf("No recommendation: every run computes with more threads than the %d cores of this machine. Compare with fewer instances or threads.", c.machine))
	}
	all = append(all, advice(c))
	if v := c.Verified; v != nil {
		off := "0%"
		if percent := math.Round(100 * v.Off); percent != 0 {
			off = fmt.Sprintf("%+.0f%%", percent)
		}
		all = append(all, fmt.Sprintf("Verified: predicted %s× as fast as %s, measured %s× (quartiles %s× to %s×). The prediction is off by %s.",
			times(c.Recommend.Speedup), c.Runs[0].Name, times(v.Speedup), times(v.Runs[1].Low), times(v.Runs[1].High), off))
	}
	return all
}

// failed reports the runs that ended with an error.
func failed(c *Comparison) (all []string) {
	for _, f := range c.Failed {
		all = append(all, fmt.Sprintf("%s failed: %s (%s). The findings cover only the finished runs.", f.Name, f.Error, f.Folder))
	}
	return all
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
	return []string{fmt.Sprintf("The runs use %d to %d cores, as set by their thread keys. Speed-ups compare whole runs; tokens/s/core is per core.", least, most)}
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
func winner(c *Comparison) string {
	if len(c.Runs) == 1 {
		return fmt.Sprintf("%s trained %s tokens per second per core.", c.Runs[0].Name, report.Number(round(c.Runs[0].Rate)))
	}
	order := slices.Clone(c.Runs)
	slices.SortStableFunc(order, func(a, b Result) int { return cmp.Compare(b.Speedup, a.Speedup) })
	best, next := order[0], order[1]
	lead := best.Speedup / next.Speedup
	if lead < 1+max(best.uncertainty(), next.uncertainty()) {
		return fmt.Sprintf("%s and %s are equally fast within measurement noise (%s×).", best.Name, next.Name, times(lead))
	}
	text := fmt.Sprintf("%s is the fastest: %s× as fast as %s", best.Name, times(lead), next.Name)
	if next.Name != c.Runs[0].Name && best.Name != c.Runs[0].Name {
		text += fmt.Sprintf(" and %s× as fast as %s", times(best.Speedup), c.Runs[0].Name)
	}
	return text + "."
}

// overlap reports how much of the possible gain asynchrony achieved, and why colocation
// gained more if it did.
func overlap(c *Comparison) (all []string) {
	sync, async, turns := find(c, configs.Sync), find(c, configs.PeriodicAsync), find(c, configs.Colocated)
	if sync != nil {
		shorter, longer := "sampling", "training"
		if sync.Sampling > sync.Training {
			shorter, longer = longer, shorter
		}
		all = append(all, fmt.Sprintf("In sequence, a step samples for Ti = %s and trains for Tt = %s. Hiding %s behind %s can gain at most %s×.",
			Time(sync.Sampling), Time(sync.Training), shorter, longer, times(sync.Ceiling)))
	}
	if sync != nil && async != nil {
		gain := async.Speedup / sync.Speedup
		text := fmt.Sprintf("periodic-async reached %s× of a possible %s×.", times(gain), times(sync.Ceiling))
		if gain < 1+async.uncertainty() {
			text = fmt.Sprintf("periodic-async gained nothing measurable: %s× of a possible %s×.", times(gain), times(sync.Ceiling))
		}
		if sync.Share.LendsIdle && gain < 0.9*sync.Ceiling {
			text += " It cannot reach the ceiling here because sync already lends idle sampling threads to the trainer."
		}
		all = append(all, text)
	}
	if turns != nil && async != nil && turns.Share.Instances > 0 && turns.Speedup > async.Speedup*(1+max(turns.uncertainty(), async.uncertainty())) {
		all = append(all, fmt.Sprintf("colocated is %s× as fast as periodic-async here, because each phase gets all %d cores in turn and speeds up with them. periodic-async pays off if instances have their own devices or cannot use all cores.",
			times(turns.Speedup/async.Speedup), turns.Cores))
	}
	return all
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
		return []string{fmt.Sprintf("All runs end with bit-identical weights (sha256 %.12s…).", c.Runs[0].Weights)}
	case same:
		return []string{"Runs with the same swept value end with bit-identical weights."}
	case c.Backend == configs.PyTorch:
		return []string{"The weights differ by rounding because PyTorch ranks sum groups in an order of their own."}
	}
	return []string{"The weights differ. Something is not deterministic, such as a server, a reward, or a device without a fixed summation order."}
}

// noise returns a warning if the steps of a run vary too much, otherwise an empty text.
func noise(c *Comparison) string {
	groups := [][]Result{c.Runs}
	if c.Verified != nil {
		groups = append(groups, c.Verified.Runs)
	}
	for _, runs := range groups {
		for _, r := range runs {
			if r.High-r.Low > 0.25*r.Speedup {
				return fmt.Sprintf("Measurements are noisy: half of the steps of %s are %s× to %s× as fast as those of %s. The machine is busy or the steps are short; use -repeats %d for steadier figures.",
					r.Name, times(r.Low), times(r.High), runs[0].Name, 2*c.Repeats+1)
			}
		}
	}
	return ""
}

// advice describes the recommended split and how its gain was computed, or says that the
// configuration already has it.
func advice(c *Comparison) string {
	r, first := c.Recommend, c.Runs[0].Name
	if r.Share.Instances == 0 {
		return serverAdvice(c)
	}
	text := fmt.Sprintf("Recommended: %s, %s: -set %s.", r.Mode, r.Share, strings.Join(r.Change, " -set "))
	near := c.near()
	switch {
	case len(r.Change) == 0:
		text = fmt.Sprintf("Keep the configuration: it already has %s, %s, the fastest of the measured and predicted splits.", r.Mode, r.Share)
	case near != nil:
		return fmt.Sprintf("Keep the configuration: no measured or predicted split is faster than %s by more than the measurement noise.", near.Name)
	}
	if r.Run == "" {
		text += fmt.Sprintf(" Predicted from Ti and Tt: %s per step, %s× as fast as %s. Check the prediction with -verify.", Time(r.Step), times(r.Speedup), first)
	} else if r.Run != first {
		text += fmt.Sprintf(" The measured run %s is %s× as fast as %s", r.Run, times(r.Speedup), first)
		if r.Mode == configs.PeriodicAsync && r.Model.Scale != 1 {
			text += fmt.Sprintf(" (predicted from Ti and Tt alone: %s×)", times(r.Speedup*r.Model.Scale))
		}
		text += "."
	}
	if r.Partial {
		text += " Splits with other numbers of sampling threads are excluded, because Ti was measured with only one number. Add colocated to -modes to include them."
	}
	return text
}

// near returns the run with the configuration's own mode and split, if the recommendation
// is not faster by more than the noise.
func (c *Comparison) near() *Result {
	for i := range c.Runs {
		r := &c.Runs[i]
		if r.Name == c.Current && c.Recommend.Speedup < r.Speedup*(1+r.uncertainty()) {
			return r
		}
	}
	return nil
}

// serverAdvice describes the recommended number of servers.
func serverAdvice(c *Comparison) string {
	r, first := c.Recommend, c.Runs[0].Name
	servers := fmt.Sprintf("periodic-async with %d servers", r.Servers)
	if r.Servers == 1 {
		servers = "periodic-async with 1 server"
	}
	switch {
	case len(r.Change) == 0 && r.Servers == int(c.Runs[0].Servers):
		return fmt.Sprintf("Keep the configuration: %s is predicted to be the fastest.", servers)
	case len(r.Settings) > 1:
		return fmt.Sprintf("Recommended: %s and -set device.threads=%d, predicted to be %s× as fast as %s. Trainer and servers then have no more threads than this machine's %d cores.",
			servers, r.Share.TrainerThreads, times(r.Speedup), first, c.machine)
	default:
		return fmt.Sprintf("Recommended: %s, predicted to be %s× as fast as %s. Sampling then takes no longer than training, if Ti falls in proportion to the number of servers.",
			servers, times(r.Speedup), first)
	}
}
