package compare

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/steptime"
)

const document = `[model]
path = "m"
[data]
train = "t.jsonl"
[run]
name = "tiny"
steps = 4
[rollout]
prompts_per_step = 10
[train]
`

// options returns the options of a comparison on 8 cores. more is appended to document.
func options(t *testing.T, more string) Options {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "tiny.toml")
	require.NoError(t, os.WriteFile(file, []byte(document+more), 0o644))
	return Options{Files: []string{file}, Warmup: 1, Repeats: 1, Dir: filepath.Join(dir, "out"), Cores: 8,
		Threads: func(cfg *configs.Config, cores int) (training, sampling int, lends bool) {
			training, sampling = cfg.Device.Threads, cfg.Inference.Threads
			if sampling == 0 {
				sampling = max(1, (cores-max(training, cores/2))/max(1, cfg.Inference.Instances))
			}
			if training == 0 {
				return cores - sampling*cfg.Inference.Instances, sampling, true
			}
			return training, sampling, false
		}, Say: func(string, ...any) {}}
}

// machine is a fake easyrl train. With n threads, a step samples for 8/n seconds and
// trains for 16/n, with 1000 tokens.
type machine struct {
	t       *testing.T
	ran     []string // folders, cores and whether resumed
	stopsAt int      // number of the run that ends after its second step, from 1
	weights func(cfg *configs.Config) string
	slower  func(cfg *configs.Config) float64 // factor on the times of a step; nil is 1
}

func (m *machine) train(_ context.Context, cores int, args []string) error {
	resume := args[len(args)-1] == "-resume"
	if resume {
		args = args[:len(args)-1]
	}
	var settings []string
	for i, arg := range args {
		if arg == "-set" {
			settings = append(settings, args[i+1])
		}
	}
	r, err := configs.Load(args[:1], settings)
	require.NoError(m.t, err)
	m.ran = append(m.ran, fmt.Sprint(filepath.Base(r.Run.Dir), " on ", cores,
		map[bool]string{true: " resumed"}[resume]))
	require.NoError(m.t, os.MkdirAll(r.Run.Dir, 0o755))
	require.NoError(m.t, r.WriteFile(r.Run.Dir))
	first, last := 1, r.Run.Steps
	if resume {
		first = 3
	} else if len(m.ran) == m.stopsAt {
		last = 2
	}
	metrics, err := report.OpenMetrics(filepath.Join(r.Run.Dir, report.MetricsFile), first)
	require.NoError(m.t, err)
	defer metrics.Close() //nolint:errcheck // only a test
	for step := first; step <= last; step++ {
		v := values(&r.Config, cores, step, step == first)
		for name := range v {
			if m.slower != nil && strings.HasPrefix(name, "timing_s/") {
				v[name] *= m.slower(&r.Config)
			}
		}
		require.NoError(m.t, metrics.Write(report.Line{Values: v}))
	}
	weights := "w"
	if m.weights != nil {
		weights = m.weights(&r.Config)
	}
	_, err = checkpoint.Save(filepath.Join(r.Run.Dir, "checkpoints"), checkpoint.StepName(last),
		func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "model.safetensors"), []byte(weights), 0o644)
		})
	require.NoError(m.t, err)
	if last < r.Run.Steps {
		return errors.New("stopped")
	}
	return nil
}

// values returns the metrics of a step. slow marks the first step of a process.
func values(cfg *configs.Config, cores, step int, slow bool) report.Values {
	n := float64(cores)
	wait, sample, train := 8/(n/2), 8/(n/2), 16/n
	switch cfg.Run.Mode {
	case configs.PeriodicAsync: // half of the threads train while the others sample, then all train
		wait, train = 0.1*sample, 0.9*sample+16/n-0.9*sample/2
	case configs.Colocated:
		wait, sample = 8/n, 8/n
	}
	all := wait + train
	if slow {
		all += 100
	}
	return report.Values{"step": float64(step), "timing_s/step": all, "timing_s/wait": wait, "timing_s/sample": sample,
		"timing_s/train":       train,
		"timing_s/first_group": wait, "tokens/prompt": 100, "tokens/response": 900, "reward/mean": float64(step) / 10,
		"idle/instances": 1 - sample/all, "fleet/size": 1, "eval/test/mean@1": 0.5}
}

