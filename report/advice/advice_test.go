package advice

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report"
)

// healthy returns a step that triggers no warning.
func healthy(step int) report.Values {
	return report.Values{
		"step": float64(step), timing("step"): 10, timing("wait"): 1, timing("sample"): 8, timing("publish"): .1,
		timing("first_group"): 1,
		idleTrainer:           .1, idleInstances: .2, fleetSize: 2, rewardMean: .4 + .001*float64(step), rewardStd: .4,
		noSignal: .3,
		entropy:  .5 * math.Pow(.99, float64(step)), cutShare: .05, mismatchKL: 0, gradNorm: 1 + float64(step%3),
		actorLoss: .1,
	}
}

func timing(name string) string { return "timing_s/" + name }

// servers and threads return runs with each kind of instance.
func servers() Run {
	return Run{Mode: "periodic-async", Servers: true, Training: 8, Groups: 32, Waves: 5, Band: ServerBand,
		MaxTokens: 512, Clip: 1}
}

func threads(training, sampling int) Run {
	return Run{Mode: "periodic-async", Training: training, Sampling: sampling, Groups: 32, Waves: 5, Band: ExactBand,
		MaxTokens: 512, Clip: 1}
}

// with returns healthy steps that take the values of other from step from onward.
func with(from int, other report.Values) func(step int) report.Values {
	return func(step int) report.Values {
		v := healthy(step)
		if step >= from {
			maps.Copy(v, other)
		}
		return v
	}
}

// watch returns the warnings of a run of n steps.
func watch(t *testing.T, run Run, n int, step func(step int) report.Values) []report.Warning {
	t.Helper()
	a := New(run, nil)
	var all []report.Warning
	for i := range n {
		all = append(all, a.Step(step(i+1))...)
	}
	return all
}

// waiting returns a step in which sampling takes three times as long as training.
func waiting() report.Values {
	return report.Values{idleTrainer: .7, idleInstances: .02, timing("step"): 10, timing("wait"): 7,
		timing("sample"): 9.8, timing("first_group"): 1}
}

// resting returns a step in which training takes four times as long as sampling.
func resting() report.Values {
	return report.Values{idleTrainer: .05, idleInstances: .75, timing("step"): 10, timing("wait"): .5,
		timing("sample"): 2.5, timing("first_group"): .5}
}

func TestSpeed(t *testing.T) {
	t.Parallel()
	mode := func(run Run, mode string) Run { run.Mode = mode; return run }
	lends := func(run Run) Run { run.Lends = true; return run }
	turns := report.Values{idleTrainer: .5, idleInstances: .5, timing("step"): 10, timing("wait"): 5,
		timing("sample"): 5, timing("first_group"): 5}
	tests := []struct {
		name  string
		run   Run
		other report.Values
		kind  string // empty if no warning is expected
		text  string
	}{
		{"servers are slow", servers(), waiting(), "idle-trainer", "sampling is the bottleneck; the trainer waits " +
			"for samples 70% of the time. Use 7 instances instead of 2 for steps about 2.5 times as fast."},
		{"cores move to sampling", threads(8, 8), waiting(), "idle-trainer",
			"Set inference.threads = 6 and device.threads = 4 for steps about 1.5 times as fast."},
		{"lent cores move to sampling", lends(threads(8, 8)), waiting(), "idle-trainer",
			"Set inference.threads = 7 for steps about 1.5 times as fast."},
		{"no cores to move", threads(1, 2), waiting(), "idle-trainer",
			"More threads won't help. Add inference servers"},
		{"the first group takes all of it", servers(),
			report.Values{idleTrainer: .7, timing("wait"): 7, timing("sample"): 3, timing("first_group"): 7},
			"idle-trainer",
			"More instances won't help: the first group takes 7 s of a 10 s step."},
		{"turns by design", mode(threads(8, 8), "colocated"), waiting(), "", ""},
		{"sync", mode(servers(), "sync"), turns, "idle-trainer", `With run.mode = "periodic-async" it trains groups ` +
			`while others are sampled, on the same weights, and steps are about 1.7 times as fast.`},
		{"sync with lent cores", lends(mode(threads(8, 8), "sync")), turns, "idle-trainer",
			"steps are about 1.2 times as fast."},
		{"async at half", servers(), turns, "", ""},
		{"servers rest", servers(), resting(), "idle-instances",
			"training is the bottleneck; the instances are idle 75% of the time. 1 of 2 would keep up."},
		{"cores move to training", threads(8, 8), resting(), "idle-instances",
			"Set inference.threads = 2 and device.threads = 12 for steps about 1.4 times as fast."},
		{"lent cores do not rest", lends(threads(8, 8)), resting(), "", ""},
		{"sync rests by design", mode(servers(), "sync"), resting(), "", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			require.Empty(t, watch(t, test.run, window-1, with(1, test.other)), "too early")
			said := watch(t, test.run, 40, with(1, test.other))
			if test.kind == "" {
				require.Empty(t, said)
				return
			}
			require.Len(t, said, 1)
			require.Equal(t, test.kind, said[0].Kind)
			require.Contains(t, said[0].Text, test.text)
		})
	}
}

