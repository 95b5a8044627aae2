package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/run/dataset"
)

// sft drops and counts demonstrations that are too long, reports repeated ones, and mixes
// files by their weights. The held-out loss is the model's.
func TestSFTReportsOnData(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	demo := func(n int) string { return fmt.Sprintf(`{"q":"%d,%d","meta":{"r":"%d"}}`+"\n", n%10, n/10, n%7) }
	var many strings.Builder
	for i := range 40 {
		many.WriteString(demo(i))
	}
	long := `{"q":"1","meta":{"r":"` + strings.Repeat("1", 70) + `"}}` + "\n" + `{"q":"` + strings.Repeat("2", 20) +
		`","meta":{"r":"1"}}` + "\n"
	a := write(t, dir, "demos-a.jsonl", many.String()+long+demo(3)+demo(4))
	b := write(t, dir, "b.jsonl", demo(50))
	held := write(t, dir, "held.json", "["+strings.TrimSpace(demo(61))+","+strings.TrimSpace(demo(62))+"]")
	args := func(run string, more ...string) []string {
		args := []string{"sft", filepath.Join(dir, "run.toml"), "-set",
			fmt.Sprintf("sft.data=[%q,%q]", filepath.Join(dir, "demos-*.jsonl"), b),
			"-set", fmt.Sprintf("run.dir=%q", run), "-set", "data.prompt_key=q", "-set", "sft.response_key=meta.r",
			"-set", "sft.steps=3", "-set", "sft.batch_size=8"}
		for _, s := range more {
			args = append(args, "-set", s)
		}
		return args
	}
	run := filepath.Join(dir, "run")
	code, _, errs := command(t, args(run, "sft.eval="+held, "eval.every=2", "eval.prompts=1")...)
	require.Zero(t, code, errs)
	require.Contains(t, errs, "demos-*.jsonl: dropped 2 of 44 demonstrations that are too long (first "+
		filepath.Base(a)+
		":41): limits are data.max_prompt_tokens = 16 and the model's context of 64 tokens\n")
	require.Contains(t, errs, "demos-*.jsonl: 2 of 42 demonstrations repeat an earlier one\n")
	steps, err := report.ReadMetrics(filepath.Join(run, report.MetricsFile))
	require.NoError(t, err)
	require.Len(t, steps, 4)
	var losses []float64
	for i, values := range steps {
		require.Equal(t, float64(i), values["step"])
		if x, ok := values["eval/held/loss"]; ok {
			losses = append(losses, x)
		}
	}
	require.Len(t, losses, 3, "before the first step, after step 2 and after the last")
	require.Less(t, losses[2], losses[0])

	// The loss of the single held-out example equals the one from easyrl logprobs.
	last := filepath.Join(run, "checkpoints", "step-000003")
	require.InDelta(t, -meanLogprob(t, last, "1,6", "5"), losses[2], 1e-6)

	code, _, errs = command(t, args(filepath.Join(dir, "none"), "sft.eval="+filepath.Join(dir, "none.jsonl"))...)
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "none.jsonl: no such file or directory\n")

	alone := filepath.Join(dir, "alone")
	code, _, errs = command(t, args(alone)...)
	require.Zero(t, code, errs)
	require.Equal(t, weightsHash(t, run, 3), weightsHash(t, alone, 3), "evaluation changes no weights")

	code, _, errs = command(t, args(filepath.Join(dir, "none"), "data.max_prompt_tokens=1")...)
	require.Equal(t, exitUsage, code)
	requireOneLine(t, errs, "demos-*.jsonl: all 44 demonstrations are too long: limits are data.max_prompt_tokens = 1 ")
	require.NoDirExists(t, filepath.Join(dir, "none"))
}

