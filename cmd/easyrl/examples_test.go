package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/chat"
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/data"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/rollout"
)

// The forms that templates of the field have, in short.
const (
	chatML = `{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}{% endif %}`
	forgetful = `{% for m in messages %}[{{ m.role }}]{{ m.content.split('</think>')[-1] }}</s>{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}`
	thinker   = `{% for m in messages %}[{{ m.role }}]{{ m.content.split('</think>')[-1] }}</s>{% endfor %}{% if add_generation_prompt %}[assistant]<think>
{% endif %}`
	reasons = `{% for m in messages %}[{{ m.role }}]{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content | trim }}</s>{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}`
	silent  = `{% for m in messages %}{% if m.role == 'user' %}[user]{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}[assistant]<think>{% endif %}`
)

func TestDemonstrations(t *testing.T) {
	t.Parallel()
	three := []rollout.Message{{Role: "user", Content: "a"}, {Role: "assistant", Content: "b"}, {Role: "user", Content: "q"}}
	for _, row := range []struct {
		name, template   string
		row              data.Example
		set              configs.Data
		prompt, response string
		fault            string
	}{
		{name: "text as it is", template: chatML, row: data.Example{Prompt: "q", Response: "r"}, set: configs.Data{Template: "auto", System: "s "}, prompt: "s q", response: "r"},
		{name: "text as the user's turn", template: chatML, row: data.Example{Prompt: "q", Response: "r"}, set: configs.Data{Template: "chat", Thinking: true},
			prompt: "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n", response: "r<|im_end|>\n"},
		{name: "several turns and a system's", template: chatML, row: data.Example{Messages: three, Response: "r"}, set: configs.Data{Template: "auto", Thinking: true, System: "s"},
			prompt:   "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n",
			response: "r<|im_end|>\n"},
		{name: "a thought that the template drops", template: forgetful, row: data.Example{Messages: three[2:], Response: "<think>t</think>r"}, set: configs.Data{Template: "auto"},
			prompt: "[user]q</s>[assistant]", response: "<think>t</think>r</s>"},
		{name: "a thought that the prompt begins", template: thinker, row: data.Example{Messages: three[2:], Response: "<think>\nt</think>r"}, set: configs.Data{Template: "auto"},
			prompt: "[user]q</s>[assistant]<think>\n", response: "t</think>r</s>"},
		{name: "the prompt begins a thought that is not there", template: thinker, row: data.Example{Messages: three[2:], Response: "r"}, set: configs.Data{Template: "auto"},
			fault: `the chat template ends the prompt with "[user]q</s>[assistant]<think>\n", expected a response that goes on from there, found one that begins with "r"`},
		{name: "another field of the message", template: reasons, row: data.Example{Messages: three[2:], Response: " r\n", Extra: map[string]json.RawMessage{"reasoning_content": json.RawMessage(`"t"`)}},
			set: configs.Data{Template: "auto"}, prompt: "[user]q</s>[assistant]", response: "<think>t</think>r</s>"},
		{name: "left out", template: silent, row: data.Example{Messages: three[2:], Response: "r"}, set: configs.Data{Template: "auto"}, fault: "the chat template leaves the response out"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			template, err := chat.Parse(row.template, nil)
			require.NoError(t, err)
			f := &folder{chat: template}
			prompt, response, _, err := f.demonstration(&row.row, &row.set)
			if row.fault != "" {
				require.EqualError(t, err, row.fault)
				return
			}
			require.NoError(t, err)
			require.Equal(t, row.prompt, prompt)
			require.Equal(t, row.response, response)
		})
	}
}