func TestHealthyRunsHaveNoWarnings(t *testing.T) {
	t.Parallel()
	require.Empty(t, watch(t, servers(), 400, healthy))
	require.Empty(t, watch(t, threads(8, 8), 400, healthy))
}

func TestLearning(t *testing.T) {
	t.Parallel()
	const from = 41
	dynamic := servers()
	dynamic.DynamicSampling = true
	loose := servers()
	loose.Clip = 0
	tests := []struct {
		name  string
		run   Run
		other report.Values
		at    int // step of the warning; 0 if none is expected
		kind  string
		text  string
	}{
		{"equal", servers(), report.Values{noSignal: 1, rewardMean: .75}, from + 4, "equal-rewards",
			"in 100% of groups all advantages are 0, so these groups teach nothing (mean reward 0.75). Choose"},
		{"all alike", servers(), report.Values{noSignal: 1, rewardMean: .4, rewardStd: 0}, from + 4, "equal-rewards",
			"check that the reward finds the answers"},
		{"equal with dynamic sampling", dynamic, report.Values{noSignal: 1}, from + 4, "equal-rewards",
			"even with rollout.dynamic_sampling"},
		{"many equal", servers(), report.Values{noSignal: .85}, 0, "", ""},
		{"entropy", servers(), report.Values{entropy: .01, rewardMean: .4}, from + 8, "entropy",
			"entropy collapsed from 0.48"},
		{"entropy falls with the task", servers(), report.Values{entropy: .1}, 0, "", ""},
		{"entropy is low where all is learned", servers(), report.Values{entropy: .01, rewardMean: 1, noSignal: .9},
			from + 4, "equal-rewards", ""},
		{"cut", servers(), report.Values{cutShare: .5}, from + 1, "length-limit", "hit rollout.max_tokens (512)"},
		{"some cut", servers(), report.Values{cutShare: .15}, 0, "", ""},
		{"servers differ", servers(), report.Values{mismatchKL: .03}, from + 1, "mismatch",
			"mismatch/kl is 0.012, expected at most 0.01"},
		{"servers round", servers(), report.Values{mismatchKL: .002}, 0, "", ""},
		{"exact instances differ", threads(8, 8), report.Values{mismatchKL: .002}, from, "mismatch",
			"Both compute the same bits"},
		{"servers differ infinitely", servers(), report.Values{mismatchKL: math.Inf(1)}, from, "mismatch",
			"mismatch/kl is +Inf, expected at most 0.01"},
		{"servers give no number", servers(), report.Values{mismatchKL: math.NaN()}, from, "mismatch",
			"mismatch/kl is NaN, expected at most 0.01"},
		{"gradient", servers(), report.Values{gradNorm: 50}, from, "gradient",
			"gradient norm is 50, 25 times the median of earlier steps. Check what this step trained on. " +
				"train.clip_grad = 1 limits"},
		{"gradient without a bound", loose, report.Values{gradNorm: 50}, from, "gradient",
			"Set train.clip_grad near 4 (now 0) to limit"},
		{"gradient of a hard step", servers(), report.Values{gradNorm: 8}, 0, "", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			said := watch(t, test.run, 80, with(from, test.other))
			if test.at == 0 {
				require.Empty(t, said)
				return
			}
			require.Len(t, said, 1)
			require.Equal(t, test.kind, said[0].Kind)
			require.Equal(t, test.at, said[0].Step)
			require.Contains(t, said[0].Text, test.text)
		})
	}
}

// evaluated returns healthy steps with an evaluation every ten steps.
func evaluated(name string, scores []float64, change func(v report.Values, step int)) func(step int) report.Values {
	return func(step int) report.Values {
		v := healthy(step)
		if i := step/10 - 1; step%10 == 0 && i < len(scores) {
			v[name] = scores[i]
		}
		change(v, step)
		return v
	}
}