// sft trains only the last turn of a conversation and says so. With sft.turns = "all" it
// trains each turn after the turns before it.
func TestSFTTurns(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	write(t, dir, "tokenizer_config.json", `{"char_ords":[48,49,50,51,52,53,54,55,56,57,44,58],"chat_template":"{% `+
		`for m in messages %}{{ m.content }}:{% endfor %}"}`)
	demos := write(t, dir, "demos.jsonl",
		`{"messages":[{"role":"user","content":"1"},{"role":"assistant","content":"2"},{"role":"user",`+
			`"content":"3"},{"role":"assistant","content":"4"}]}`)
	shape, err := os.ReadFile(filepath.Join(dir, "config.json"))
	require.NoError(t, err)
	f, err := folder.Random(dir, dir, shape, 1)
	require.NoError(t, err)
	for turns, want := range map[string][]string{configs.LastTurn: {"1:2:3:>4:"},
		configs.AllTurns: {"1:>2:", "1:2:3:>4:"}} {
		cfg := configs.Default()
		cfg.SFT.Turns = turns
		var said []string
		warn := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
		lists, err := dataset.New(f, &cfg, 0, warn).Demonstrations(t.Context(), []string{demos})
		require.NoError(t, err)
		var got []string
		for _, e := range lists[0] {
			got = append(got, f.Tokenizer.Decode(e.Prompt)+">"+f.Tokenizer.Decode(e.Spans.IDs()))
		}
		require.Equal(t, want, got)
		if turns == configs.LastTurn {
			require.Equal(t,
				[]string{demos + `: 1 earlier assistant turns in 1 demonstrations are not trained. Train them with ` +
					`sft.turns = "all".`}, said)
		} else {
			require.Empty(t, said)
		}
	}
}

// meanLogprob returns the mean log-probability of a response, its end token included.
func meanLogprob(t *testing.T, model, prompt, response string) float64 {
	t.Helper()
	f, err := folder.Open(model)
	require.NoError(t, err)
	demo := write(t, t.TempDir(), "demo.jsonl", fmt.Sprintf(`{"prompt":%q,"response":%q}`, prompt, response))
	cfg := configs.Default()
	lists, err := dataset.New(f, &cfg, 0, t.Logf).Demonstrations(t.Context(), []string{demo})
	require.NoError(t, err)
	e := lists[0][0]
	ids, err := json.Marshal(map[string]any{"ids": append(e.Prompt, e.Spans.IDs()...)})
	require.NoError(t, err)
	file := write(t, t.TempDir(), "ids.jsonl", string(ids))
	code, out, errs := command(t, "logprobs", "-model", model, "-data", file)
	require.Zero(t, code, errs)
	var got struct{ Logprobs []float64 }
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	sum := 0.0
	for _, x := range got.Logprobs[len(e.Prompt)-1:] {
		sum += x
	}
	return sum / float64(len(e.Spans.IDs()))
}

// Fine-tuning killed at any instant resumes and ends in the same bits, with one line of
// metrics per step.
func TestKilledSFTResumesToSameWeights(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	var demos strings.Builder
	for i := range 40 {
		fmt.Fprintf(&demos, `{"prompt":"%d,%d","response":"%d"}`+"\n", i%10, i/10, i%7)
	}
	file := write(t, dir, "demos.jsonl", demos.String())
	other := write(t, dir, "other.jsonl", `{"prompt":"9,9","response":"1"}`+"\n")
	args := func(run string) []string {
		return []string{"sft", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("sft.data=[%q,%q]", file, other),
			"-set", fmt.Sprintf("run.dir=%q", run), "-set", "sft.steps=20", "-set", "sft.batch_size=16", "-set",
			"sft.eval=" + file, "-set", "eval.every=7",
			"-set", "checkpoint.every=5"}
	}
	whole, killed := filepath.Join(dir, "whole"), filepath.Join(dir, "killed")
	code, _, errs := command(t, args(whole)...)
	require.Zero(t, code, errs)
	killAfter(t, "step 13/20", args(killed)...)
	code, _, errs = command(t, append(args(killed), "-resume")...)
	require.Zero(t, code, errs)
	require.Contains(t, errs, "resum")
	require.Equal(t, weightsHash(t, whole, 20), weightsHash(t, killed, 20))
	want, err := report.ReadMetrics(filepath.Join(whole, report.MetricsFile))
	require.NoError(t, err)
	got, err := report.ReadMetrics(filepath.Join(killed, report.MetricsFile))
	require.NoError(t, err)
	require.Len(t, got, len(want))
	for i := range want {
		for _, name := range []string{"step", "actor/loss", "eval/demos/loss"} {
			require.Equal(t, want[i][name], got[i][name], "%s of line %d", name, i)
		}
	}
}
