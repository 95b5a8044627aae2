package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report"
)

// runIn runs the command line with text as standard input.
func runIn(t *testing.T, in string, args ...string) (code int, errs string) {
	t.Helper()
	var out, stderr bytes.Buffer
	code = runWith(&out, &stderr, in, args...)
	return code, stderr.String()
}

// Whatever reads JSON lines says what a file of another kind is.
func TestFilesOfOtherKinds(t *testing.T) {
	t.Parallel()
	dir := badRun(t)
	model := filepath.Join(dir, "m")
	for text, want := range map[string]string{
		"prompt,answer\n1,2\n":                         "found CSV, expected ",
		"prompt\tanswer\n1\t2\n":                       "found TSV, expected ",
		"\x1f\x8b\x08\x00\x00":                         "found a file compressed with gzip, expected ",
		"PK\x03\x04\x14\x00":                           "found a zip archive, expected ",
		"\x28\xb5\x2f\xfd\x04":                         "found a file compressed with zstd, expected ",
		"<!DOCTYPE html>\n<html>Sign in</html>\n":      "found a web page, expected ",
		"version https://git-lfs.github.com/spec/v1\n": "found a Git LFS pointer, expected ",
		"\xff\xfe{\x00\"\x00a\x00\"\x00":               "found text in UTF-16, expected ",
		"- prompt: 1\n  answer: 2\n":                   "found YAML, expected ",
		"{'prompt': '1'}\n":                            "found Python values, expected ",
	} {
		file := filepath.Join(t.TempDir(), "file.jsonl")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		for _, args := range [][]string{
			{"train", filepath.Join(dir, "run.toml"), "-set", "data.train=" + file},
			{"train", filepath.Join(dir, "run.toml"), "-set", "eval.every=1", "-set", "data.eval=" + file},
			{"sft", filepath.Join(dir, "run.toml"), "-set", "sft.data=" + file},
			{"eval", "-model", model, "-reward", "exact", "-data", file},
			{"eval", "-model", model, "-reward", "exact", "-data", filepath.Join(dir, "prompts.jsonl"), "-out", file},
			{"score", "-reward", "exact", file},
			{"logprobs", "-model", model, "-data", file},
			{"replay", "-model", model, "-rollouts", file, "-out", filepath.Join(dir, "out")},
		} {
			code, _, errs := command(t, args...)
			require.Equal(t, exitUsage, code, "%v: %s", args, errs)
			requireOneLine(t, errs, want)
		}
		code, errs := runIn(t, text, "score", "-reward", "exact")
		require.Equal(t, exitUsage, code)
		requireOneLine(t, errs, "stdin:1: "+want)
	}
	for _, args := range [][]string{{"score", "-reward", "exact"}, {"logprobs", "-model", model}} {
		for text, want := range map[string]string{
			"[\n{}\n]\n":       "found a JSON array, expected ",
			"{\n\"a\":1\n}\n":  "found a JSON object over several lines, expected ",
			"PAR1\x15\x04\x15": "found Parquet, expected ",
		} {
			code, errs := runIn(t, text, args...)
			require.Equal(t, exitUsage, code)
			requireOneLine(t, errs, want)
		}
	}
}

// Whatever reads a model folder says how to download a model of the Hub.
func TestModelsOfTheHub(t *testing.T) {
	t.Parallel()
	dir := badRun(t)
	const name = "Somebody/None-0.5B"
	run := filepath.Join(dir, "run.toml")
	for _, args := range [][]string{
		{"train", run, "-set", "model.init.config=", "-set", "model.path=" + name},
		{"sft", run, "-set", "model.init.config=", "-set", "model.path=" + name, "-set",
			"sft.data=" + filepath.Join(dir, "prompts.jsonl")},
		{"check", run, "-set", "model.init.config=", "-set", "model.path=" + name},
		{"eval", "-model", name, "-reward", "exact", "-data", filepath.Join(dir, "prompts.jsonl")},
		{"generate", "-model", name, "-prompt", "a"},
		{"serve", "-model", name, "-listen", "127.0.0.1:0"},
		{"logprobs", "-model", name},
		{"replay", "-model", name, "-rollouts", filepath.Join(dir, "prompts.jsonl"), "-out", filepath.Join(dir, "out")},
	} {
		code, _, errs := command(t, args...)
		require.Equal(t, exitUsage, code, "%v: %s", args, errs)
		requireOneLine(t, errs, "download the model from the Hugging Face Hub with: hf download "+name+
			" --local-dir "+name)
	}
}

// A resumed run that has taken all its steps says so and how to continue it.
func TestResumeOfAFinishedRun(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	run := trainTiny(t, dir, "run", "run.steps=3")
	for steps, want := range map[string]string{
		"3": "the run is finished: it has taken 3 steps and run.steps is 3. To continue it, set more steps: -resume " +
			"-set run.steps=6\n",
		"2": "the run is finished: it has taken 3 steps and run.steps is 2. To continue it, set more steps: -resume " +
			"-set run.steps=5\n",
	} {
		status, errs := resumeTiny(t, dir, run, "run.steps="+steps)
		require.Zero(t, status, errs)
		require.Contains(t, errs, want)
		require.NotContains(t, errs, "3/2")
		require.NotContains(t, errs, "step 3/")
	}
	steps, err := report.ReadMetrics(filepath.Join(run, report.MetricsFile))
	require.NoError(t, err)
	require.Len(t, steps, 3)
}

// Errors about files say what their paths are relative to.
func TestPathsOfARunFile(t *testing.T) {
	t.Parallel()
	dir := badRun(t)
	run := filepath.Join(dir, "run.toml")
	here, err := os.Getwd()
	require.NoError(t, err)
	for setting, want := range map[string]string{
		"data.train=prompts.jsonl": "open prompts.jsonl: no such file or directory; paths are relative to the " +
			"working directory, so write " + filepath.Join(dir, "prompts.jsonl"),
		"data.train=none.jsonl": "open none.jsonl: no such file or directory; paths are relative to the working " +
			"directory " + here,
		"data.train=~/none.jsonl": "; ~ is not expanded: write the whole path",
		"data.train=none-*.parquet": "none-*.parquet: no file matches; paths are relative to the working directory " +
			here,
		"model.init.config=c.json": "open c.json: no such file or directory; paths are relative to the working " +
			"directory " + here,
	} {
		for _, verb := range []string{"train", "check"} {
			code, _, errs := command(t, verb, run, "-set", setting)
			require.Equal(t, exitUsage, code, errs)
			require.Contains(t, errs, want, verb)
		}
	}
}