func TestModes(t *testing.T) {
	t.Parallel()
	o := options(t, "")
	m := &machine{t: t}
	o.Train = m.train
	c, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, []string{"sync on 8", "periodic-async on 8", "colocated on 8"}, m.ran)
	sync, async, turns := c.Runs[0], c.Runs[1], c.Runs[2]
	require.Equal(t, steptime.Split{TrainerThreads: 4, Instances: 1, InstanceThreads: 4, LendsIdle: true}, sync.Share)
	require.Equal(t, steptime.Split{TrainerThreads: 8, Instances: 1, InstanceThreads: 8, Alternating: true},
		turns.Share)
	require.Equal(t, 3, sync.Timed, "the first step is a warm-up")
	require.InDelta(t, 12, sync.Seconds, 1e-9)
	require.InDelta(t, 3000, sync.Tokens, 1e-9)
	require.InDelta(t, 3000.0/12/8, sync.Rate, 1e-9)
	require.InDelta(t, 2, sync.Sampling, 1e-9)
	require.InDelta(t, 2, sync.Training, 1e-9)
	require.InDelta(t, 2, sync.Ceiling, 1e-9)
	require.InDelta(t, 0.5, sync.IdleTrainer, 1e-9)
	require.InDelta(t, 0.5, sync.IdleInstances, 1e-9)
	require.InDelta(t, 4/3.1, async.Speedup, 1e-9)
	require.InDelta(t, 4.0/3, turns.Speedup, 1e-9)
	require.InDelta(t, 0.4, *sync.Reward, 1e-9)
	require.Len(t, sync.Weights, 64)
	said := strings.Join(c.Findings, "\n")
	require.Contains(t, said, "colocated is the fastest: 1.03× as fast as periodic-async and 1.33× as fast as sync.")
	require.Contains(t, said,
		"periodic-async reached 1.29× of a possible 2.00×. It cannot reach the ceiling here because sync already lends")
	require.Contains(t, said, "All runs end with bit-identical weights (sha256 "+sync.Weights[:12])
	require.Contains(t, said, "Recommended: colocated, 8 or 1×8 threads")
	var table strings.Builder
	require.NoError(t, c.Print(&table))
	require.Regexp(t, `sync +4 \+ 1×4 +3 +12s +3000 +31\.3 +1\.00 +2s +2s +2\.00 +50% +50% +0\.400 +0\.500 +`+
		sync.Weights[:8], table.String())
	page, err := os.ReadFile(filepath.Join(o.Dir, PageFile))
	require.NoError(t, err)
	require.Contains(t, string(page), "<svg")
	require.Contains(t, string(page), "reward/mean")
	require.NotContains(t, string(page), "://", "the page loads nothing from the network")
	saved, err := os.ReadFile(filepath.Join(o.Dir, File))
	require.NoError(t, err)
	require.Contains(t, string(saved), `"speedup": 1.3333333333333333`)
}