// Of the real templates, prompt and response together are what the template
// renders of the whole conversation.
func TestDemonstrationsThroughRealTemplates(t *testing.T) {
	t.Parallel()
	root := os.Getenv("EASYRL_TESTDATA")
	if root == "" {
		t.Skip("EASYRL_TESTDATA is not set")
	}
	const thought, plain = "<think>\nwell\n</think>\n\n72", "Half of 48 is 24.\n#### 72"
	for _, row := range []struct {
		file, response  string
		thinking, whole bool
		want            string // response
		fault           string
	}{
		{"qwen2.5-instruct", plain, true, true, plain + "<|im_end|>\n", ""},
		{"qwen3", plain, true, true, "<think>\n\n</think>\n\n" + plain + "<|im_end|>\n", ""},
		{"qwen3", plain, false, true, plain + "<|im_end|>\n", ""},
		{"qwen3", thought, true, true, thought + "<|im_end|>\n", ""},
		{"qwen3", "\n" + thought, false, false, "", "found one that begins with \"\\n<think>\\nwell"},
		{"qwen3", thought, false, false, "", "found one that begins with \"<think>\\nwell"},
		{"qwen3-thinking-2507", thought, true, true, "well\n</think>\n\n72<|im_end|>\n", ""},
		{"qwen3-coder", plain, true, true, plain + "<|im_end|>\n", ""},
		{"deepseek-r1-distill-qwen", plain, true, true, plain + "<｜end▁of▁sentence｜>", ""},
		{"deepseek-r1-distill-qwen", thought, true, false, thought + "<｜end▁of▁sentence｜>", ""},
	} {
		source, err := os.ReadFile(filepath.Join(root, "templates", row.file+".jinja"))
		require.NoError(t, err)
		template, err := chat.Parse(string(source), chat.Specials{"bos_token": "<bos>"})
		require.NoError(t, err, row.file)
		f := &folder{chat: template}
		prompt, response, rendered, err := f.demonstration(&data.Example{Prompt: "How many?", Response: row.response},
			&configs.Data{Template: configs.TemplateChat, Thinking: row.thinking})
		if row.fault != "" {
			require.ErrorContains(t, err, row.fault)
			continue
		}
		require.NoError(t, err, row.file)
		require.True(t, rendered)
		require.Equal(t, row.want, response, row.file)
		whole, err := template.Render(chat.Input{Messages: []chat.Message{{Role: "user", Content: "How many?"}, {Role: "assistant", Content: row.response}}})
		require.NoError(t, err)
		require.Equal(t, row.whole, whole == prompt+response, "%s:\n%q\n%q", row.file, whole, prompt+response)
	}
}

// What is too long is left out and counted, what is there twice is told, files
// are mixed by their weights, and the held-out loss is that of the model.
func TestSFTTellsOfItsData(t *testing.T) {
	dir := tinyRun(t)
	demo := func(n int) string { return fmt.Sprintf(`{"q":"%d,%d","meta":{"r":"%d"}}`+"\n", n%10, n/10, n%7) }
	var many strings.Builder
	for i := range 40 {
		many.WriteString(demo(i))
	}
	long := `{"q":"1","meta":{"r":"` + strings.Repeat("1", 70) + `"}}` + "\n" + `{"q":"` + strings.Repeat("2", 20) + `","meta":{"r":"1"}}` + "\n"
	a := write(t, dir, "demos-a.jsonl", many.String()+long+demo(3)+demo(4))
	b := write(t, dir, "b.jsonl", demo(50))
	held := write(t, dir, "held.json", "["+strings.TrimSpace(demo(61))+"]")
	args := func(run string, more ...string) []string {
		args := []string{"sft", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("sft.data=[%q,%q]", filepath.Join(dir, "demos-*.jsonl"), b),
			"-set", fmt.Sprintf("run.dir=%q", run), "-set", "sft.prompt_key=q", "-set", "sft.response_key=meta.r", "-set", "sft.steps=3", "-set", "sft.batch_size=8"}
		for _, s := range more {
			args = append(args, "-set", s)
		}
		return args
	}
	run := filepath.Join(dir, "run")
	code, _, errs := command(t, args(run, "sft.weights=[1,3]", "sft.eval="+held, "eval.every=2")...)
	require.Zero(t, code, errs)
	require.Contains(t, errs, "demos-*.jsonl: left out 2 of 44 demonstrations, with a prompt of more than 16 tokens or more than the model's context of 64 in all ("+
		filepath.Base(a)+":41 first)\n")
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
	require.Len(t, losses, 3, "before, after step 2, after the last")
	require.Less(t, losses[2], losses[0])

	// the loss of the one held-out example is that of easyrl logprobs
	last := filepath.Join(run, "checkpoints", "step-000003")
	require.InDelta(t, -meanLogprob(t, last, "1,6", "5"), losses[2], 1e-6)

	unweighed := filepath.Join(dir, "unweighed")
	code, _, errs = command(t, args(unweighed)...)
	require.Zero(t, code, errs)
	require.NotEqual(t, weightsHash(t, run, 3), weightsHash(t, unweighed, 3))

	code, _, errs = command(t, args(filepath.Join(dir, "none"), "data.max_prompt_tokens=1")...)
	require.Equal(t, exitUsage, code)
	requireOneLine(t, errs, "demos-*.jsonl: all 44 demonstrations are too long, with a prompt of more than 1 tokens")
	require.NoDirExists(t, filepath.Join(dir, "none"))
}

// meanLogprob is the mean log-probability of a response and its end.
func meanLogprob(t *testing.T, model, prompt, response string) float64 {
	t.Helper()
	f, err := openFolder(model)
	require.NoError(t, err)
	e := f.encodeExample(prompt, response, false)
	ids, err := json.Marshal(map[string]any{"ids": append(e.Prompt, e.Response...)})
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
	return sum / float64(len(e.Response))
}
