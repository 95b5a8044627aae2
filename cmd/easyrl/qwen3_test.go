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
	"github.com/easyrl/easyrl/tokenizer/chat"
)

// qwen3Folder writes a model folder with Qwen3's tokenizer, template and architecture, but
// small sizes and random weights.
func qwen3Folder(t *testing.T, root, dir string) string {
	t.Helper()
	shape := filepath.Join(dir, "shape")
	require.NoError(t, os.Mkdir(shape, 0o755))
	for from, to := range map[string]string{"tokenizer.derived.json": "tokenizer.json",
		"tokenizer_config.json": "tokenizer_config.json"} {
		b, err := os.ReadFile(filepath.Join(root, "tokenizers", "qwen3", from))
		require.NoError(t, err)
		write(t, shape, to, string(b))
	}
	config := write(t, shape, "config.json",
		`{"architectures":["Qwen3ForCausalLM"],"model_type":"qwen3","hidden_size":32,"intermediate_size":64,
		"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,"vocab_size":151936,`+
			`"max_position_embeddings":2048,
		"rms_norm_eps":1e-6,"rope_theta":1000000,"hidden_act":"silu","tie_word_embeddings":true,`+
			`"attention_bias":false,"bos_token_id":151643,
		"eos_token_id":151645,"initializer_range":0.02}`)
	out := filepath.Join(dir, "qwen3")
	code, _, errs := command(t, "init", "-config", config, "-out", out)
	require.Zero(t, code, errs)
	return out
}

// firstLines writes the first n lines of a prompt file to dir.
func firstLines(t *testing.T, root, dir, name string, n int) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "prompts", "gsm8k", name))
	require.NoError(t, err)
	return write(t, dir, name, strings.Join(strings.SplitAfterN(string(b), "\n", n+1)[:n], ""))
}

// The shipped recipe works on real problems through the real template, with a small model
// of Qwen3's architecture: train, evaluate, fine-tune on the solutions, kill and resume.
func TestQwen3OnGSM8K(t *testing.T) {
	t.Parallel()
	root := os.Getenv("EASYRL_TESTDATA")
	if root == "" {
		t.Skip("EASYRL_TESTDATA is not set")
	}
	dir := t.TempDir()
	recipe := filepath.Join("..", "..", "configs", "gsm8k-qwen3.toml")
	model := qwen3Folder(t, root, dir)
	problems, held := firstLines(t, root, dir, "train.jsonl", 100), firstLines(t, root, dir, "test.jsonl", 20)
	args := func(verb, from, name string, settings ...string) []string {
		args := []string{verb, recipe}
		for _, s := range append([]string{"model.path=" + from, fmt.Sprintf("run.dir=%q", filepath.Join(dir, name)),
			"train.warmup=0",
			"train.recompute=false", "eval.prompts=2", "checkpoint.every=1", "checkpoint.keep=0"}, settings...) {
			args = append(args, "-set", s)
		}
		return args
	}
	// twice runs a verb to the end, and again killed after its first step and resumed. Both
	// must end in the same weights, whose folder it returns.
	twice := func(verb, from string, steps int, settings ...string) string {
		whole := verb + "-whole"
		code, _, errs := command(t, args(verb, from, whole, settings...)...)
		require.Zero(t, code, errs)
		killed := args(verb, from, verb+"-killed", settings...)
		killAfter(t, fmt.Sprintf("step 1/%d", steps), killed...)
		code, _, errs = command(t, append(killed, "-resume")...)
		require.Zero(t, code, errs)
		want := weightsHash(t, filepath.Join(dir, whole), steps)
		require.Equal(t, want, weightsHash(t, filepath.Join(dir, verb+"-killed"), steps))
		require.NotEqual(t, want, weightsHash(t, filepath.Join(dir, whole), 1), "the step changes the weights")
		return filepath.Join(dir, whole, "checkpoints", fmt.Sprintf("step-%06d", steps))
	}

	// Random weights give no correct answers, so the reward counts letters.
	trained := twice("train", model, 2, "data.train="+problems, "data.eval="+held, "run.steps=2",
		"rollout.prompts_per_step=3", "rollout.group_size=4",
		"rollout.max_tokens=16", "train.lr=1e-3", "reward.kind=sum", "reward.parts.right.kind=math",
		"reward.parts.letters.kind=regex",
		`reward.parts.letters.pattern=(?s)a.*a.*a`)
	steps, err := report.ReadMetrics(filepath.Join(dir, "train-whole", report.MetricsFile))
	require.NoError(t, err)
	require.Len(t, steps, 3)
	for _, values := range steps[1:] {
		require.Positive(t, values["tokens/computed"])
		require.Contains(t, values, "reward/right/mean")
		require.Zero(t, values["mismatch/logprob_abs_max"])
		require.Zero(t, values["mismatch/kl"])
	}
	require.Contains(t, steps[0], "eval/test/mean@1")
	require.Contains(t, steps[2], "eval/test/mean@1")
	requireQwen3Prompts(t, filepath.Join(dir, "train-whole", "rollouts", "step-000001.jsonl"))

	code, out, errs := command(t, "eval", recipe, "-model", trained, "-data", held, "-prompts", "2", "-k", "2",
		"-max-tokens", "8", "-json")
	require.Zero(t, code, errs)
	var scores map[string]float64
	require.NoError(t, json.Unmarshal([]byte(out), &scores))
	require.Contains(t, scores, "eval/test/mean@2")

	tuned := twice("sft", trained, 2, "sft.data="+problems, "sft.eval="+held, "sft.steps=2", "sft.batch_size=2",
		"train.lr=1e-2", "eval.every=2")
	steps, err = report.ReadMetrics(filepath.Join(dir, "sft-whole", report.MetricsFile))
	require.NoError(t, err)
	require.Less(t, steps[2]["eval/test/loss"], steps[0]["eval/test/loss"])
	requireQwen3Demonstrations(t, tuned, problems)
}

