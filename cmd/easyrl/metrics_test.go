package main

import (
	"encoding/csv"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/sink"
)

// documented returns the patterns of the metric names in docs/metrics.md.
func documented(t *testing.T) map[string]*regexp.Regexp {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md"))
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "| Name | Unit |")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	all := map[string]*regexp.Regexp{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(table, -1) {
		pattern := regexp.MustCompile(`<[a-z]+>`).ReplaceAllString(regexp.QuoteMeta(row[1]), ".+")
		all[row[1]] = regexp.MustCompile("^" + pattern + "$")
	}
	require.Greater(t, len(all), 50)
	return all
}

// docs/metrics.md lists exactly the metrics that runs write.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	prompts := filepath.Join(dir, "prompts.jsonl")
	other := filepath.Join(dir, "other.jsonl")
	require.NoError(t, os.WriteFile(other,
		[]byte(`{"prompt":"1,2","answer":"1","response":"3","data_source":"other"}`+"\n"), 0o644))
	runs := []string{
		trainTiny(t, dir, "plain", "eval.every=2", "eval.k=4", "reward.kind=math"),
		trainTiny(t, dir, "refilled", "rollout.dynamic_sampling=1", "loss.correction=mask", "loss.beta=0.1",
			fmt.Sprintf("data.train=[%q,%q]", prompts, other)),
		trainTiny(t, dir, "parts", "eval.every=5", "reward.parts.a.kind=exact", "reward.parts.b.kind=prefix",
			"reward.kind=sum"),
		trainTiny(t, dir, "mesh", mesh(parallel.Mesh{DP: 2, TP: 1, PP: 2})),
	}
	tuned := filepath.Join(dir, "tuned")
	status, _, errs := command(t, "sft", filepath.Join(dir, "run.toml"), "-set", "sft.data="+other, "-set",
		"sft.eval="+other, "-set", "eval.every=1",
		"-set", "sft.steps=2", "-set", "sft.batch_size=1", "-set", fmt.Sprintf("run.dir=%q", tuned))
	require.Zero(t, status, errs)

	written := map[string]bool{}
	for _, run := range append(runs, tuned) {
		require.NoError(t, report.EachLine(filepath.Join(run, report.MetricsFile), func(l report.Line) error {
			for name := range l.Values {
				written[name] = true
			}
			if l.Checksum != "" {
				written[report.ChecksumName] = true
			}
			return nil
		}))
	}
	all := documented(t)
	for name := range written {
		require.True(t, slices.ContainsFunc(slices.Collect(maps.Values(all)),
			func(p *regexp.Regexp) bool { return p.MatchString(name) }),
			"%s is not in docs/metrics.md", name)
	}
	for name, pattern := range all {
		require.True(t, slices.ContainsFunc(slices.Collect(maps.Keys(written)), pattern.MatchString),
			"no run writes %s of docs/metrics.md", name)
	}
}

// checksums returns the recorded checksums of a run by step.
func checksums(t *testing.T, run string) map[int]string {
	t.Helper()
	sums := map[int]string{}
	require.NoError(t, report.EachLine(filepath.Join(run, report.MetricsFile), func(l report.Line) error {
		sums[int(l.Values["step"])] = l.Checksum
		return nil
	}))
	return sums
}

// sumOf returns the checksum of a model folder's weights, read in the order of the file.
func sumOf(t *testing.T, dir string) string {
	t.Helper()
	file, err := os.Open(filepath.Join(dir, "model.safetensors"))
	require.NoError(t, err)
	defer file.Close()
	stream, err := checkpoint.NewStream(file, -1)
	require.NoError(t, err)
	sum, err := model.SumStream(stream)
	require.NoError(t, err)
	return sum
}

// Each line has the checksum of the weights after its step, which the checkpoint of the step holds: of the last step
// too, whose weights no instance gets, of steps without an update, and of step 0.
func TestRecordedChecksums(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	start := sumOf(t, initTiny(t, dir, "start", 1))
	plain := []string{"run.steps=3"}
	var want map[int]string
	for name, settings := range map[string][]string{
		"plain":        plain,
		"evaluated":    {"run.steps=3", "eval.every=2"},
		"colocated":    {"run.steps=3", "run.mode=colocated"},
		"mesh":         {"run.steps=3", mesh(parallel.Mesh{DP: 2, TP: 1, PP: 2})},
		"no update":    {"run.steps=3", "reward.kind=regex", "reward.pattern='never'"},
		"more updates": {"run.steps=3", "train.minibatches=3", "loss.old_policy=previous-step"},
	} {
		run := trainTiny(t, dir, strings.ReplaceAll(name, " ", "-"), append(settings, "checkpoint.keep=0")...)
		sums := checksums(t, run)
		require.Equal(t, name == "evaluated", sums[0] == start, name)
		delete(sums, 0)
		require.Len(t, sums, 3)
		for step, sum := range sums {
			dir := filepath.Join(run, "checkpoints", checkpoint.StepName(step))
			require.Equal(t, sumOf(t, dir), sum, "%s %d", name, step)
			require.Equal(t, name == "no update", sum == start, "%s %d", name, step)
		}
		if len(settings) == 2 && name != "no update" {
			if want == nil {
				want = sums
			}
			require.Equal(t, want, sums, name)
		}
	}
}