func TestHeldOut(t *testing.T) {
	t.Parallel()
	const score, loss = "eval/test/mean@4", "eval/test/loss"
	certain := func(v report.Values, step int) {
		if step%10 == 0 {
			v["eval/test/stderr"] = .01
		}
	}
	unsure := func(v report.Values, step int) {
		if step%10 == 0 {
			v["eval/test/stderr"] = .05
		}
	}
	worse := func(v report.Values, step int) { certain(v, step); v[rewardMean] = .9 - .001*float64(step) }
	learns := func(v report.Values, step int) { v[actorLoss] = 1 / float64(step) }
	falls, dips := []float64{.5, .6, .55, .52, .5}, []float64{.5, .6, .55, .61, .55, .62}
	for name, test := range map[string]struct {
		step func(step int) report.Values
		at   int
	}{
		"falls while training rises":      {evaluated(score, falls, certain), 40},
		"falls by chance":                 {evaluated(score, falls, unsure), 0},
		"falls as training does":          {evaluated(score, falls, worse), 0},
		"dips":                            {evaluated(score, dips, certain), 0},
		"another measure falls":           {evaluated("eval/test/format/mean", falls, certain), 0},
		"loss rises while training falls": {evaluated(loss, []float64{1, .5, .6, .7}, learns), 40},
		"loss rises a little":             {evaluated(loss, []float64{1, .5, .505, .509}, learns), 0},
		"loss falls":                      {evaluated(loss, []float64{1, .5, .4, .3}, learns), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := watch(t, servers(), 70, test.step)
			if test.at == 0 {
				require.Empty(t, said)
				return
			}
			require.Len(t, said, 1)
			require.Equal(t, "held-out", said[0].Kind)
			require.Equal(t, test.at, said[0].Step)
			require.Contains(t, said[0].Text, "held-out test worsened")
			require.Contains(t, said[0].Text, "since step 20")
		})
	}
}

// A warning is given once, even across a resume. The new process remembers the
// earlier steps.
func TestWarningsAreGivenOnce(t *testing.T) {
	t.Parallel()
	step := with(1, report.Values{cutShare: .5})
	first := New(servers(), nil)
	for i := range 4 {
		require.Empty(t, first.Step(step(i+1)))
	}
	resumed := New(servers(), nil)
	for i := range 4 {
		resumed.Remember(step(i + 1))
	}
	said := resumed.Step(step(5))
	require.Equal(t, first.Step(step(5)), said)
	require.Len(t, said, 1)
	require.Empty(t, resumed.Step(step(6)))

	again := New(servers(), said)
	for i := range 40 {
		require.Empty(t, again.Step(step(i+1)))
	}
}

// The quickstart's runs, recorded on two cores, trigger no warning.
func TestQuickstartHasNoWarnings(t *testing.T) {
	t.Parallel()
	run := threads(1, 1)
	run.Lends = true
	for _, name := range []string{"grpo", "sft"} {
		steps, err := report.ReadMetrics(filepath.Join("testdata", name+".jsonl"))
		require.NoError(t, err)
		require.Greater(t, len(steps), 100)
		require.Empty(t, watch(t, run, len(steps), func(step int) report.Values { return steps[step-1] }))
	}
}

// Every key that a warning suggests exists.
func TestRemediesAreKeys(t *testing.T) {
	t.Parallel()
	keys, section := map[string]bool{}, ""
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "configuration.md"))
	require.NoError(t, err)
	for line := range strings.Lines(string(page)) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			section = strings.TrimSpace(name)
		}
		if name, ok := strings.CutPrefix(line, "| `"); ok {
			name, _, _ = strings.Cut(name, "`")
			keys[section+"."+name] = true
		}
	}
	named := 0
	for _, file := range []string{"collapse.go", "learning.go", "speed.go"} {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, key := range regexp.MustCompile(
			`\b(run|rollout|loss|train|inference|device)\.[a-z]+(_[a-z]+)*\b`).FindAllString(string(source), -1) {
			require.True(t, keys[key], "%s names %s, which is no key", file, key)
			named++
		}
	}
	require.Greater(t, named, 10)
}

// docs/metrics.md describes every warning.
func TestWarningsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md"))
	require.NoError(t, err)
	for _, r := range rules() {
		require.Contains(t, string(page), "| `"+r.kind+"` |")
	}
}
