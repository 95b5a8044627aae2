package chat

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const turns = "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if " +
	"add_generation_prompt %}<assistant>{% endif %}"

func TestRender(t *testing.T) {
	t.Parallel()
	user := []Message{{Role: "user", Content: "hi"}}
	raw := json.RawMessage(`{"z": 1.0, "a": 12345678901234567890, "m": "\u00e9"}`)
	for _, tc := range []struct {
		name, source string
		in           Input
		want         string
	}{
		{"turns", turns, Input{Messages: user, AddGenerationPrompt: true}, "<s><user>hi<assistant>"},
		{"no prompt", turns, Input{Messages: user}, "<s><user>hi"},
		{"nothing", turns, Input{}, "<s>"},
		{"tools is none", "{{ tools is defined }}{{ tools }}{{ documents }}", Input{}, "TrueNoneNone"},
		{"tools keep their order", "{{ tools | tojson }}", Input{Tools: []json.RawMessage{raw}},
			`[{"z": 1.0, "a": 12345678901234567890, "m": "é"}]`},
		{"documents", "{{ documents[0].m }}", Input{Documents: []json.RawMessage{raw}}, "é"},
		{"raw message", "{{ messages[0] | tojson }}", Input{Messages: []Message{{Role: "x", Raw: raw}}},
			`{"z": 1.0, "a": 12345678901234567890, "m": "é"}`},
		{"message", "{{ messages[0] }}", Input{Messages: user}, "{'role': 'user', 'content': 'hi'}"},
		{"extra", "{{ enable_thinking }}{{ n }}{{ f }}{{ l }}{{ d }}{{ o }}{{ none }}{{ s }}",
			Input{Extra: map[string]any{
				"enable_thinking": false, "n": 3, "f": 2.0, "l": []any{1, "a"},
				"d": map[string]any{"b": nil, "a": []string{"x"}},
				"o": struct{ X, A int }{1, 2}, "s": "a\xffb",
			}}, "False32.0[1, 'a']{'a': ['x'], 'b': None}{'X': 1, 'A': 2}Nonea\uFFFDb"},
		{"extra beats special tokens", "{{ bos_token }}", Input{Extra: map[string]any{"bos_token": "[B]"}}, "[B]"},
		{"now", "{{ strftime_now('%d %b %Y') }}", Input{Now: time.Date(2025, 2, 3, 0, 0, 0, 0, time.UTC)},
			"03 Feb 2025"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tmpl, err := Parse(tc.source, Specials{"bos_token": "<s>"})
			require.NoError(t, err)
			got, err := tmpl.Render(tc.in)
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}

func TestRenderRefuses(t *testing.T) {
	t.Parallel()
	tmpl, err := Parse("{{ messages }}", nil)
	require.NoError(t, err)
	for name, in := range map[string]Input{
		"message is not an object": {Messages: []Message{{Raw: json.RawMessage(`[1]`)}}},
		"message is not JSON":      {Messages: []Message{{Raw: json.RawMessage(`{`)}}},
		"tool is not an object":    {Tools: []json.RawMessage{json.RawMessage(`"x"`)}},
		"two values":               {Tools: []json.RawMessage{json.RawMessage(`{} {}`)}},
		"variable is a func":       {Extra: map[string]any{"f": func() {}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := tmpl.Render(in)
			require.Error(t, err)
		})
	}
	_, err = tmpl.RenderVariables(json.RawMessage(`[]`), time.Time{})
	require.ErrorContains(t, err, "expected an object")
}

func TestErrorsNameTheLine(t *testing.T) {
	t.Parallel()
	_, err := Parse("a\n\n{% nope %}", nil)
	require.EqualError(t, err, "chat template line 3: TemplateSyntaxError: Encountered unknown tag 'nope'.")
	tmpl, err := Parse("a\n{{ messages[0].role.x.y }}", nil)
	require.NoError(t, err)
	_, err = tmpl.Render(Input{Messages: []Message{{Role: "user"}}})
	require.EqualError(t, err, "chat template line 2: UndefinedError: 'str object' has no attribute 'x'")
	tmpl, err = Parse("{% if true %}\n{{ raise_exception('roles must alternate') }}{% endif %}", nil)
	require.NoError(t, err)
	_, err = tmpl.Render(Input{})
	require.EqualError(t, err, "chat template line 2: TemplateError: roles must alternate")
	require.NotErrorIs(t, err, ErrLimit)
}

func TestLoad(t *testing.T) {
	t.Parallel()
	quote := func(s string) string { data, _ := json.Marshal(s); return string(data) }
	specials := `"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>", "pad_token": null`
	tools := []json.RawMessage{json.RawMessage(`{"a": 1}`)}
	for _, tc := range []struct {
		name  string
		files map[string]string
		tools []json.RawMessage
		want  string
	}{
		{"jinja file first", map[string]string{"chat_template.jinja": "jinja{{ bos_token }}",
			"chat_template.json":    `{"chat_template": "json"}`,
			"tokenizer_config.json": `{"chat_template": "config", ` + specials + `}`}, nil, "jinja<s>"},
		{"processor's file", map[string]string{"chat_template.json": `{"chat_template": "json"}`,
			"tokenizer_config.json": `{"chat_template": "config"}`}, nil, "json"},
		{"tokenizer_config.json", map[string]string{"tokenizer_config.json": `{"chat_template": ` + quote(
			"{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}") + `, ` + specials + `}`}, nil, "<s></s>False"},
		{"special_tokens_map.json",
			map[string]string{"tokenizer_config.json": `{"chat_template": "{{ bos_token }}{{ sep_token }}", ` +
				`"bos_token": "<s>"}`, "special_tokens_map.json": `{"bos_token": "x", "sep_token": {"content": "|"}}`},
			nil, "<s>|"},
		{"named", map[string]string{"tokenizer_config.json": `{"chat_template": [{"name": "default", "template": ` +
			`"d"}, {"name": "tool_use", "template": "t"}, {"name": "rag", "template": "{{"}]}`}, nil, "d"},
		{"named, with tools",
			map[string]string{"tokenizer_config.json": `{"chat_template": [{"name": "default", "template": "d"}, ` +
				`{"name": "tool_use", "template": "t"}]}`}, tools, "t"},
		{"named by an object",
			map[string]string{"chat_template.json": `{"chat_template": {"default": "d", "tool_use": "t"}}`}, nil, "d"},
		{"additional file, with tools", map[string]string{"chat_template.jinja": "d",
			"additional_chat_templates/tool_use.jinja": "t"}, tools, "t"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tmpl, err := Load(folder(t, tc.files))
			require.NoError(t, err)
			got, err := tmpl.Render(Input{Tools: tc.tools})
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}

func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return dir
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	_, err := Load(folder(t, nil))
	require.ErrorIs(t, err, ErrNone)
	_, err = Load(folder(t, map[string]string{"tokenizer_config.json": `{"chat_template": null}`}))
	require.ErrorIs(t, err, ErrNone)
	_, err = Load(folder(t, map[string]string{"tokenizer_config.json": `{`}))
	require.ErrorContains(t, err, "tokenizer_config.json")
	_, err = Load(folder(t, map[string]string{"tokenizer_config.json": `{"chat_template": 5}`}))
	require.ErrorContains(t, err, "expected a string")
	_, err = Load(
		folder(t, map[string]string{"tokenizer_config.json": `{"chat_template": [{"name": "x", "template": "y"}]}`}))
	require.ErrorContains(t, err, "none is named default")
	_, err = Load(folder(t, map[string]string{"chat_template.jinja": "{{ x"}))
	var e *Error
	require.ErrorAs(t, err, &e)
}

// The templates of real models render a conversation with each of their options.
func TestModelTemplates(t *testing.T) {
	t.Parallel()
	root := os.Getenv("EASYRL_TESTDATA")
	paths, err := filepath.Glob(filepath.Join(root, "templates", "*.jinja"))
	require.NoError(t, err)
	if root == "" || len(paths) == 0 {
		t.Skip("EASYRL_TESTDATA is not set")
	}
	tool := json.RawMessage(`{"type": "function", "function": {"name": "f", "description": "d", "parameters": ` +
		`{"type": "object", "properties": {"x": {"type": "string"}}}}}`)
	for _, path := range paths {
		source, err := os.ReadFile(path)
		require.NoError(t, err)
		tmpl, err := Parse(string(source), Specials{"bos_token": "<s>"})
		require.NoError(t, err, path)
		for _, thinking := range []bool{false, true} {
			for _, tools := range [][]json.RawMessage{nil, {tool}} {
				text, err := tmpl.Render(Input{
					Messages: []Message{{Role: "system", Content: "S"}, {Role: "user", Content: "2+2?"},
						{Role: "assistant", Content: "<think>\nhm\n</think>\n\n4"}, {Role: "user", Content: "sure?"}},
					Tools:               tools,
					AddGenerationPrompt: true,
					Extra:               map[string]any{"enable_thinking": thinking},
				})
				require.NoError(t, err, path)
				require.Contains(t, text, "sure?")
			}
		}
	}
}

func TestIsInteger(t *testing.T) {
	t.Parallel()
	tmpl, err := Parse("{{ (2.0).is_integer() }} {{ (2.5).is_integer() }} {{ (1e300).is_integer() }} "+
		"{{ (1e308 * 10).is_integer() }}", nil)
	require.NoError(t, err)
	text, err := tmpl.Render(Input{})
	require.NoError(t, err)
	require.Equal(t, "True False True False", text)
}
