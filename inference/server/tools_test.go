package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/tokenizer/chat/calls"
)

// saying returns a backend whose responses are text and EOS. ␤ in text stands for the
// special token that opens a call.
func saying(text string) *fakeBackend {
	b := newFake()
	for i, part := range strings.Split(text, "␤") {
		if i > 0 {
			b.says = append(b.says, fakeOpen)
		}
		for k := range len(part) {
			b.says = append(b.says, int32(part[k]))
		}
	}
	b.says = append(b.says, fakeEOS)
	return b
}

// spoken is what clients see of a message.
type spoken struct {
	content any // nil for null
	finish  string
	calls   []string
}

const oneTool = `"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object",` +
	`"properties":{"n":{"type":"integer"}}}}}]`

// ask returns the message that the server makes of a response, whole and as a stream.
func ask(t *testing.T, b *fakeBackend, fields string) (whole, streamed spoken) {
	t.Helper()
	s := serve(t, b, fakeText{}, nil)
	body := `{"messages":[{"role":"user","content":"a"}],` + fields
	status, got := post(t, s, "/v1/chat/completions", body+`}`)
	require.Equal(t, 200, status, "%v", got)
	choice := got["choices"].([]any)[0].(map[string]any)
	message := choice["message"].(map[string]any)
	whole = spoken{content: message["content"], finish: choice["finish_reason"].(string)}
	list, _ := message["tool_calls"].([]any)
	ids := map[string]bool{}
	add := func(to *spoken, index int, v any) {
		c := v.(map[string]any)
		require.Equal(t, "function", c["type"])
		require.Regexp(t, "^[A-Za-z0-9]{9}$", c["id"])
		require.False(t, ids[c["id"].(string)])
		ids[c["id"].(string)] = true
		f := c["function"].(map[string]any)
		to.calls = append(to.calls, fmt.Sprintf("%d %s %s", index, f["name"], f["arguments"]))
	}
	for i, c := range list {
		add(&whole, i, c)
	}
	_, _, data := call(t, s, "POST", "/v1/chat/completions", body+`,"stream":true}`)
	content := ""
	for _, event := range events(t, data) {
		choice := event["choices"].([]any)[0].(map[string]any)
		delta := choice["delta"].(map[string]any)
		if text, ok := delta["content"].(string); ok {
			content += text
		}
		list, _ := delta["tool_calls"].([]any)
		for _, c := range list {
			add(&streamed, int(c.(map[string]any)["index"].(float64)), c)
		}
		if finish, ok := choice["finish_reason"].(string); ok {
			streamed.finish = finish
		}
	}
	streamed.content = content
	if content == "" && streamed.calls != nil {
		streamed.content = nil
	}
	return whole, streamed
}

func TestToolCalls(t *testing.T) {
	t.Parallel()
	const one = `<tool_call>{"name":"f","arguments":{"n":1}}</tool_call>`
	const two = `<tool_call>{"name":"g","arguments":{}}</tool_call>`
	for _, test := range []struct {
		says, fields string
		want         spoken
	}{
		{one, oneTool, spoken{nil, "tool_calls", []string{`0 f {"n":1}`}}},
		{"Well,\n" + one + "\n" + two, oneTool + `,"tool_choice":"auto"`,
			spoken{"Well,", "tool_calls", []string{`0 f {"n":1}`, `1 g {}`}}},
		{one + two, oneTool + `,"parallel_tool_calls":false`, spoken{nil, "tool_calls", []string{`0 f {"n":1}`}}},
		{one, oneTool + `,"tool_choice":"none"`, spoken{one, "stop", nil}},
		{one, `"tools":[]`, spoken{one, "stop", nil}},
		{`<tool_call>{"name":</tool_call>`, oneTool, spoken{`<tool_call>{"name":</tool_call>`, "stop", nil}},
		{"plain text\n", oneTool, spoken{"plain text\n", "stop", nil}},
		{one + two, oneTool + fmt.Sprintf(`,"max_tokens":%d`, len(one)+5),
			spoken{"<tool", "length", []string{`0 f {"n":1}`}}},
		{"a ␤" + one[len("<tool_call>"):], oneTool, spoken{"a", "tool_calls", []string{`0 f {"n":1}`}}},
		{"a ␤ b", oneTool, spoken{"a <tool_call> b", "stop", nil}},
		{"a ␤ b", `"seed":1`, spoken{"a  b", "stop", nil}},
		{"<think>" + one + "</think>" + two, oneTool,
			spoken{"<think>" + one + "</think>", "tool_calls", []string{"0 g {}"}}},
		{one + "END" + two, oneTool + `,"stop":["END"]`, spoken{nil, "tool_calls", []string{`0 f {"n":1}`}}},
	} {
		whole, streamed := ask(t, saying(test.says), test.fields)
		require.Equal(t, test.want, whole, "%s %s", test.says, test.fields)
		require.Equal(t, test.want, streamed, "%s %s", test.says, test.fields)
	}
}

