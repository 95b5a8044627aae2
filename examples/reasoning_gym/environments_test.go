package gym

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/data"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/run"
)

// pinned returns a Python with the pinned reasoning-gym: the recipe's own or python3. It
// skips the test if neither has it.
func pinned(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("requirements.txt")
	require.NoError(t, err)
	_, want, ok := strings.Cut(strings.TrimSpace(string(text)), "reasoning-gym==")
	require.True(t, ok)
	for _, python := range []string{filepath.Join("venv", "bin", "python"), "python3"} {
		path, err := exec.LookPath(python)
		if err != nil {
			continue
		}
		path, err = filepath.Abs(path)
		require.NoError(t, err)
		cmd := exec.CommandContext(t.Context(), path, "-c",
			"import importlib.metadata; "+
				"print(importlib.metadata.version('reasoning-gym'))") //nolint:gosec // of this test
		if got, err := cmd.Output(); err == nil && strings.TrimSpace(string(got)) == want {
			return path
		}
	}
	t.Skipf("no Python with reasoning-gym %s", want)
	return ""
}

// The README names each environment that is refused.
func TestEnvironments(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds all environments")
	}
	cmd := exec.CommandContext(t.Context(), pinned(t), "check.py") //nolint:gosec // of this test
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Run(), stderr.String())
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	want := map[string]string{ // by the reason in the README
		"needs a configuration":                             "it does not build",
		"entries have no answer":                            "its entries have no answer",
		"own answers do not score 1 once the entry is JSON": "its own answer scores",
		"answers run as code":                               "it runs answers as code",
		"`0` or `nan` scores":                               "(0|nan) scores",
		"the question or a list scores":                     "(the question|a list of answers) scores",
		"answers to other questions score":                  "the answers to other questions score",
	}
	got, named := refusals(stderr.String()), 0
	for _, row := range regexp.MustCompile(`(?m)^\| (.*) \| (.*) \|$`).FindAllStringSubmatch(string(page), -1) {
		if reason, ok := want[row[1]]; ok {
			for _, name := range strings.Fields(row[2]) {
				require.Regexp(t, "^"+reason, got[strings.Trim(name, "`")], name)
				named++
			}
		}
	}
	require.Len(t, got, named)
	passed := strings.Count(stdout.String(), "\n")
	require.Contains(t, string(page), fmt.Sprintf("has %d environments, and %d pass", passed+named, passed))
}

// A small model trains on three environments through the recipe. Each prompt's own answer
// scores 1.
func TestRecipeTrains(t *testing.T) {
	t.Parallel()
	python := pinned(t)
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	sources := []string{"countdown", "gcd", "spell_backward"}
	cmd := exec.CommandContext(t.Context(), python,
		append([]string{"make_data.py", "--out", dir, "--train", "3", "--test", "1"},
			sources...)...) //nolint:gosec // of this test
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, string(said))

	var ords []string
	for c := range 128 {
		ords = append(ords, fmt.Sprint(c))
	}
	write("tokenizer_config.json", `{"char_ords":[`+strings.Join(ords, ",")+
		`],"chat_template":"{% for m in messages %}{{ m.content }}\n{% endfor %}"}`)
	model := write("config.json",
		`{"model_type":"qwen3","hidden_size":16,"intermediate_size":24,"num_hidden_layers":1,"num_attention_heads":2,
		"num_key_value_heads":1,"head_dim":8,"vocab_size":140,"max_position_embeddings":1024,`+
			`"rms_norm_eps":1e-6,"rope_theta":10000,
		"hidden_act":"silu","tie_word_embeddings":true,"eos_token_id":1,"initializer_range":0.05}`)
	base := write("base.toml", fmt.Sprintf("[model.init]\nconfig = %q\n[data]\ntemplate = "+
		"\"chat\"\n[rollout]\nprompts_per_step = 9\ngroup_size = 8\nmax_tokens = 8\n", model))
	folder := filepath.Join(dir, "run")
	files := []string{base, "run.toml"}
	resolved, err := run.Load(configs.TrainTask, files,
		[]string{"run.steps=3", "eval.every=3", fmt.Sprintf("run.dir=%q", folder),
			fmt.Sprintf("data.train=%q", filepath.Join(dir, "train.jsonl")),
			fmt.Sprintf("data.eval=%q", filepath.Join(dir, "test.jsonl")),
			fmt.Sprintf("reward.command=[%q,%q]", python, "reward.py"), "reward.concurrency=2"})
	require.NoError(t, err)

	lists, err := data.ReadAll([]string{filepath.Join(dir, "train.jsonl")},
		data.Options{PromptKey: "prompt", AnswerKey: "answer", SourceKey: "source"})
	require.NoError(t, err)
	prompts := lists[0]
	require.Len(t, prompts, 9)
	score := grader(t, resolved.Reward)
	for i := range prompts {
		p := &prompts[i]
		require.Contains(t, sources, p.Source)
		require.Equal(t, 1.0, score(p, "So\n<answer>"+own(t, p)+"</answer>"), p.ID)
		require.Less(t, score(p, "So\n<answer>?</answer>"), 0.3, p.ID)
	}

	var out, log bytes.Buffer
	require.NoError(t, run.Train(t.Context(), resolved, run.Options{Files: files, Out: &out, Log: &log}), log.String())
	steps, err := report.ReadMetrics(filepath.Join(folder, report.MetricsFile))
	require.NoError(t, err)
	require.Len(t, steps, 4, "an evaluation and three steps")
	learned := false
	for _, step := range steps[1:] {
		require.Equal(t, 9.0, step["groups/trained"])
		require.Zero(t, step["groups/failed"])
		for _, source := range sources {
			require.Contains(t, step, "reward_by_source/"+source+"/mean")
		}
		learned = learned || step["actor/grad_norm"] > 0
	}
	require.True(t, learned, "partial credit differs within a group")
	require.Contains(t, steps[3], "eval/test/mean@1")
}

// own returns the answer of a prompt's entry.
func own(t *testing.T, p *rollout.Prompt) string {
	t.Helper()
	var entry struct{ Answer string }
	require.NoError(t, json.Unmarshal(p.Answer, &entry))
	return entry.Answer
}