// column returns a column of a run's CSV file.
func column(t *testing.T, run, name string) []string {
	t.Helper()
	file, err := os.Open(filepath.Join(run, sink.CSVFile))
	require.NoError(t, err)
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	require.NoError(t, err)
	at := slices.Index(rows[0], name)
	require.GreaterOrEqual(t, at, 0, rows[0])
	var all []string
	for _, row := range rows[1:] {
		all = append(all, row[at])
	}
	return all
}

// Sinks receive each step once, even if the run is resumed or they are added later. No
// sink failure ends a run.
func TestSinks(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	nothing := httptest.NewServer(http.NotFoundHandler())
	defer nothing.Close()
	to := fmt.Sprintf(`log.to=["csv","tensorboard","mlflow=%s"]`, nothing.URL)
	run := trainTiny(t, dir, "sinks", to, "run.steps=3", "eval.every=2")
	require.Equal(t, []string{"0", "1", "2", "3"}, column(t, run, "step"))
	status, errs := resumeTiny(t, dir, run, to, "run.steps=5", "eval.every=2")
	require.Zero(t, status, errs)
	require.Equal(t, 1, strings.Count(errs,
		"mlflow is disabled: experiments/get-by-name: status 404, expected an MLflow server"), errs)
	require.Equal(t, []string{"0", "1", "2", "3", "4", "5"}, column(t, run, "step"))
	steps, err := report.ReadMetrics(filepath.Join(run, report.MetricsFile))
	require.NoError(t, err)
	require.Equal(t, strconv.FormatFloat(steps[5]["actor/loss"], 'f', -1, 64), column(t, run, "actor/loss")[5])
	events, err := filepath.Glob(filepath.Join(run, sink.EventsDir, "events.out.tfevents.*"))
	require.NoError(t, err)
	require.Len(t, events, 1)

	status, _, errs = command(t, "train", filepath.Join(dir, "run.toml"), "-set", `log.to=["wandb"]`)
	require.Equal(t, 2, status)
	require.Contains(t, errs, `log.to has "wandb", expected "tensorboard", "csv"`)
}

// A warning appears on the console and in the run's folder. A resumed run does not repeat
// it.
func TestWarningsAreIssuedOnce(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	out := filepath.Join(dir, "warned")
	args := []string{"train", filepath.Join(dir, "run.toml"), "-set", "rollout.max_tokens=1", "-set",
		fmt.Sprintf("run.dir=%q", out)}
	status, _, errs := command(t, args...)
	require.Zero(t, status, errs)
	said, err := report.ReadWarnings(filepath.Join(out, report.WarningsFile))
	require.NoError(t, err)
	at := slices.IndexFunc(said, func(w report.Warning) bool { return w.Kind == "length-limit" })
	require.GreaterOrEqual(t, at, 0, said)
	require.Equal(t, 5, said[at].Step)
	require.Contains(t, errs, "warning: step 5: "+said[at].Text)

	status, errs = resumeTiny(t, dir, out, "rollout.max_tokens=1", "run.steps=8")
	require.Zero(t, status, errs)
	require.NotContains(t, errs, said[at].Text)
	after, err := report.ReadWarnings(filepath.Join(out, report.WarningsFile))
	require.NoError(t, err)
	require.Equal(t, said, after[:len(said)])
}

// Prompts with characters that the tokenizer lacks are reported.
func TestUnknownCharactersAreReported(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	write(t, dir, "prompts.jsonl", `{"prompt":"1","answer":"1"}`+"\n"+`{"prompt":"1é","answer":"1"}`+"\n"+
		`{"prompt":"one","answer":"1"}`+"\n")
	code, _, errs := command(t, "train", filepath.Join(dir, "run.toml"), "-set", "run.steps=1", "-set",
		fmt.Sprintf("run.dir=%q", filepath.Join(dir, "run")),
		"-set", "data.eval="+filepath.Join(dir, "prompts.jsonl"))
	require.Zero(t, code, errs)
	require.Equal(t, 2, strings.Count(errs,
		"prompts.jsonl: 2 of 3 prompts have characters that the model's tokenizer lacks (first prompts.jsonl:2)\n"),
		"once for data.train and once for data.eval: %s", errs)
}
