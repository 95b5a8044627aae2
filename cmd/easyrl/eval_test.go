package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report"
)

// evalJSON runs easyrl eval -json and returns its metrics and standard error.
func evalJSON(t *testing.T, args ...string) (metrics map[string]float64, errs string) {
	t.Helper()
	code, out, errs := command(t, append([]string{"eval", "-json"}, args...)...)
	require.Zero(t, code, errs)
	require.Equal(t, 1, strings.Count(out, "\n"), "one object")
	require.NoError(t, json.Unmarshal([]byte(out), &metrics), "a flat object of numbers")
	return metrics, errs
}

// Sets from several folders and patterns have distinct names. Table and JSON have the
// same numbers.
func TestEvalOfSeveralSets(t *testing.T) {
	t.Parallel()
	dir := badRun(t)
	b, err := os.ReadFile(filepath.Join(dir, "prompts.jsonl"))
	require.NoError(t, err)
	lines := strings.SplitAfter(string(b), "\n")
	for name, content := range map[string]string{"gsm8k/test.jsonl": strings.Join(lines[:5], ""),
		"math/test.jsonl": `{"prompt":"2"}` + "\n" + strings.Join(lines[5:12], "") + `{"prompt":"1","answer":null}` +
			"\n", "other/x1.jsonl": lines[12], "other/x2.jsonl": lines[13]} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		write(t, dir, name, content)
	}
	args := []string{"-model", filepath.Join(dir, "m"), "-data", filepath.Join(dir, "gsm8k", "test.jsonl"), "-data",
		filepath.Join(dir, "math", "test.jsonl"),
		"-data", filepath.Join(dir, "other", "x*.jsonl"), "-reward", "prefix", "-k", "3", "-max-tokens", "4"}
	metrics, errs := evalJSON(t, args...)
	require.Contains(t, errs, "dropped 2 of 9 prompts without a reference answer (first math/test.jsonl:1)")
	require.Contains(t, errs, "14/14 prompts")
	for set, n := range map[string]float64{"gsm8k-test": 5, "math-test": 7, "x1": 1, "x2": 1, "average": 14} {
		require.Equal(t, n, metrics["eval/"+set+"/prompts"], set)
		for _, name := range []string{"mean@3", "pass@1", "pass@2", "pass@3", "failed"} {
			require.Contains(t, metrics, "eval/"+set+"/"+name)
		}
	}
	require.Equal(t, 2.0, metrics["eval/math-test/left_out"])
	mean := (metrics["eval/gsm8k-test/mean@3"] + metrics["eval/math-test/mean@3"] + metrics["eval/x1/mean@3"] +
		metrics["eval/x2/mean@3"]) / 4
	require.InDelta(t, mean, metrics["eval/average/mean@3"], 1e-12)

	code, out, errs := command(t, append([]string{"eval"}, args...)...)
	require.Zero(t, code, errs)
	rows := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, rows, 6)
	header := strings.Fields(rows[0])
	for _, row := range rows[1:] {
		cells := strings.Fields(row)
		require.Len(t, cells, len(header))
		for i, column := range header[1:] {
			want, ok := metrics["eval/"+cells[0]+"/"+column]
			if !ok {
				require.Equal(t, "-", cells[i+1])
				continue
			}
			var got float64
			_, err := fmt.Sscan(cells[i+1], &got)
			require.NoError(t, err)
			require.InDelta(t, want, got, 0.051, column)
		}
	}
}

// A run file configures an evaluation in the same way as a run. Flags and settings
// override it.
func TestEvalOfRunFile(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	run := trainTiny(t, dir, "run", "run.steps=2", "eval.every=1", "eval.k=3", "eval.prompts=7")
	steps, err := report.ReadMetrics(filepath.Join(run, report.MetricsFile))
	require.NoError(t, err)
	require.Len(t, steps, 3, "before the first step, and after each")
	model := filepath.Join(run, "checkpoints", "step-000002")
	metrics, _ := evalJSON(t, filepath.Join(run, "run.toml"), "-model", model)
	for name, x := range metrics {
		require.Equal(t, x, steps[2][name], "equals the run's own evaluation: %s", name)
	}
	for name := range steps[2] {
		if strings.HasPrefix(name, "eval/") {
			require.Contains(t, metrics, name)
		}
	}
	require.Equal(t, 7.0, metrics["eval/prompts/prompts"])
	start, _ := evalJSON(t, filepath.Join(run, "run.toml"))
	require.Equal(t, steps[0]["eval/prompts/mean@3"], start["eval/prompts/mean@3"], "the run's model at its start")
	other, _ := evalJSON(t, filepath.Join(run, "run.toml"), "-model", model, "-k", "2", "-set", "eval.prompts=3",
		"-set", "eval.temperature=0")
	require.Equal(t, 3.0, other["eval/prompts/prompts"])
	require.Contains(t, other, "eval/prompts/mean@2")
	require.Equal(t, other["eval/prompts/pass@1"], other["eval/prompts/pass@2"], "greedy responses are all the same")
}

