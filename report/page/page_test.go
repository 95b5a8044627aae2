package page

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/trace"
)

func TestWriteHTML(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "my [run]")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "rollouts"), 0o755))
	m, err := report.OpenMetrics(filepath.Join(dir, report.MetricsFile), 0)
	require.NoError(t, err)
	for step := range 1500 {
		values := report.Values{"step": float64(step), "reward/mean": float64(step) / 1500, "actor/lr": 1,
			"time": 1e9 + float64(step)}
		if step%500 == 0 {
			values["eval/add/mean@1"] = float64(step) / 1000
		}
		require.NoError(t, m.Write(report.Line{Values: values}))
	}
	require.NoError(t, m.Close())
	for i, step := range []int{9, 10} {
		line := fmt.Sprintf(`{"step":%d,"prompt":"<b>%d+1=","answer":"%d","responses":[{"text":"<think>é `+
			`%s","reward":0.5,"finish":"length"}]}`,
			step, i, step, strings.Repeat("é", pageText))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "rollouts", fmt.Sprintf("step-%06d.jsonl", step)),
			[]byte(line+"\n"+line[:20]), 0o644))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run.toml"), []byte("[run]\nname = \"<x>\"\n"), 0o644))

	require.NoError(t, report.Machine{CPU: "abacus", Cores: 2}.Write(dir))
	require.NoError(t, report.WriteWarnings(filepath.Join(dir, report.WarningsFile),
		[]report.Warning{{Step: 9, Kind: "x", Text: "look <here>"}}))
	require.NoError(t, os.WriteFile(filepath.Join(dir, trace.File), []byte(twoSteps), 0o644))

	path, _, err := Write(dir)
	require.NoError(t, err)
	html := readFile(t, path)
	require.Contains(t, html, "/my [run]</h1>")
	require.Contains(t, html, "1499 steps in 24m59s, until 2001-09-09 02:11 UTC")
	require.Contains(t, html, "Responses of step 9, wrong ones first<")
	require.Contains(t, html, "Responses of step 10, wrong ones first<")
	require.Contains(t, html, "<dt>actor/<wbr>lr</dt><dd>1</dd>")
	require.Contains(t, html, "&lt;b&gt;1&#43;1=")
	require.Contains(t, html, "cut at the length limit")
	require.Contains(t, html, `name = &#34;&lt;x&gt;&#34;`)
	require.Equal(t, 2+2*2, strings.Count(html, "<polyline"),
		"constants and times have no curve, and each distribution is that of two steps")
	require.Contains(t, html, "after step 9: look &lt;here&gt;")
	require.Contains(t, html, `<th scope="row">processor</th><td>abacus</td>`)
	accessible(t, html)
	require.NotContains(t, html, "http", "the page loads nothing external")
	require.Less(t, len(html), 64<<10)
}

// accessible requires that screen readers and navigation by headings and links find
// everything that is visible.
func accessible(t *testing.T, html string) {
	t.Helper()
	require.Contains(t, html, `<html lang="en">`)
	require.Equal(t, 1, strings.Count(html, "<h1>"))
	require.Equal(t, 1, strings.Count(html, "<main>"))
	require.NotContains(t, html, "<script")
	for _, picture := range regexp.MustCompile(`<svg[^>]*>`).FindAllString(html, -1) {
		require.Regexp(t, `aria-hidden="true"|role="img" aria-label="[^"]+"`, picture)
	}
	for _, head := range regexp.MustCompile(`<th[ >][^>]*>?`).FindAllString(html, -1) {
		require.Contains(t, head, "scope=")
	}
	for _, scrolled := range regexp.MustCompile(`<[^>]*tabindex[^>]*>`).FindAllString(html, -1) {
		require.Regexp(t, `role="region" aria-label="[^"]+"`, scrolled)
	}
	ids := map[string]bool{}
	for _, id := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(html, -1) {
		require.False(t, ids[id[1]], "%s comes twice", id[1])
		ids[id[1]] = true
	}
	links := regexp.MustCompile(`href="#([^"]*)"`).FindAllStringSubmatch(html, -1)
	require.NotEmpty(t, links)
	for _, link := range links {
		require.True(t, ids[link[1]], "%s leads nowhere", link[1])
	}
}

func TestWriteHTMLNeedsMetrics(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, _, err := Write(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(filepath.Join(dir, report.MetricsFile), nil, 0o644))
	_, _, err = Write(dir)
	require.ErrorContains(t, err, "has no steps yet")
	require.NoError(t, os.WriteFile(filepath.Join(dir, report.MetricsFile),
		[]byte("{\"step\":0,\"reward/mean\":1}\n"), 0o644))
	path, _, err := Write(dir)
	require.NoError(t, err)
	require.Contains(t, readFile(t, path), "from the second step on")
}

