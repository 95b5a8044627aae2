package calls

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const exampleTools = `[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":
	{"s":{"type":"string"},"n":{"type":"integer"},"b":{"type":"boolean"},"o":{"type":"object"},` +
	`"m":{"type":["integer","null"]},"x":{"anyOf":[]}}}}},
	{"type":"function","function":{"name":"g"}}, "no tool"]`

// parse passes text to a parser in pieces of that many bytes.
func parse(f Format, text string, thinking bool, piece int) (content string, calls []Call) {
	p := f.NewParser(json.RawMessage(exampleTools), thinking)
	add := func(more string, found []Call) { content, calls = content+more, append(calls, found...) }
	for len(text) > piece {
		add(p.Add(text[:piece]))
		text = text[piece:]
	}
	add(p.Add(text))
	add(p.End())
	return content, calls
}

type example struct {
	name    string
	format  Format
	text    string
	content string
	calls   []Call
}

func one(name, arguments string) []Call { return []Call{{name, arguments}} }

// unchanged is an example of text without calls.
func unchanged(name string, f Format, text string) example { return example{name, f, text, text, nil} }

func examples() []example {
	const good = `<tool_call>{"name":"g","arguments":{}}</tool_call>`
	return []example{
		{"one call", Tagged, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n</tool_call>", "",
			one("f", `{"n": 1}`)},
		{"content before", Tagged, "Let me see.\n" + good, "Let me see.", one("g", "{}")},
		{"content after", Tagged, good + "\nDone. ", "Done.", one("g", "{}")},
		{"content between", Tagged, "a\n" + good + " b " + good, "a b", []Call{{"g", "{}"}, {"g", "{}"}}},
		{"parallel", Tagged, good + "\n" + good, "", []Call{{"g", "{}"}, {"g", "{}"}}},
		{"no end tag", Tagged, `<tool_call>{"name":"g","arguments":{"a":[1]}}`, "", one("g", `{"a":[1]}`)},
		{"unknown function", Tagged, `<tool_call>{"name":"other"}</tool_call>`, "", one("other", "{}")},
		{"end tag in an argument", Tagged, `<tool_call>{"name":"g","arguments":{"a":"</tool_call>"}}</tool_call>x`, "x",
			one("g", `{"a":"</tool_call>"}`)},
		unchanged("bad JSON", Tagged, "<tool_call>{name: g}</tool_call>"),
		unchanged("no name", Tagged, `<tool_call>{"arguments":{}}</tool_call>`),
		unchanged("name is no string", Tagged, `<tool_call>{"name":1,"arguments":{}}</tool_call>`),
		unchanged("arguments are no object", Tagged, `<tool_call>{"name":"g","arguments":[1]}</tool_call>`),
		unchanged("null", Tagged, `<tool_call>null</tool_call>`),
		unchanged("two objects", Tagged, `<tool_call>{"name":"g"}{"name":"g"}</tool_call>`),
		unchanged("cut", Tagged, " <tool_call>{\"name\":\"g\",\"argum \n"),
		unchanged("no call", Tagged, "\n just text <tool \n"),
		{"good after cut", Tagged, `<tool_call>{"name":"g","arguments":{}</tool_call>` + good,
			`<tool_call>{"name":"g","arguments":{}</tool_call>`, one("g", "{}")},
		{"good after bad", Tagged, `<tool_call>?</tool_call> ` + good, `<tool_call>?</tool_call>`, one("g", "{}")},
		{"call in a thought", Tagged, "<think>\nor " + good + "\n</think>\n\n" + good,
			"<think>\nor " + good + "\n</think>", one("g", "{}")},
		unchanged("thought without an end", Tagged, "<think>\nor "+good),

		{"elements", Elements,
			"I call.\n\n<tool_call>\n<function=f>\n<parameter=s>\na\n\"b\"\n</parameter>\n" +
				"<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>",
			"I call.", one("f", `{"s": "a\n\"b\"", "n": 1}`)},
		{"types", Elements, "<tool_call><function=f><parameter=b>True</parameter><parameter=o>{\"a\": " +
			"1}</parameter><parameter=m>null</parameter>" +
			"<parameter=x>1</parameter><parameter=y>2</parameter><parameter=n>one</parameter>" +
			"<parameter=s>null</parameter></function></tool_call>",
			"", one("f", `{"b": true, "o": {"a": 1}, "m": null, "x": "1", "y": "2", "n": "one", "s": "null"}`)},
		{"element in a value", Elements,
			"<tool_call><function=f><parameter=s>\n<a></parameter> & \n</parameter></function></tool_call>", "",
			one("f", `{"s": "<a></parameter> & "}`)},
		{"no parameters", Elements, "<tool_call>\n<function=g>\n</function>\n</tool_call>", "", one("g", "{}")},
		unchanged("no function", Elements, good),
		unchanged("no end of the function", Elements, "<tool_call><function=g></tool_call>"),
		unchanged("text among parameters", Elements, "<tool_call><function=g>x</function></tool_call>"),
		unchanged("no end of a parameter", Elements, "<tool_call><function=g><parameter=s>x</function></tool_call>"),

		{"bare", Bare, `{"name": "f", "parameters": {"n": 1}}`, "", one("f", `{"n": 1}`)},
		{"python tag", Bare, `<|python_tag|>{"name": "f", "parameters": {}}; {"name": "g", "parameters": {}}`, "",
			[]Call{{"f", "{}"}, {"g", "{}"}}},
		{"bare after a thought", Bare, "<think>\n</think>\n\n{\"name\": \"f\"}", "<think>\n</think>", one("f", "{}")},
		unchanged("JSON that is no call", Bare, `{"name": "other", "parameters": {}}`),
		unchanged("text after", Bare, `{"name": "f", "parameters": {}} is a call`),
		unchanged("text before", Bare, `Call {"name": "f", "parameters": {}}`),
		unchanged("code", Bare, `<|python_tag|>brave_search.call(query="x")`),
		unchanged("empty", Bare, ""),

		{"list", List,
			` [TOOL_CALLS] [{"name": "f", "arguments": {"n": 1}, "id": "abcdef123"}, {"name":"g","arguments":{}}] `, "",
			[]Call{{"f", `{"n": 1}`}, {"g", "{}"}}},
		unchanged("no list", List, `[TOOL_CALLS]{"name": "f", "arguments": {}}`),
		unchanged("empty list", List, `[TOOL_CALLS][]`),
		unchanged("text after the list", List, `[TOOL_CALLS][{"name": "f"}] x`),

		{"fenced", Fenced,
			"<think>\na\n</think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"n\": " +
				"1}\n```<｜tool▁call▁end｜>\n" +
				"<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
			"<think>\na\n</think>", []Call{{"f", `{"n": 1}`}, {"g", "{}"}}},
		unchanged("no fence", Fenced,
			"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),

		unchanged("no format", None, good),
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, e := range examples() {
		for _, piece := range []int{1, 2, 7, 1 << 20} {
			content, calls := parse(e.format, e.text, false, piece)
			require.Equal(t, e.content, content, "%s, %d bytes at a time", e.name, piece)
			require.Equal(t, e.calls, calls, "%s, %d bytes at a time", e.name, piece)
		}
	}
}

// The prompt may begin the thought.
func TestParseThinking(t *testing.T) {
	t.Parallel()
	const call = `<tool_call>{"name":"g"}</tool_call>`
	content, calls := parse(Tagged, "I could "+call+"\n</think>\n\n"+call, true, 3)
	require.Equal(t, "I could "+call+"\n</think>", content)
	require.Equal(t, one("g", "{}"), calls)
}

// Content is returned as it comes, except what may be a part of a call.
func TestParseAtOnce(t *testing.T) {
	t.Parallel()
	p := Tagged.NewParser(nil, false)
	for _, step := range []struct{ add, content string }{{"a b", "a b"}, {" c", " c"}, {" <to", ""}, {"ast", " <toast"},
		{"\n<tool_call>{\"name\":\"g\"}", ""}} {
		content, calls := p.Add(step.add)
		require.Equal(t, step.content, content)
		require.Empty(t, calls)
	}
	content, calls := p.Add("</tool_call>")
	require.Empty(t, content)
	require.Equal(t, one("g", "{}"), calls)
}

// A text that starts many calls is read a limited number of times.
func TestParseTries(t *testing.T) {
	t.Parallel()
	text := strings.Repeat(`<tool_call>{"a":</tool_call>`, 50_000)
	content, calls := parse(Tagged, text, false, 1<<20)
	require.Equal(t, text, content)
	require.Empty(t, calls)
}

// However a text is divided, nothing is lost and the calls are the same.
func FuzzParse(f *testing.F) {
	for _, e := range examples() {
		f.Add(e.text, int(e.format), 3)
	}
	f.Fuzz(func(t *testing.T, text string, format, piece int) {
		format, piece = max(0, format%int(Fenced+1)), max(1, piece)
		content, calls := parse(Format(format), text, false, len(text)+1)
		if len(calls) == 0 {
			require.Equal(t, text, content)
		}
		for _, call := range calls {
			var arguments map[string]any
			require.NoError(t, json.Unmarshal([]byte(call.Arguments), &arguments))
			require.NotEmpty(t, call.Name)
		}
		again, same := parse(Format(format), text, false, piece)
		require.Equal(t, content, again)
		require.Equal(t, calls, same)
	})
}