// If the prompt ends with the start of a thought, calls follow the thought.
func TestToolCallsAfterThought(t *testing.T) {
	t.Parallel()
	const one = `<tool_call>{"name":"f"}</tool_call>`
	for end, want := range map[string]int{"": 2, "<think>\n": 1} {
		s := serve(t, saying(one+"</think>"+one), thoughtful{end: end}, nil)
		_, got := post(t, s, "/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],`+oneTool+`}`)
		message := got["choices"].([]any)[0].(map[string]any)["message"].(map[string]any)
		require.Len(t, message["tool_calls"], want)
	}
}

// thoughtful is a chat template with an end.
type thoughtful struct {
	fakeText
	end string
}

func (t thoughtful) Chat(messages, tools, variables json.RawMessage) ([]int32, error) {
	ids, err := t.fakeText.Chat(messages, tools, variables)
	if err != nil {
		return nil, err
	}
	end, err := t.Encode(t.end)
	return append(ids, end...), err
}

// toolless is a chat template without tools.
type toolless struct{ fakeText }

func (toolless) Calls() calls.Format { return calls.None }

func TestToolsWithoutTemplate(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake(), toolless{}, nil)
	status, got := post(t, s, "/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],`+oneTool+`}`)
	require.Equal(t, 400, status)
	require.Equal(t, "tools", got["error"].(map[string]any)["param"])
	status, got = post(t, s, "/v1/chat/completions",
		`{"messages":[{"role":"user","content":"a"}],"tool_choice":"none",`+oneTool+`}`)
	require.Equal(t, 200, status, "%v", got)
}

// Variables of the chat template reach it, also to count tokens.
func TestTemplateVariables(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake(), fakeText{}, nil)
	for path, field := range map[string]string{"/v1/chat/completions": "prompt_token_ids", "/tokenize": "tokens"} {
		more := ""
		if field == "prompt_token_ids" {
			more = `,"return_token_ids":true,"max_tokens":1`
		}
		status, got := post(t, s, path,
			`{"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":{"enable_thinking":false}`+more+`}`)
		require.Equal(t, 200, status, "%v", got)
		text := ""
		for _, id := range got[field].([]any) {
			text += string(rune(id.(float64)))
		}
		require.Equal(t, `{"enable_thinking":false}`+"user: a\nassistant: ", text)
	}
}

// OpenAI's client reads calls, accumulates streamed ones, and sends both back.
func TestOfficialClientTools(t *testing.T) {
	t.Parallel()
	s := serve(t,
		saying(
			"Hm.\n<tool_call>{\"name\":\"f\",\"arguments\":{\"n\":1}}</tool_call>"+
				"<tool_call>{\"name\":\"f\",\"arguments\":{\"n\":2}}</tool_call>"), fakeText{}, nil)
	client := officialClient(t, s, "")
	params := openai.ChatCompletionNewParams{Model: "tiny",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hello!")},
		Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(
			openai.FunctionDefinitionParam{Name: "f"})}}
	got, err := client.Chat.Completions.New(t.Context(), params)
	require.NoError(t, err)
	stream := client.Chat.Completions.NewStreaming(t.Context(), params)
	var whole openai.ChatCompletionAccumulator
	finished := 0
	for stream.Next() {
		require.True(t, whole.AddChunk(stream.Current()))
		if _, ok := whole.JustFinishedToolCall(); ok {
			finished++
		}
	}
	require.NoError(t, stream.Err())
	require.Equal(t, 2, finished)
	for _, choice := range []openai.ChatCompletionChoice{got.Choices[0], whole.Choices[0]} {
		require.Equal(t, "tool_calls", choice.FinishReason)
		require.Equal(t, "Hm.", choice.Message.Content)
		require.Len(t, choice.Message.ToolCalls, 2)
		require.Equal(t, "f", choice.Message.ToolCalls[1].Function.Name)
		require.JSONEq(t, `{"n":2}`, choice.Message.ToolCalls[1].Function.Arguments)
		params.Messages = append(params.Messages, choice.Message.ToParam(),
			openai.ToolMessage("4", choice.Message.ToolCalls[0].ID))
	}
	_, err = client.Chat.Completions.New(t.Context(), params)
	require.NoError(t, err)
}