// Every kind of reward can be evaluated, including weighted sums and rewards per data source.
func TestEvalOfSumsAndSources(t *testing.T) {
	t.Parallel()
	dir := badRun(t)
	data := write(t, dir, "mixed.jsonl", `{"prompt":"1,1","answer":"5","data_source":"openai/gsm8k"}
{"prompt":"1,2","answer":"5","data_source":"openai/gsm8k"}
{"prompt":"1,3","answer":null,"data_source":"tagged"}
`)
	metrics, _ := evalJSON(t, "-model", filepath.Join(dir, "m"), "-data", data, "-k", "2", "-max-tokens", "4",
		"-set",
		`reward.sources."openai/gsm8k"={kind="sum",parts={prefix={kind="prefix"},short={kind="overlong",`+
			`buffer=2,weight=0.5}}}`,
		"-set", `reward.sources.tagged={kind="regex",pattern="[0-9]"}`)
	require.Equal(t, 3.0, metrics["eval/mixed/prompts"])
	require.Contains(t, metrics, "eval/mixed/prefix/mean")
	require.Contains(t, metrics, "eval/mixed/short/mean")
}

// A prompt whose reward fails is reported and counted, and the means are over the others,
// also in a run's evaluations. A reward that cannot score at all fails before sampling.
func TestEvalWithBadReward(t *testing.T) {
	t.Parallel()
	needsEnv(t)
	dir := badRun(t)
	args := append([]string{"-model", filepath.Join(dir, "m"), "-data", filepath.Join(dir, "prompts.jsonl"),
		"-max-tokens", "3"}, rewardSettings("once-crash")...)
	metrics, errs := evalJSON(t, args...)
	require.Contains(t, errs, "warning: prompts: gave up on prompt prompts.jsonl:8: reward of response 0: ")
	require.Equal(t, 1.0, metrics["eval/prompts/failed"])
	require.Equal(t, 22.0, metrics["eval/prompts/prompts"])
	require.Equal(t, 0.5, metrics["eval/prompts/mean@1"])

	out := filepath.Join(dir, "run")
	code, _, errs := command(t,
		append([]string{"train", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", out),
			"-set", "run.steps=1", "-set", "eval.every=1", "-set", "data.eval=" + filepath.Join(dir, "prompts.jsonl")},
			rewardSettings("once-crash")...)...)
	require.Zero(t, code, errs)
	steps, err := report.ReadMetrics(filepath.Join(out, report.MetricsFile))
	require.NoError(t, err)
	require.Len(t, steps, 2)
	for _, values := range steps {
		require.Equal(t, 1.0, values["eval/prompts/failed"])
		require.Equal(t, 0.5, values["eval/prompts/mean@1"])
	}

	code, stdout, errs := command(t,
		append([]string{"eval", "-model", filepath.Join(dir, "m"), "-data", filepath.Join(dir, "prompts.jsonl"),
			"-max-tokens", "3"},
			rewardSettings("crash")...)...)
	require.Equal(t, exitFailed, code)
	require.Empty(t, stdout)
	require.Contains(t, errs, "error: reward start-up check: ")
	require.NotContains(t, errs, "/23 prompts", "the check precedes sampling")
	require.Contains(t, errs, "out of ideas")
}

// If the default reward finds nothing right, eval suggests choosing one.
func TestEvalDoubtsDefaultReward(t *testing.T) {
	t.Parallel()
	dir := badRun(t)
	args := []string{"-model", filepath.Join(dir, "m"), "-data", filepath.Join(dir, "prompts.jsonl"),
		"-max-tokens", "3"}
	metrics, errs := evalJSON(t, args...)
	require.Zero(t, metrics["eval/prompts/pass@1"])
	require.Contains(t, errs, `no response is correct according to the default reward "exact"`)
	_, errs = evalJSON(t, append(args, "-reward", "exact")...)
	require.NotContains(t, errs, "no response is correct")
}