// Resuming keeps finished runs and resumes the interrupted one. The first step of its
// second process is not timed either.
func TestResume(t *testing.T) {
	t.Parallel()
	o := options(t, "")
	o.Repeats, o.Modes = 2, []string{configs.Sync, configs.Colocated}
	m := &machine{t: t, stopsAt: 2}
	o.Train = m.train
	c, err := Run(t.Context(), o)
	require.EqualError(t, err, "colocated: stopped; retry failed runs with -resume")
	require.Equal(t, []Failure{{"colocated", "colocated", "stopped"}}, c.Failed)
	require.Len(t, c.Runs, 1, "the other runs are kept")
	require.Equal(t, []string{"sync", "sync-2"}, c.Runs[0].Folders)
	require.Contains(t, c.Findings[0], "colocated failed: stopped (colocated).")
	require.FileExists(t, filepath.Join(o.Dir, PageFile))
	_, err = Run(t.Context(), o)
	require.ErrorIs(t, err, ErrUsage)
	require.ErrorContains(t, err, "already contains a comparison; continue it with -resume, or set another -out")
	other := o
	other.Resume, other.Settings = true, []string{"train.lr=1"}
	_, err = Run(t.Context(), other)
	require.ErrorIs(t, err, ErrUsage)
	require.ErrorContains(t, err,
		"was run with different settings (train.lr 1.0 (was 1e-06)); use the same settings or another -out")
	o.Resume, m.ran, m.stopsAt = true, nil, 0
	c, err = Run(t.Context(), o)
	require.NoError(t, err)
	require.Empty(t, c.Failed)
	require.Equal(t, []string{"colocated on 8 resumed", "colocated-2 on 8"}, m.ran)
	require.Equal(t, map[string][]int{"colocated": {2}}, c.Resumed)
	require.Less(t, c.Runs[1].Step, 4.0, "the first step after the pause is slow, and not timed")
	require.Equal(t, 3, c.Runs[1].Timed, "the other repeat times that step")
	m.ran = nil
	again, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.Empty(t, m.ran, "all runs are finished")
	require.InDelta(t, c.Runs[1].Step, again.Runs[1].Step, 1e-9)
}

func TestTimedSteps(t *testing.T) {
	t.Parallel()
	var steps []report.Values
	for step := range 8 {
		// step 0 is an evaluation and has no time
		steps = append(steps, report.Values{"step": float64(step), "timing_s/step": float64(min(step, 1))})
	}
	require.Len(t, timed(steps, 0, nil), 7)
	require.Equal(t, []int{3, 4, 7}, slices.Sorted(maps.Keys(timed(steps, 2, []int{4}))))
}

// Each step, with all its times, comes from the repeat that ran it fastest.
func TestRepeats(t *testing.T) {
	t.Parallel()
	step := func(wait, train float64) report.Values {
		return report.Values{"timing_s/step": wait + train, "timing_s/wait": wait, "timing_s/train": train,
			"tokens/response": 10, "idle/instances": 0.5}
	}
	r := Result{Mode: configs.Sync, Cores: 2, repeats: []map[int]report.Values{{1: step(1, 2), 2: step(5, 3)},
		{1: step(3, 1), 2: step(2, 1)}, {2: step(9, 9)}}}
	require.NoError(t, r.average())
	require.InDelta(t, 6, r.Seconds, 1e-9)
	require.InDelta(t, 1.5, r.Sampling, 1e-9)
	require.InDelta(t, 1.5, r.Training, 1e-9)
	require.InDelta(t, 20.0/6/2, r.Rate, 1e-9)
	require.InDelta(t, 0.5, r.IdleInstances, 1e-9)
	for _, step := range r.repeats[0] {
		step["perf/cores"] = 5
	}
	r = Result{Cores: 2, Share: steptime.Split{TrainerThreads: 1, Instances: 1, InstanceThreads: 1},
		repeats: r.repeats[:1]}
	require.NoError(t, r.average())
	require.Equal(t, []int{3, 5}, []int{r.ServerCores, r.Cores}, "those of servers count")
	require.InDelta(t, 20.0/11/5, r.Rate, 1e-9)
	require.ErrorContains(t, (&Result{Folders: []string{"sync"}}).average(), "sync has no step to time")
}

