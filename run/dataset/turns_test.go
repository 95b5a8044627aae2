package dataset

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/tokenizer/chat"
)

type demo struct {
	Prompt   string
	Messages []rollout.Message
	Response string
	Extra    map[string]json.RawMessage
}

func (d demo) render(r *renderer) (prompt, response string, rendered bool, err error) {
	return r.demonstration(d.Prompt, d.Messages,
		rollout.Message{Role: "assistant", Content: d.Response, Extra: d.Extra})
}

// Simplified forms of common chat templates.
const (
	chatML = `{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}{% endif %}`
	forgetful = `{% for m in messages %}[{{ m.role }}]{{ m.content.split('</think>')[-1] }}</s>{% endfor %}{% if ` +
		`add_generation_prompt %}[assistant]{% endif %}`
	thinker = `{% for m in messages %}[{{ m.role }}]{{ m.content.split('</think>')[-1] }}</s>{% endfor %}{% if ` +
		`add_generation_prompt %}[assistant]<think>
{% endif %}`
	reasons = `{% for m in messages %}[{{ m.role }}]{% if m.reasoning_content %}<think>{{ m.reasoning_content ` +
		`}}</think>{% endif %}{{ m.content | trim }}</s>{% endfor %}{% if add_generation_prompt %}[assistant]{% ` +
		`endif %}`
	silent = `{% for m in messages %}{% if m.role == 'user' %}[user]{{ m.content }}{% endif %}{% endfor %}{% if ` +
		`add_generation_prompt %}[assistant]<think>{% endif %}`
)