// Only the evaluation that started a record may continue it.
func TestEvalRefusesAnotherRecord(t *testing.T) {
	t.Parallel()
	dir := badRun(t)
	m, data, out := filepath.Join(dir, "m"), filepath.Join(dir, "prompts.jsonl"), filepath.Join(dir, "eval.jsonl")
	other := filepath.Join(dir, "other")
	code, _, errs := command(t, "init", "-config", filepath.Join(dir, "config.json"), "-out", other, "-seed", "9")
	require.Zero(t, code, errs)
	args := func(more ...string) []string {
		return append([]string{"-model", m, "-data", data, "-max-tokens", "3", "-reward", "prefix", "-out", out},
			more...)
	}
	want, _ := evalJSON(t, args()...)
	held, err := os.ReadFile(out)
	require.NoError(t, err)
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"-k", "2"}, "eval.k changed from 1 to 2"},
		{[]string{"-seed", "2", "-temperature", "0"},
			"eval.temperature changed from 1.0 to 0.0, run.seed changed from 1 to 2"},
		{[]string{"-max-tokens", "4"}, "rollout.max_tokens changed from 3 to 4"},
		{[]string{"-prompts", "5"}, "set prompts changed from 23 prompts ("},
		{[]string{"-data", filepath.Join(dir, "cut1.jsonl")}, "set cut1 is 1 prompts ("},
		{[]string{"-reward", "exact"}, `reward.kind changed from "prefix" to "exact"`},
		{[]string{"-model", other}, "weights changed from "},
	} {
		write(t, dir, "cut1.jsonl", `{"prompt":"1","answer":"2"}`+"\n")
		code, stdout, errs := command(t, append([]string{"eval"}, args(test.args...)...)...)
		require.Equal(t, exitUsage, code, errs)
		require.Empty(t, stdout)
		requireOneLine(t, errs, test.want)
		now, err := os.ReadFile(out)
		require.NoError(t, err)
		require.Equal(t, string(held), string(now))
	}
	again, errs := evalJSON(t, args("-threads", "1", "-set", "inference.max_running=3")...)
	require.Equal(t, want, again, "settings that do not affect the result may change")
	require.Contains(t, errs, "23 of 23 prompts are already done")
}

// Plain-text prompts for a chat model cause one warning, until a setting confirms that they
// are meant. A reward for a data source used only in training is no error here.
func TestPlainPromptsForChatModel(t *testing.T) {
	t.Parallel()
	dir := badRun(t)
	model := copyDir(t, filepath.Join(dir, "m"), dir, "chatty")
	write(t, model, "chat_template.jinja", "{% for m in messages %}{{ m['content'] }}{% endfor %}")
	const note = "the model has a chat template but these prompts are plain text. Set data.template to \"chat\" to " +
		"apply the template, or to \"none\" to silence this warning."
	prompts := filepath.Join(dir, "prompts.jsonl")
	eval := []string{"-model", model, "-data", prompts, "-reward", "prefix", "-prompts", "2", "-k", "1",
		"-max-tokens", "3"}
	train := []string{"train", filepath.Join(dir, "run.toml"), "-set",
		"model={path=" + fmt.Sprintf("%q", model) + ",init={config=\"\"}}", "-set", "run.steps=1",
		"-set", "reward.sources.prompts.kind=prefix", "-set", fmt.Sprintf("run.dir=%q", filepath.Join(dir, "noted"))}
	_, errs := evalJSON(t, eval...)
	require.Equal(t, 1, strings.Count(errs, "warning: "+prompts+": "+note), errs)
	code, _, errs := command(t, train...)
	require.Zero(t, code, errs)
	require.Equal(t, 1, strings.Count(errs, note), errs)

	for _, quiet := range [][]string{{"-template", "none"}, {"-template", "chat"},
		{"-model", filepath.Join(dir, "m")}} {
		_, errs := evalJSON(t, append(eval, quiet...)...)
		require.NotContains(t, errs, note, quiet)
	}
	other := write(t, dir, "other.jsonl", `{"prompt":[{"role":"user","content":"1"}],"answer":"2"}`+"\n")
	_, errs = evalJSON(t, filepath.Join(dir, "noted", "run.toml"), "-model", model, "-data", other, "-reward", "prefix")
	require.NotContains(t, errs, note, "conversations go through the template")
}