// Pages are shared, so they must not contain passwords.
func TestPageHasNoPassword(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run.toml"),
		[]byte("[log]\nto = ['mlflow=https://me:secret@host']\n"), 0o644))
	html, err := Part("configuration", dir, stepsOf())
	require.NoError(t, err)
	require.Contains(t, string(html), "https://***@host")
	require.NotContains(t, string(html), "secret")
}

// stepsOf returns Steps with these values.
func stepsOf(all ...report.Values) *report.Steps {
	s := &report.Steps{}
	for _, values := range all {
		s.Add(values)
	}
	return s
}

func TestCompare(t *testing.T) {
	t.Parallel()
	steps := stepsOf(report.Values{"step": 0, "eval/a/mean@1": .1, "eval/a/pass@1": .1, "eval/a/clip_ratio": 0},
		report.Values{"step": 1, "reward/mean": .25, "actor/lr": 3},
		report.Values{"step": 2, "reward/mean": .5, "eval/a/mean@1": .9, "perf/tokens_per_second": 12345.6,
			"idle/trainer": .125, "timing_s/step": 2})
	require.Equal(t, []Row{
		{Name: "eval/a/mean@1", First: .1, Last: .9, FirstStep: 0, LastStep: 2},
		{Name: "reward/mean", First: .25, Last: .5, FirstStep: 1, LastStep: 2},
		{Name: "perf/tokens_per_second", First: 12345.6, Last: 12345.6, FirstStep: 2, LastStep: 2},
	}, compare(steps))
	require.Equal(t, []Tile{{"held-out a", "0.1 → 0.9", "eval/a/mean@1"}, {"reward", "0.25 → 0.5", "reward/mean"},
		{"tokens per second", "12.3k", "perf/tokens_per_second"}, {"trainer idle", "12%", "idle/trainer"}},
		Glance(steps))
	require.Equal(t, []Tile{{"loss", "2 → 1", "actor/loss"}},
		Glance(stepsOf(report.Values{"step": 1, "actor/loss": 2}, report.Values{"step": 2, "actor/loss": 1})))
	var slow []report.Values // the first step, then ten with half its idle share
	for i := range 11 {
		slow = append(slow, report.Values{"step": float64(i + 1), "timing_s/step": 1, "idle/instances": .25})
	}
	slow[0]["timing_s/step"], slow[0]["idle/instances"] = 10, .5
	require.Equal(t, []Tile{{"instances idle", "38%, lately 25%", "idle/instances"}}, Glance(stepsOf(slow...)))
	require.Empty(t, Glance(stepsOf()))
}