func TestDemonstrations(t *testing.T) {
	t.Parallel()
	three := []rollout.Message{{Role: "user", Content: "a"}, {Role: "assistant", Content: "b"},
		{Role: "user", Content: "q"}}
	for _, row := range []struct {
		name, template   string
		row              demo
		set              renderer
		prompt, response string
		fault            string
	}{
		{name: "plain text", template: chatML, row: demo{Prompt: "q", Response: "r"}, set: renderer{system: "s "},
			prompt: "s q", response: "r"},
		{name: "text as the user's turn", template: chatML, row: demo{Prompt: "q", Response: "r"},
			set:    renderer{always: true, thinking: true},
			prompt: "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n", response: "r<|im_end|>\n"},
		{name: "several turns with a system turn", template: chatML, row: demo{Messages: three, Response: "r"},
			set: renderer{thinking: true, system: "s"},
			prompt: "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n" +
				"b<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n",
			response: "r<|im_end|>\n"},
		{name: "thought dropped by the template", template: forgetful,
			row: demo{Messages: three[2:], Response: "<think>t</think>r"}, set: renderer{},
			prompt: "[user]q</s>[assistant]", response: "<think>t</think>r</s>"},
		{name: "thought begun by the prompt", template: thinker,
			row: demo{Messages: three[2:], Response: "<think>\nt</think>r"}, set: renderer{},
			prompt: "[user]q</s>[assistant]<think>\n", response: "t</think>r</s>"},
		{name: "prompt begins a missing thought", template: thinker, row: demo{Messages: three[2:], Response: "r"},
			set: renderer{},
			fault: `the chat template ends the prompt with "[user]q</s>[assistant]<think>\n", but the response ` +
				`starts with "r"`},
		{name: "extra message field", template: reasons,
			row: demo{Messages: three[2:], Response: " r\n",
				Extra: map[string]json.RawMessage{"reasoning_content": json.RawMessage(`"t"`)}},
			set: renderer{}, prompt: "[user]q</s>[assistant]", response: "<think>t</think>r</s>"},
		{name: "today", template: "{{ strftime_now('%d %b %Y') }}" + chatML,
			row: demo{Messages: three[2:], Response: "r"},
			set: renderer{thinking: true}, prompt: "26 Jul 2024<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n",
			response: "r<|im_end|>\n"},
		{name: "dropped response", template: silent, row: demo{Messages: three[2:], Response: "r"}, set: renderer{},
			fault: "the chat template drops the response"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			template, err := chat.Parse(row.template, nil)
			require.NoError(t, err)
			row.set.template = template
			prompt, response, _, err := row.row.render(&row.set)
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

// With real templates, prompt and response together equal the rendered
// conversation.
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
		{"qwen3", "\n" + thought, false, false, "", "but the response starts with \"\\n<think>\\nwell"},
		{"qwen3", thought, false, false, "", "set data.thinking = true for responses with thoughts"},
		{"qwen3-thinking-2507", thought, true, true, "well\n</think>\n\n72<|im_end|>\n", ""},
		{"qwen3-coder", plain, true, true, plain + "<|im_end|>\n", ""},
		{"deepseek-r1-distill-qwen", plain, true, true, plain + "<｜end▁of▁sentence｜>", ""},
		{"deepseek-r1-distill-qwen", thought, true, false, thought + "<｜end▁of▁sentence｜>", ""},
	} {
		source, err := os.ReadFile(filepath.Join(root, "templates", row.file+".jinja"))
		require.NoError(t, err)
		template, err := chat.Parse(string(source), chat.Specials{"bos_token": "<bos>"})
		require.NoError(t, err, row.file)
		prompt, response, rendered, err := demo{Prompt: "How many?", Response: row.response}.render(
			&renderer{template: template, always: true, thinking: row.thinking})
		if row.fault != "" {
			require.ErrorContains(t, err, row.fault)
			continue
		}
		require.NoError(t, err, row.file)
		require.True(t, rendered)
		require.Equal(t, row.want, response, row.file)
		whole, err := template.Render(
			chat.Input{Messages: []chat.Message{{Role: "user", Content: "How many?"},
				{Role: "assistant", Content: row.response}}})
		require.NoError(t, err)
		require.Equal(t, row.whole, whole == prompt+response, "%s:\n%q\n%q", row.file, whole, prompt+response)
	}
}

// A prompt that ends within an assistant turn continues there, like transformers
// with continue_final_message.
func TestPromptsContinueAssistantTurn(t *testing.T) {
	t.Parallel()
	render := func(source string, last rollout.Message) (string, error) {
		template, err := chat.Parse(source, nil)
		require.NoError(t, err)
		out, _, err := (&renderer{template: template, thinking: true}).prompt(
			"", []rollout.Message{{Role: "user", Content: "q"}, last})
		return out, err
	}
	for _, row := range []struct{ template, said, want string }{
		{chatML, "Let us see", "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nLet us see"},
		{chatML, "end", "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nend"},
		{chatML, "72 = ", "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n72 = "},
		{reasons, "72 = ", "[user]q</s>[assistant]72 ="},
	} {
		out, err := render(row.template, rollout.Message{Role: "assistant", Content: row.said})
		require.NoError(t, err)
		require.Equal(t, row.want, out)
	}
	_, err := render(forgetful, rollout.Message{Role: "assistant", Content: "<think>t</think>r"})
	require.EqualError(t, err,
		`the chat template changes the final assistant turn "<think>t</think>r", so no response can continue it`)
	_, err = render(silent, rollout.Message{Role: "assistant", Content: "r"})
	require.ErrorContains(t, err, "the chat template changes the final assistant turn")
	_, err = render(chatML, rollout.Message{Role: "assistant",
		Extra: map[string]json.RawMessage{"tool_calls": json.RawMessage("[]")}})
	require.EqualError(t, err, "the final assistant turn is empty, expected text to continue")
	template, err := chat.Parse(chatML, nil)
	require.NoError(t, err)
	_, _, _, err = demo{Messages: []rollout.Message{{Role: "user", Content: "q"}, {Role: "assistant", Content: "a"}},
		Response: "b"}.render(&renderer{template: template})
	require.EqualError(t, err, "the prompt ends with an assistant turn, expected all of it in the response")
}

// A turn that the template omits because of its role is an error.
func TestOmittedRolesAreRefused(t *testing.T) {
	t.Parallel()
	turns := []rollout.Message{{Role: "developer", Content: "be  brief"}, {Role: "user", Content: "q"}}
	template, err := chat.Parse(silent, nil)
	require.NoError(t, err)
	_, _, err = (&renderer{template: template}).prompt("", turns)
	require.EqualError(t, err,
		`the chat template drops turn 1: role is "developer", expected system, user, assistant or tool`)
	template, err = chat.Parse(chatML, nil)
	require.NoError(t, err)
	_, _, err = (&renderer{template: template}).prompt("", turns)
	require.NoError(t, err)
}

func TestPromptsRefused(t *testing.T) {
	t.Parallel()
	chat := []rollout.Message{{Role: "user", Content: "q"}}
	_, _, err := (&renderer{model: "models/m"}).prompt("", chat)
	require.EqualError(t, err, "conversations need a chat template, but models/m has none")
	_, _, err = (&renderer{never: true}).prompt("", chat)
	require.EqualError(t, err, `conversations need a chat template, but data.template is "none"`)
	out, rendered, err := (&renderer{never: true, system: "s "}).prompt("q", nil)
	require.NoError(t, err)
	require.False(t, rendered)
	require.Equal(t, "s q", out)
}
