package serve

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/tokenizer/chat"
)

// Arguments of tool calls, which clients send as strings, reach the template as it expects
// them. Other variables of the template are clients' to set.
func TestRender(t *testing.T) {
	t.Parallel()
	const (
		asObject = `{% for t in tools or [] %}{{ t.function.name }} {% endfor %}{% for m in messages %}{{ m.role ` +
			`}}:{{ m.content }}` +
			`{% for c in m.tool_calls or [] %}<tool_call>{"arguments": {{ c.function.arguments | tojson }}}{% ` +
			`endfor %}|{% endfor %}{{ level }}`
		asString = `<｜tool▁calls▁begin｜>{% for m in messages %}{% for c in m.tool_calls or [] %}{{ "~" + ` +
			`c.function.arguments }}{% endfor %}{% endfor %}`
		turns = `[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
			{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f",` +
			`"arguments":"{\"z\":1,  \"a\":[2.50]}"}}]},
			{"role":"tool","tool_call_id":"1","content":"c"}]`
	)
	for _, test := range []struct{ template, messages, tools, variables, want string }{
		{asObject, turns, `[{"type":"function","function":{"name":"f"}}]`, `{"level":3,"unused":[]}`,
			`f user:ab|assistant:None<tool_call>{"arguments": {"z": 1, "a": [2.5]}}|tool:c|3`},
		{asObject, `[{"role":"assistant","tool_calls":[{"function":{"name":"f"}}]}]`, "", "",
			`assistant:<tool_call>{"arguments": {}}|`},
		{asObject, `[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]}]`, "", "",
			`assistant:<tool_call>{"arguments": {"a": 1}}|`},
		{asString, turns, "", "", `<｜tool▁calls▁begin｜>~{"z":1,  "a":[2.50]}`},
		{asString, `[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]}]`, "", "",
			`<｜tool▁calls▁begin｜>~{"a":1}`},
	} {
		template, err := chat.Parse(test.template, nil)
		require.NoError(t, err)
		got, err := render(template, json.RawMessage(test.messages), raw(test.tools), raw(test.variables))
		require.NoError(t, err, test.messages)
		require.Equal(t, test.want, got)
	}
	template, err := chat.Parse(asObject, nil)
	require.NoError(t, err)
	for _, messages := range []string{`[]`, `[1]`, `[{"content":"a"}]`,
		`[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"no JSON"}}]}]`,
		`[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"null"}}]}]`,
		`[{"role":"assistant","tool_calls":[{}]}]`,
		`[{"role":"user","content":[{"type":"image_url"}]}]`} {
		_, err := render(template, json.RawMessage(messages), nil, nil)
		require.Error(t, err, messages)
	}
}

func raw(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}
