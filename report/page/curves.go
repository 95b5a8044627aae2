package page

import (
	"html/template"
	"regexp"
	"slices"

	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/chart"
)

// figure describes a chart of related metrics.
type figure struct {
	title, y string
	names    string // regular expression that matches the whole name of each metric
	minutes  bool   // plot over time instead of steps
}

// figures returns the main charts. Metrics in none of them get a chart each, after
// these.
func figures() []figure {
	return []figure{
		{title: "Reward", names: "reward/mean"},
		{title: "Held-out score", names: "eval/.*/mean@.*"},
		{title: "Reward parts", names: "reward/.*/mean"},
		{title: "Reward by data source", names: "reward_by_source/.*/mean"},
		{title: "Response length", y: "tokens", names: "response_length/mean|response_length/max"},
		{title: "Responses cut at the length limit", y: "fraction", names: "response_length/clip_ratio"},
		{title: "Groups without a signal", y: "fraction", names: "reward/no_signal_frac|reward/zero_std_frac"},
		{title: "Entropy", y: "nats per token", names: "actor/entropy"},
		{title: "KL", y: "nats per token", names: "actor/kl|mismatch/kl"},
		{title: "Clip fraction", names: "actor/clip_frac"},
		{title: "Loss", names: "actor/loss|eval/.*/loss"},
		{title: "Gradient norm", names: "actor/grad_norm"},
		{title: "Throughput", y: "tokens per second", names: "perf/tokens_per_second"},
		{title: "Idle", y: "fraction of the step", names: "idle/trainer|idle/instances"},
		{title: "Step time", y: "seconds", names: "timing_s/step|timing_s/wait|timing_s/train"},
		{title: "Fleet", y: "instances", names: "fleet/size", minutes: true},
	}
}

// restParts is the number of parts of the horizontal axis at which a minor chart shows its values under
// the pointer. A small number keeps the page small.
const restParts = 30

// curves holds the charts of a run: the main ones, one per remaining metric, and the
// metrics that never changed.
type curves struct {
	Main, Rest []template.HTML
	Same       []Row
}

// drawCurves draws all metrics of steps.
func drawCurves(steps *report.Steps) curves {
	var c curves
	changing := map[string]bool{}
	all := steps.Names()
	for _, name := range all {
		_, ys := steps.Series("step", name)
		switch {
		case name == "step" || name == "time" || name == "version":
		case slices.Min(ys) == slices.Max(ys):
			c.Same = append(c.Same, rowOf(steps, name))
		default:
			changing[name] = true
		}
	}
	times, _ := steps.Series("time", "step")
	numbers, _ := steps.Series("step", "step")
	draw := func(title, x, y string, parts int, lines []chart.Series) template.HTML {
		p := chart.Plot{Title: title, X: x, Y: y, Series: lines, Smooth: true, Parts: parts}
		if x == "step" && len(numbers) > 0 { // all charts over steps share the axis
			p.From, p.To = slices.Min(numbers), slices.Max(numbers)
		}
		return chart.Lines(p)
	}
	drawn := map[string]bool{}
	for _, f := range figures() {
		f.minutes = f.minutes && len(times) == steps.Len()
		pattern := f.pattern()
		var lines []chart.Series
		for _, name := range all {
			if changing[name] && pattern.MatchString(name) {
				drawn[name] = true
				lines = append(lines, line(steps, name, f.minutes))
			}
		}
		if len(lines) > 0 {
			c.Main = append(c.Main, draw(f.title, f.axis(), f.y, 0, lines))
		}
	}
	for _, name := range all {
		if changing[name] && !drawn[name] {
			c.Rest = append(c.Rest, draw(name, "step", "", restParts, []chart.Series{line(steps, name, false)}))
		}
	}
	return c
}

// pattern matches the names of the figure's metrics.
func (f figure) pattern() *regexp.Regexp { return regexp.MustCompile("^(?:" + f.names + ")$") }

// axis returns the name of the horizontal axis.
func (f figure) axis() string {
	if f.minutes {
		return "minutes"
	}
	return "step"
}

// line returns a metric over the steps or, with minutes, over the minutes since the first step.
func line(steps *report.Steps, name string, minutes bool) chart.Series {
	s := chart.Series{Name: name}
	if !minutes {
		s.X, s.Y = steps.Series("step", name)
		return s
	}
	s.X, s.Y = steps.Series("time", name)
	begin := steps.Values(0)["time"]
	for i := range s.X {
		s.X[i] = (s.X[i] - begin) / 60
	}
	return s
}