func TestTitle(t *testing.T) {
	t.Parallel()
	for dir, want := range map[string]string{"/a/runs/mine": "mine", "/a/runs/quickstart/grpo": "quickstart/grpo",
		"/mine": "mine"} {
		require.Equal(t, want, title(dir))
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	parts, idle := times(stepsOf(report.Values{"step": 0, "timing_s/eval": 2},
		report.Values{"step": 1, "timing_s/step": 4, "timing_s/wait": 1, "timing_s/train": 2, "idle/trainer": .25,
			"idle/instances": .5},
		report.Values{"step": 2, "timing_s/step": 12, "timing_s/wait": 3, "timing_s/train": 9, "timing_s/checkpoint": 2,
			"idle/trainer": .25, "idle/instances": .5}))
	require.Equal(t, []share{{"wait for groups", 4, .2}, {"forward and backward", 11, .55}, {"checkpoints", 2, .1},
		{"evaluation", 2, .1}, {"other", 1, .05}}, parts)
	require.Equal(t, []share{{"instances idle", 8, .5}, {"trainer idle", 4, .25}, {"both busy, at least", 4, .25}},
		idle)
	parts, idle = times(stepsOf(report.Values{"step": 1, "timing_s/step": 1, "idle/trainer": 1}))
	require.Empty(t, parts, "a table of only other time is omitted")
	require.Len(t, idle, 1)
	parts, idle = times(stepsOf(report.Values{"step": 1, "reward/mean": 1}))
	require.Nil(t, parts)
	require.Nil(t, idle)
}

func TestCurves(t *testing.T) {
	t.Parallel()
	c := drawCurves(stepsOf(
		report.Values{"step": 1, "time": 60, "reward/mean": 1, "mismatch/kl": 0, "fleet/size": 2, "eval/a/mean@1": 0,
			"eval/b/mean@1": 1, "memory/x": 1},
		report.Values{"step": 2, "time": 180, "reward/mean": 2, "mismatch/kl": 0, "fleet/size": 1, "eval/a/mean@1": 1,
			"eval/b/mean@1": 2, "memory/x": 5},
	))
	require.Equal(t, []Row{{Name: "mismatch/kl", FirstStep: 1, LastStep: 2}}, c.Same)
	require.Len(t, c.Main, 3)
	require.Contains(t, c.Main[0], `<b>Reward</b><span>2</span><small class="muted">reward/mean</small>`)
	require.Contains(t, c.Main[1],
		"eval/a/mean@1 from 0 at step 1 to 1 at step 2, lowest 0 at step 1, highest 1 at step 2; eval/b/mean@1 from 1")
	require.Contains(t, c.Main[2], "fleet/size from 2 at minutes 0 to 1 at minutes 2")
	require.Len(t, c.Rest, 1)
	require.Contains(t, c.Rest[0], "memory/x")
}

func TestMatches(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"eval/a/mean@1": true, "eval/a/mean@16": true, "eval/a/pass@1": false,
		"reward/mean": false, "eval/mean@1": false} {
		require.Equal(t, want, figure{names: "eval/.*/mean@.*"}.pattern().MatchString(name), name)
	}
	require.True(t, figure{names: "reward/mean|a"}.pattern().MatchString("reward/mean"))
	require.False(t, figure{names: "reward/.*/x|a"}.pattern().MatchString("reward/y/x/z"))
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for want, x := range map[string]float64{"0": 0, "-12": -12, "11712": 11711.6, "0.3201": .32009, "1.5e-07": 1.5e-7,
		"2.5e+12": 2.5e12, "1e+308": 1e308, "1.798e+308": math.MaxFloat64, "-1e+09": -1e9, "NaN": math.NaN()} {
		require.Equal(t, want, report.Number(x))
	}
	require.Equal(t, "0 0", report.Number(math.Copysign(0, -1))+" "+brief(math.Copysign(0, -1)))
}

func FuzzReadMetrics(f *testing.F) {
	f.Add([]byte("{\"step\":1,\"reward/mean\":0.5}\n{\"step\":2}\n"))
	f.Add([]byte("{\"step\":1e400}\n"))
	f.Add([]byte("{\"step\":null,\"a\":-0}\nnull\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, report.MetricsFile), data, 0o644))
		if _, _, err := Write(dir); err == nil {
			m, err := report.OpenMetrics(filepath.Join(dir, report.MetricsFile), 3)
			require.NoError(t, err)
			require.NoError(t, m.Write(report.Line{Values: report.Values{"step": 3}}))
			require.NoError(t, m.Close())
			rows, err := report.ReadMetrics(filepath.Join(dir, report.MetricsFile))
			require.NoError(t, err)
			require.Equal(t, report.Values{"step": 3}, rows[len(rows)-1])
		}
	})
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(data)
}

func TestPageShowsHiddenCharacters(t *testing.T) {
	t.Parallel()
	hidden :=
		"\x01\x1b\x7f\u0085\u009b\u200b\u200e\u200f\u061c\u202a\u202e\u2066" +
			"\u2069\u2060\ufeff\u00ad\u180e\u2028\u2029\U000e0041"
	dir := filepath.Join(t.TempDir(), "run")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	m, err := report.OpenMetrics(filepath.Join(dir, report.MetricsFile), 0)
	require.NoError(t, err)
	require.NoError(t, m.Write(report.Line{Values: report.Values{"step": 1, "reward/" + hidden: 1}}))
	require.NoError(t, m.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run.toml"), []byte("name = \""+hidden+"\""), 0o644))
	warnings := []report.Warning{{Step: 1, Kind: "x", Text: hidden}}
	require.NoError(t, report.WriteWarnings(filepath.Join(dir, report.WarningsFile), warnings))
	path, _, err := Write(dir)
	require.NoError(t, err)
	html := readFile(t, path)
	for _, r := range hidden {
		require.NotContains(t, html, string(r))
		require.NotContains(t, html, fmt.Sprintf("&#x%x;", r))
		require.NotContains(t, html, fmt.Sprintf("&#%d;", r))
	}
	require.Contains(t, html, `\u202a\u202e\u2066\u2069\u2060\ufeff\u00ad\u180e\u2028\u2029\U000e0041`)
}