// requireQwen3Prompts checks the prompts that the model got.
func requireQwen3Prompts(t *testing.T, rollouts string) {
	t.Helper()
	b, err := os.ReadFile(rollouts)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	require.Len(t, lines, 3)
	for _, line := range lines {
		var group struct {
			Prompt    string  `json:"prompt"`
			PromptIDs []int32 `json:"prompt_ids"`
			Answer    string  `json:"answer"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &group))
		require.Regexp(t, `(?s)^<\|im_start\|>system\nPlease reason `+
			`.*\\boxed{}\.<\|im_end\|>\n<\|im_start\|>user\n.*<\|im_end\|>\n<\|im_start\|`+
			`>assistant\n<think>\n\n</think>\n\n$`,
			group.Prompt)
		require.Regexp(t, `^[0-9,.]+$`, group.Answer)
		require.Equal(t, int32(151644), group.PromptIDs[0], "<|im_start|>")
		require.Equal(t, []int32{151667, 271, 151668, 271}, group.PromptIDs[len(group.PromptIDs)-4:],
			"<think>, an empty line, </think>, an empty line")
	}
}

// requireQwen3Demonstrations compares the training examples with the template's rendering
// of the whole conversation.
func requireQwen3Demonstrations(t *testing.T, model, file string) {
	t.Helper()
	f, err := folder.Open(model)
	require.NoError(t, err)
	cfg := configs.Default()
	cfg.Data.Template, cfg.Data.Thinking = configs.TemplateChat, false
	lists, err := dataset.New(f, &cfg, 0, func(string, ...any) { t.Error("unexpected warning") }).Demonstrations(
		t.Context(), []string{file})
	require.NoError(t, err)
	require.Len(t, lists[0], 100)
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	for i, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		var row struct{ Question, Answer string }
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		whole, err := f.Template.Render(
			chat.Input{Messages: []chat.Message{{Role: "user", Content: row.Question},
				{Role: "assistant", Content: row.Answer}}})
		require.NoError(t, err)
		e := lists[0][i]
		ids, err := f.Tokenizer.Encode(whole)
		require.NoError(t, err)
		require.Equal(t, ids, append(e.Prompt, e.Spans.IDs()...), row.Question)
		response := e.Spans.IDs()
		require.Equal(t, []int32{151645, 198}, response[len(response)-2:], "<|im_end|> and the end of the line")
	}
}