func TestSweep(t *testing.T) {
	t.Parallel()
	o := options(t, "[inference]\ninstances = 2\n")
	o.Sweep = "inference.instances=1, 2"
	m := &machine{t: t}
	o.Train = m.train
	c, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, []string{"periodic-async-inference.instances=1 on 8", "periodic-async-inference.instances=2 on 8"},
		m.ran)
	require.Equal(t, steptime.Split{TrainerThreads: 4, Instances: 2, InstanceThreads: 2, LendsIdle: true},
		c.Runs[1].Share)
	require.NotNil(t, c.Recommend)
	o.Sweep, o.Dir, m.weights = "train.lr=1e-3,1e-4", t.TempDir(),
		func(cfg *configs.Config) string { return fmt.Sprint(cfg.Train.LR) }
	c, err = Run(t.Context(), o)
	require.NoError(t, err)
	require.Nil(t, c.Recommend)
	require.Contains(t, strings.Join(c.Findings, "\n"), "No recommendation: train.lr changes the work itself")
	require.NotContains(t, strings.Join(c.Findings, "\n"), "weights")
}

// The fastest run of a sweep is recommended with its value.
func TestRecommendationKeepsSweptKey(t *testing.T) {
	t.Parallel()
	o := options(t, "[device]\nthreads = 2\n[inference]\nthreads = 4\n")
	o.Sweep, o.Repeats = "inference.max_running=64, 8", 2
	m := &machine{t: t, slower: func(cfg *configs.Config) float64 { return float64(cfg.Inference.MaxRunning) / 8 }}
	o.Train = m.train
	c, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, []string{"run.mode=periodic-async", "inference.max_running=8"}, c.Recommend.Settings)
	require.Equal(t, "periodic-async inference.max_running=8", c.Recommend.Run)
	require.Equal(t, "periodic-async inference.max_running=64", c.Current)
	require.Equal(t, []string{"periodic-async-inference.max_running=64 on 6",
		"periodic-async-inference.max_running=8 on 6",
		"periodic-async-inference.max_running=64-2 on 6", "periodic-async-inference.max_running=8-2 on 6"}, m.ran)
}

// docs/modes.md describes every key of compare.json.
func TestModesPageDescribesKeys(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "modes.md"))
	require.NoError(t, err)
	_, about, found := strings.Cut(string(page), "## compare.json")
	require.True(t, found)
	var visit func(of reflect.Type)
	visit = func(of reflect.Type) {
		for of.Kind() == reflect.Slice || of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct {
			return
		}
		for i := range of.NumField() {
			field := of.Field(i)
			if key, _, _ := strings.Cut(field.Tag.Get("json"), ","); key != "" {
				require.Contains(t, about, "`"+key+"`", "of %s", of.Name())
				visit(field.Type)
			}
		}
	}
	visit(reflect.TypeFor[Comparison]())
}

func TestSweptValues(t *testing.T) {
	t.Parallel()
	for list, want := range map[string][]string{
		"1, 2,4":                 {"1", "2", "4"},
		`["a, b","c"], []`:       {`["a, b","c"]`, "[]"},
		`"x,]y",'z,'`:            {`"x,]y"`, `'z,'`},
		`{a = [1, 2], b = 3},{}`: {`{a = [1, 2], b = 3}`, "{}"},
		"sum":                    {"sum"},
	} {
		require.Equal(t, want, swept(list))
	}
}

// A run stopped before its first step has a checkpoint but no metrics.
func TestResumeBeforeTheFirstStep(t *testing.T) {
	t.Parallel()
	o := options(t, "")
	o.Modes = []string{configs.Sync}
	dir := filepath.Join(o.Dir, "sync")
	o.Train = func(context.Context, int, []string) error {
		_, err := checkpoint.Save(filepath.Join(dir, "checkpoints"), checkpoint.StepName(0), func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "model.safetensors"), nil, 0o644)
		})
		require.NoError(t, err)
		return errors.New("stopped")
	}
	_, err := Run(t.Context(), o)
	require.ErrorContains(t, err, "sync: stopped")
	o.Resume = true
	o.Train = func(_ context.Context, _ int, args []string) error {
		require.Equal(t, "-resume", args[len(args)-1])
		return errors.New("stopped again")
	}
	_, err = Run(t.Context(), o)
	require.ErrorContains(t, err, "sync: stopped again")
}

