package calls_test

import (
	"bufio"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/tokenizer/chat"
	"github.com/easyrl/easyrl/tokenizer/chat/calls"
)

// realTemplates returns chat templates of models by name.
func realTemplates(t *testing.T) map[string]string {
	t.Helper()
	root := os.Getenv("EASYRL_TESTDATA")
	if root == "" {
		t.Skip("EASYRL_TESTDATA is not set: no chat templates of models")
	}
	out := map[string]string{}
	files, err := filepath.Glob(filepath.Join(root, "templates", "*.jinja"))
	require.NoError(t, err)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		out[strings.TrimSuffix(filepath.Base(file), ".jinja")] = string(data)
	}
	for _, table := range []string{"chat_template_e2e", "chat_template_llamacpp"} {
		file, err := os.Open(filepath.Join(root, "conformance", table+".jsonl"))
		require.NoError(t, err)
		defer file.Close() //nolint:errcheck // only read
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, 1<<24)
		for lines.Scan() {
			var row struct{ Name, Template string }
			require.NoError(t, json.Unmarshal(lines.Bytes(), &row))
			out[row.Name] = row.Template
		}
		require.NoError(t, lines.Err())
	}
	return out
}

func knownFormats() map[string]calls.Format {
	return map[string]calls.Format{
		"qwen2.5-instruct": calls.Tagged, "qwen3": calls.Tagged, "qwen3-thinking-2507": calls.Tagged,
		"NousResearch/Hermes-2-Pro-Llama-3-8B (JSON Schema)": calls.Tagged,
		"qwen3-coder": calls.Elements, "Qwen/Qwen3.5-4B": calls.Elements,
		"HuggingFaceTB/SmolLM3-3B": calls.Tagged, "deepseek-r1-distill-qwen": calls.Fenced,
		"meta-llama/Llama-3.1-8B-Instruct": calls.Bare, "meta-llama/Llama-3.2-11B-Vision-Instruct": calls.Bare,
		"mistralai/Mistral-7B-Instruct-v0.3 (JSON Schema)":                                               calls.List,
		"Mistral-Large-Instruct-2407 (mistralai 'v3' template; modified to have system prompt at start)": calls.List,
		"Mistral-Nemo-Instruct-2407 (mistralai 'v3-tekken' template;" +
			" modified to have system prompt at start)": calls.List,
	}
}

func TestOf(t *testing.T) {
	t.Parallel()
	got := map[string]calls.Format{}
	for name, source := range realTemplates(t) {
		if f := calls.Of(source); f != calls.None {
			got[name] = f
		}
	}
	require.Equal(t, knownFormats(), got)
}

// withoutTools lists templates with a known format that render no tools.
func withoutTools() []string {
	return []string{"deepseek-r1-distill-qwen"}
}

func TestForTools(t *testing.T) {
	t.Parallel()
	templates := realTemplates(t)
	for name := range knownFormats() {
		require.NotEqual(t, slices.Contains(withoutTools(), name), calls.ForTools(templates[name]), name)
	}
}

// The calls that a model's template renders are found in the rendered text.
func TestTemplateRoundTrip(t *testing.T) {
	t.Parallel()
	const question = "QUESTION"
	tools := json.RawMessage(
		`[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object",` +
			`"properties":{"s":{"type":"string","description":"d"},
		"n":{"type":"integer","description":"d"},"l":{"type":"array","description":"d"}},"required":["s"]}}}]`)
	templates := realTemplates(t)
	for _, name := range slices.Sorted(maps.Keys(knownFormats())) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := templates[name]
			if strings.Contains(name, "SmolLM3") {
				t.Skip("the template renders no calls")
			}
			arguments := `{"s": "line 1\n\"<&>\" é", "n": -3}`
			template, err := chat.Parse(source, chat.Specials{"eos_token": "</s>", "bos_token": "<s>"})
			require.NoError(t, err)
			render := func(generate bool, messages ...string) string {
				in := chat.Input{AddGenerationPrompt: generate}
				for _, raw := range messages {
					in.Messages = append(in.Messages, chat.Message{Raw: json.RawMessage(raw)})
				}
				require.NoError(t, json.Unmarshal(tools, &in.Tools))
				text, err := template.Render(in)
				require.NoError(t, err)
				return text
			}
			call := `{"id":"abcdefghi","type":"function","function":{"name":"f","arguments":` + arguments + `}}`
			want := []calls.Call{{Name: "f", Arguments: arguments}}
			content := `""`
			if template.Calls() == calls.Fenced { // its template joins text
				text, err := json.Marshal(arguments)
				require.NoError(t, err)
				call, content = strings.Replace(call, arguments, string(text), 1), "null"
			}
			if template.Calls() != calls.Bare { // Llama's template renders one call
				call += "," + call
				want = append(want, want[0])
			}
			if strings.Contains(name, "Hermes") { // its template does not start a second call
				call, want = call[:len(call)/2], want[:1]
			}
			user := `{"role":"user","content":"` + question + `"}`
			prompt := render(true, user)
			whole := render(false, user, `{"role":"assistant","content":`+content+`,"tool_calls":[`+call+`]}`)
			_, answer, found := strings.Cut(whole, question)
			require.True(t, found)
			_, header, found := strings.Cut(prompt, question)
			require.True(t, found)
			header = strings.TrimSuffix(strings.TrimSpace(header), "<think>")
			answer = strings.TrimPrefix(strings.TrimSpace(answer), strings.TrimSpace(header))
			for _, end := range []string{"</s>", "<|im_end|>", "<|eot_id|>", "<｜end▁of▁sentence｜>"} {
				answer, _, _ = strings.Cut(answer, end)
			}
			p := template.Calls().NewParser(tools, false)
			text, got := p.Add(answer)
			more, last := p.End()
			require.Equal(t, want, append(got, last...), answer)
			require.Contains(t, []string{"", "<think>\n\n</think>"}, strings.TrimSpace(text+more))
		})
	}
}
