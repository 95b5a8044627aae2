package page

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/browser"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/trace"
)

// hostile is a malicious model output: it tries to close its element, reverses the text
// direction and never ends its line.
var hostile = `</pre></script><script>document.title="taken"</script><img src=x ` +
	`onerror="document.title='taken'"> {{.}} ` + "\x00\u202e\u2066 é " + strings.Repeat("x", 1<<20)

// record writes a run of n steps into dir, with everything that a page shows.
func record(t *testing.T, dir string, n int) {
	t.Helper()
	write := func(name string, text []byte) {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, text, 0o644))
	}
	var lines []byte
	spans := trace.New(trace.DefaultSpans)
	trainer, engine, begin := spans.Track("trainer"), spans.Lanes("http://instance-with-a-long-name.example:8000"),
		time.Now()
	for step := range n + 1 {
		x := float64(step)
		values := report.Values{"step": x, "version": x, "time": 1.8e9 + 90*x}
		if step%100 == 0 {
			values["eval/gsm8k/mean@4"], values["eval/a_second_set_with_a_long_name/mean@1"] = 1-math.Exp(-x/2000),
				.1+.2*math.Sin(x)
		}
		if step > 0 {
			for i, name := range []string{"reward/mean", "reward/std", "reward/zero_std_frac", "reward/format/mean",
				"reward/length_penalty/mean", "reward_by_source/gsm8k/mean",
				"response_length/mean", "response_length/max", "response_length/clip_ratio", "actor/loss", "actor/kl",
				"actor/entropy", "actor/clip_frac",
				"actor/grad_norm", "actor/lr", "mismatch/kl", "timing_s/step", "timing_s/wait", "timing_s/train",
				"idle/trainer", "idle/instances",
				"perf/tokens_per_second", "fleet/size", "memory/peak_bytes", "tokens/response"} {
				values[name] = (1 + math.Sin(x*float64(i+1))/3) * []float64{1, 1e-7, .3, 1e5, -4e-4}[i%5]
			}
			values["idle/trainer"], values["idle/instances"], values["timing_s/step"] = .3, .2, 90
		}
		lines = append(lines, values.Line()...)
		at := begin.Add(time.Duration(90*x) * time.Second)
		trainer.Add(step, "step", at, 80*time.Second, trace.Note{})
		for i, name := range []string{"wait", "policy 1", "backward", "optimizer"} {
			trainer.Add(step, name, at.Add(time.Duration(20*i)*time.Second), 20*time.Second, trace.Note{})
			engine.Add(step, "request", at, time.Duration(10*i+5)*time.Second, trace.Note{})
		}
	}
	write(report.MetricsFile, lines)
	require.NoError(t, spans.WriteFile(filepath.Join(dir, trace.File)))
	for _, step := range []int{1, n / 2, n} {
		var file []byte
		for g := range 6 {
			responses := []map[string]any{{"text": hostile, "ids": []int{1, 2}, "reward": float64(g),
				"finish": "length"}, {"text": "", "reward": -1e-7}}
			line, err := json.Marshal(map[string]any{"step": step, "prompt_id": fmt.Sprint("p", g), "prompt": hostile,
				"answer": hostile, "responses": responses})
			require.NoError(t, err)
			file = append(append(file, line...), '\n')
		}
		write(fmt.Sprintf("rollouts/step-%06d.jsonl", step), append(file, file[:100]...))
	}
	write("run.toml", []byte("[run]\nname = '''"+hostile[:200]+"'''\n"))
	require.NoError(t, report.ThisMachine().Write(dir))
	require.NoError(t, report.WriteWarnings(filepath.Join(dir, report.WarningsFile),
		[]report.Warning{{Step: 7, Kind: "x", Text: hostile[:300]}}))
}

// The page of a long run with hostile outputs shows everything on any screen, and nothing
// in it acts.
func TestPageInBrowser(t *testing.T) {
	t.Parallel()
	b := browser.New(t, os.Getenv(browser.Artifacts))
	dir := filepath.Join(t.TempDir(), "a long run")
	record(t, dir, 10_000)
	path, _, err := Write(dir)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(1e6))

	b.Do(chromedp.Navigate("file://" + strings.ReplaceAll(path, " ", "%20")))
	loaded := browser.Tells[float64](b, `performance.getEntriesByType("navigation")[0].loadEventEnd`)
	t.Logf("%d bytes, loaded in %.0f ms", info.Size(), loaded)
	require.Len(t, b.Requests(), 1, "the page requests only itself")
	require.Empty(t, b.Complaints())
	require.Zero(t, browser.Tells[int](b, `document.querySelectorAll("script, img, iframe, object").length`))
	require.Contains(t, browser.Tells[string](b, "document.title"), "a long run")
	b.Tour()
	b.Do(chromedp.Evaluate[chromedp.Void](`document.querySelector("summary").focus()`), chromedp.KeyEvent("\r"))
	b.Until(`document.querySelector("details").open`)
	b.Inspect("report")
	require.Empty(t, b.Requests())
	require.Empty(t, b.Complaints())
}

// A page with little data works too.
func TestSmallPagesInBrowser(t *testing.T) {
	t.Parallel()
	b := browser.New(t, os.Getenv(browser.Artifacts))
	for name, steps := range map[string][]report.Values{
		"one step": {{"step": 0, "eval/test/mean@1": .1}},
		"sft": {{"step": 1, "actor/loss": 3.2, "timing_s/step": 1},
			{"step": 2, "actor/loss": 2.9, "timing_s/step": 1, "eval/test/loss": 3}},
		"constant reward": {{"step": 1, "reward/mean": 0}, {"step": 2, "reward/mean": 0}},
	} {
		dir := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.MkdirAll(dir, 0o755))
		var lines []byte
		for _, values := range steps {
			lines = append(lines, values.Line()...)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, report.MetricsFile), lines, 0o644))
		path, _, err := Write(dir)
		require.NoError(t, err)
		b.Do(chromedp.Navigate("file://" + strings.ReplaceAll(path, " ", "%20")))
		b.Inspect("report-" + strings.ReplaceAll(name, " ", "-"))
	}
	require.Empty(t, b.Complaints())
}