// Weights are compared across repeats and modes.
func TestDifferentWeights(t *testing.T) {
	t.Parallel()
	o := options(t, "")
	o.Train = (&machine{t: t, weights: func(cfg *configs.Config) string { return cfg.Run.Mode }}).train
	c, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.Contains(t, strings.Join(c.Findings, "\n"), "The weights differ. Something is not deterministic")
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		change func(o *Options)
		want   string
	}{
		{func(o *Options) { o.Modes = []string{"asink"} },
			`-modes has "asink", expected any of sync, periodic-async, colocated`},
		{func(o *Options) { o.Modes = []string{"sync", "sync"} }, "-modes has sync twice"},
		{func(o *Options) { o.Warmup = 4 }, "-warmup is 4, expected 0 or more and less than run.steps = 4"},
		{func(o *Options) { o.Repeats = 0 }, "-repeats is 0, expected 1 or more"},
		{func(o *Options) { o.Sweep = "inference.instances" },
			`-sweep is "inference.instances", expected section.key=value,value,…`},
		{func(o *Options) { o.Sweep = "run.mode=sync" }, "-sweep varies run.mode, expected run.seed or"},
		{func(o *Options) { o.Sweep = "train.lr=1,1" }, "-sweep has train.lr=1 twice"},
		{func(o *Options) { o.Sweep = "train.lr=1,,2" }, `-sweep is "train.lr=1,,2", expected a value between commas`},
		{func(o *Options) { o.Sweep = "inference.instanses=1" },
			"-sweep inference.instanses=1: -set: unknown key inference.instanses, did you mean inference.instances?"},
		{func(o *Options) { o.Settings = []string{"run.steps=0"} }, "run.steps is 0, expected 1 or more"},
	} {
		o := options(t, "")
		row.change(&o)
		o.Train = func(context.Context, int, []string) error { panic("started") }
		_, err := Run(t.Context(), o)
		require.ErrorIs(t, err, ErrUsage)
		require.ErrorContains(t, err, row.want)
		require.NoDirExists(t, o.Dir)
	}
}

// Every mode gets the same cores, whichever mode the thread keys were meant for.
func TestBudget(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		settings []string
		mode     string
		cores    int
		want     []string
	}{
		{nil, "sync", 8, nil},
		{nil, "colocated", 8, []string{"device.threads=8", "inference.threads=8"}},
		{[]string{"inference.instances=3"}, "colocated", 8, []string{"device.threads=8", "inference.threads=2"}},
		{[]string{"device.threads=3", "inference.threads=1"}, "colocated", 4,
			[]string{"device.threads=4", "inference.threads=4"}},
		{[]string{"device.threads=3", "inference.threads=1"}, "sync", 4, nil},
		{[]string{"device.threads=3"}, "sync", 8, nil},
		{[]string{"run.mode=colocated", "device.threads=3", "inference.threads=3"}, "sync", 3,
			[]string{"device.threads=0", "inference.threads=0"}},
		{[]string{"run.mode=colocated", "device.threads=3", "inference.threads=3"}, "colocated", 3,
			[]string{"device.threads=3", "inference.threads=3"}},
	} {
		o := options(t, "")
		o.Settings, o.Modes = row.settings, []string{row.mode}
		variants, err := (&comparing{o: o}).plan()
		require.NoError(t, err)
		require.Equal(t, row.cores, variants[0].cores, row)
		require.Equal(t, append([]string{"run.mode=" + row.mode}, row.want...), variants[0].settings)
		require.True(t, slices.Contains(variants[0].all(nil, "d"), `run.dir="d"`))
	}
}
