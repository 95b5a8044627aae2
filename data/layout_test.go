package data

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/rollout"
)

func user(content string) []rollout.Message {
	return []rollout.Message{{Role: "user", Content: content}}
}

func TestLayouts(t *testing.T) {
	t.Parallel()
	const chat = `[{"role":"user","content":"q"},{"role":"assistant","content":"r"}]`
	for _, row := range []struct {
		name, text   string
		opts         Options
		prompt       string
		messages     []rollout.Message
		answer, from string
	}{
		{"verl",
			`{"data_source":"openai/gsm8k","prompt":[{"role":"user","content":"q"}],"ability":"math",` +
				`"reward_model":{"style":"rule","ground_truth":"72"},"extra_info":{"answer":"x"}}`,
			Options{}, "", user("q"), `"72"`, "openai/gsm8k"},
		{"verl with its source fields",
			`{"prompt":[{"role":"user","content":"q"}],"problem":"p","answer":"w",` +
				`"reward_model":{"ground_truth":[1]},"data_source":"d"}`,
			Options{}, "", user("q"), `[1]`, "d"},
		{"verl with text", `{"prompt":"q","reward_model":{"ground_truth":2}}`, Options{}, "q", nil, `2`, "set"},
		{"DeepScaleR", `{"problem":"q","answer":"\\frac{1}{2}","solution":"so \\boxed{9}"}`, Options{}, "q", nil,
			`"\\frac{1}{2}"`, "set"},
		{"GSM8K", `{"question":"q","answer":"3 #### in\n#### 1,080\n"}`, Options{}, "q", nil, `"1,080"`, "set"},
		{"MATH", `{"problem":"q","level":"Level 5","type":"Algebra","solution":"no \\boxed{1}, but ` +
			`$\\boxed{\\frac{1}{\\{2\\}}}$."}`, Options{}, "q", nil, `"\\frac{1}{\\{2\\}}"`, "set"},
		{"MATH-500", `{"problem":"q","solution":"\\boxed{3}","answer":"3","subject":"x","unique_id":"test/1.json"}`,
			Options{}, "q", nil, `"3"`, "set"},
		{"GSM8K's marks in a solution", `{"problem":"q","solution":"#### 4"}`, Options{}, "q", nil, `"4"`, "set"},
		{"plain", `{"prompt":"q","answer":""}`, Options{}, "q", nil, `""`, "set"},
		{"other names", `{"input":"q","target":43.0}`, Options{}, "q", nil, `43.0`, "set"},
		{"other case", `{"Question":"q","Answer":5}`, Options{}, "q", nil, `5`, "set"},
		{"SVAMP", `{"Body":"There are 3. ","Question":"How many?","Answer":3.0}`, Options{}, "There are 3. How many?",
			nil, `3.0`, "set"},
		{"Alpaca", `{"instruction":"add","input":"1 2","target":3}`, Options{}, "add\n1 2", nil, `3`, "set"},
		{"Alpaca without input", `{"instruction":"add","input":"","target":3}`, Options{}, "add", nil, `3`, "set"},
		{"no answer", `{"prompt":"q"}`, Options{}, "q", nil, ``, "set"},
		{"the same twice", `{"prompt":"q","question":"q","answer":"1","ground_truth":"1"}`, Options{}, "q", nil,
			`"1"`, "set"},
		{"messages", `{"messages":[{"role":"system","content":"s"},{"role":"user","content":"q"}],"answer":1}`,
			Options{}, "",
			[]rollout.Message{{Role: "system", Content: "s"}, {Role: "user", Content: "q"}}, `1`, "set"},
		{"messages with a reply", `{"messages":` + chat + `,"answer":1}`, Options{}, "", user("q"), `1`, "set"},
		{"messages with a reply, named", `{"messages":` + chat + `,"a":1}`,
			Options{PromptKey: "messages", AnswerKey: "a"}, "", user("q"), `1`, "set"},
		{"a demonstration beside", `{"problem":"q","solution":"\\boxed{7}","messages":` + chat + `}`, Options{}, "q",
			nil, `"7"`, "set"},
		{"conversations", `{"conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"r"}]}`, Options{}, "",
			user("q"), ``, "set"},
		{"parts and extras",
			`{"prompt":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],` +
				`"name":"n","weight":null}]}`, Options{}, "",
			[]rollout.Message{{Role: "user", Content: "ab",
				Extra: map[string]json.RawMessage{"name": json.RawMessage(`"n"`)}}}, ``, "set"},
		{"no content", `{"prompt":[{"role":"assistant","content":null,"tool_calls":[1]}]}`, Options{}, "",
			[]rollout.Message{{Role: "assistant",
				Extra: map[string]json.RawMessage{"tool_calls": json.RawMessage(`[1]`)}}}, ``, "set"},
		{"keys named", `{"question":"x","problem":"q","meta":{"gold":["7"]},"task":"t"}`,
			Options{PromptKey: "problem", AnswerKey: "meta.gold.0", SourceKey: "task"}, "q", nil, `"7"`, "t"},
		{"prompt named, no answer", `{"problem":"q","answer":"7"}`, Options{PromptKey: "problem"}, "q", nil, ``, "set"},
		{"answer named", `{"problem":"q","answer":"7","gold":"8"}`, Options{AnswerKey: "gold"}, "q", nil, `"8"`, "set"},
		{"verl's, as JSON text",
			`{"prompt":"[{\"role\":\"user\",\"content\":\"q\"}]","reward_model":"{\"ground_truth\": \"72\"}"}`,
			Options{},
			"", []rollout.Message{{Role: "user", Content: "q"}}, `"72"`, "set"},
		{"JSON text that was named", `{"meta":"{\"list\":[{\"q\":\"text\"}]}","answer":"[1]"}`,
			Options{PromptKey: "meta.list.0.q", AnswerKey: "answer"}, "text", nil, `"[1]"`, "set"},
		{"text that looks like a list", `{"prompt":"[1, 2] sorted?","answer":1}`, Options{}, "[1, 2] sorted?",
			nil, `1`, "set"},
		{"around the records", `{"canary":"c","examples":[{"input":"q","target":"True"}]}`, Options{}, "q", nil,
			`"True"`, "set"},
		{"around the records, pretty", "{\n \"data\": [\n  {\"input\":\"q\",\n \"target\":\"True\"}\n ]\n}\n",
			Options{}, "q", nil, `"True"`, "set"},
		{"one object, pretty", "{\n \"prompt\": \"q\"\n}\n", Options{}, "q", nil, ``, "set"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := read(write(t, "set.json", row.text), row.opts)
			require.NoError(t, err)
			require.Len(t, got, 1)
			require.Equal(t, row.prompt, got[0].Text)
			require.Equal(t, row.messages, got[0].Messages)
			require.Equal(t, row.answer, string(got[0].Answer))
			require.Equal(t, row.from, got[0].Source)
		})
	}
}

func TestLayoutsRefused(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, text, want string }{
		{"two prompts", `{"question":"a","problem":"b","answer":1}`,
			`:1: prompt: found "question" and "problem"; set data.prompt_key to choose one`},
		{"chat and text", `{"messages":[{"role":"user","content":"q"}],"question":"a"}`,
			`:1: prompt: found "messages" and "question"`},
		{"two answers", `{"problem":"a","answer":1,"target":2}`,
			`:1: answer: found "answer" and "target"; set data.answer_key to choose one`},
		{"nothing known", `{"x":"a","y":"b"}`, `:1: prompt: no known field (prompt, question, problem, query, ` +
			`instruction, input, messages, conversations), found "x", "y"; set data.prompt_key`},
		{"not in each row", `{"problem":"a","answer":1}` + "\n" + `{"question":"a","answer":1}`,
			`:2: prompt: no key "problem", found "answer", "question"`},
		{"no marks", `{"question":"a","answer":"#### 1"}` + "\n" + `{"question":"b","answer":"1"}`,
			`:2: answer: key "answer" has no answer after ####`},
		{"no box", `{"problem":"a","solution":"see above"}`, `:1: answer: key "solution" has no \boxed{…}`},
		{"open box", `{"problem":"a","solution":"\\boxed{1"}`, `:1: answer: key "solution" has no \boxed{…}`},
		{"chat without roles", `{"prompt":[{"role":"","content":"q"}]}`,
			`:1: prompt: key "prompt": message 1: no role`},
		{"chat with a picture", `{"prompt":[{"role":"user","content":[{"type":"image"}]}]}`,
			`:1: prompt: key "prompt": message 1: content part 1 has type "image", expected text`},
		{"a number", `{"prompt":5}`, `:1: prompt: key "prompt" is a number, expected a string or a list of messages`},
		{"null", `{"Question":null}`, `:1: prompt: key "Question" is null, expected a string or a list of messages`},
		{"an object", `{"messages":{"role":"user"}}`,
			`:1: prompt: key "messages" is an object, expected a string or a list of messages`},
		{"no messages", `{"prompt":[]}`, `:1: prompt: key "prompt": empty list, expected messages`},
		{"a message without a role", `{"prompt":[{"content":"q"}]}`,
			`:1: prompt: key "prompt": message 1: no role, found "content", expected role and content`},
		{"a message without content", `{"prompt":[{"role":"system"},{"role":"user","content":"q"}]}`,
			`:1: prompt: key "prompt": message 1: no content, found "role"`},
		{"an empty user's turn", `{"messages":[{"role":"user","content":" "}]}`,
			`:1: prompt: key "messages": message 1: user turn is empty, found "content", "role"; expected text in ` +
				`"content"`},
		{"a user's turn of another field", `{"messages":[{"role":"user","text":"q"}]}`,
			`:1: prompt: key "messages": message 1: user turn is empty, found "role", "text"; expected text in ` +
				`"content"`},
		{"text that is no JSON", `{"prompt":"q","reward_model":"{'ground_truth': 1}"}` + "\n" + `{"prompt":"q"}` +
			"\n" + `{"answer":1}`, `:3: prompt: no key "prompt"`},
		{"chat of numbers", `{"prompt":[{"role":"user","content":"q"}]}` + "\n" + `{"prompt":[1]}`,
			`:2: prompt: key "prompt": the list holds no messages`},
		{"empty chat", `{"prompt":[{"role":"user","content":"q"}]}` + "\n" + `{"prompt":[]}`,
			`:2: prompt: key "prompt": empty list`},
	} {
		path := write(t, "set.jsonl", row.text)
		_, err := read(path, Options{})
		require.ErrorContains(t, err, "read prompts "+path+row.want, row.name)
	}
	_, err := read(write(t, "set.jsonl", `{"problem":"a","n":1}`), Options{PromptKey: "problem", SourceKey: "n"})
	require.ErrorContains(t, err, `source: key "n" is a number, expected a string`)
}

func TestExamples(t *testing.T) {
	t.Parallel()
	const chat = `[{"role":"user","content":"q"},{"role":"assistant","content":"r"}]`
	for _, row := range []struct {
		name, text string
		opts       ExampleOptions
		want       Example
	}{
		{"calls a tool",
			`{"messages":[{"role":"user","content":"q"},{"role":"assistant","tool_calls":[1]},{"role":"tool",` +
				`"content":"t"},{"role":"assistant","content":"r"}]}`, ExampleOptions{},
			Example{Messages: []rollout.Message{{Role: "user", Content: "q"},
				{Role: "assistant", Extra: map[string]json.RawMessage{"tool_calls": json.RawMessage("[1]")}},
				{Role: "tool", Content: "t"}}, Response: "r"}},
		{"plain", `{"prompt":"q","response":"r"}`, ExampleOptions{}, Example{Prompt: "q", Response: "r"}},
		{"completion", `{"prompt":"q","completion":"r","answer":"x"}`, ExampleOptions{},
			Example{Prompt: "q", Response: "r"}},
		{"chat prompt", `{"prompt":[{"role":"user","content":"q"}],"completion":[{"role":"assistant","content":"r"}]}`,
			ExampleOptions{}, Example{Messages: user("q"), Response: "r"}},
		{"messages", `{"messages":` + chat + `}`, ExampleOptions{}, Example{Messages: user("q"), Response: "r"}},
		{"several turns",
			`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user",` +
				`"content":"q"},{"role":"assistant","content":"r"}]}`, ExampleOptions{},
			Example{Messages: []rollout.Message{{Role: "user", Content: "a"}, {Role: "assistant", Content: "b"},
				{Role: "user", Content: "q"}}, Response: "r"}},
		{"a reply with more",
			`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"r","reasoning_content":"t"}]}`,
			ExampleOptions{},
			Example{Messages: user("q"), Response: "r",
				Extra: map[string]json.RawMessage{"reasoning_content": json.RawMessage(`"t"`)}}},
		{"verl's own",
			`{"data_source":"openai/gsm8k","prompt":[{"role":"user","content":"q"}],"ability":"math",` +
				`"extra_info":{"answer":"r\n#### 3","index":0,"question":"q"}}`,
			ExampleOptions{PromptKey: "prompt", ResponseKey: "extra_info.answer", SourceKey: "data_source"},
			Example{Source: "openai/gsm8k", Messages: user("q"), Response: "r\n#### 3"}},
		{"the prompt has it", `{"prompt":` + chat + `}`, ExampleOptions{}, Example{Messages: user("q"), Response: "r"}},
		{"the same as text", `{"problem":"q","solution":"r ","messages":` + chat + `}`, ExampleOptions{},
			Example{Messages: user("q"), Response: "r"}},
		{"conversations", `{"conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"r"}],"id":"7"}`,
			ExampleOptions{}, Example{ID: "7", Messages: user("q"), Response: "r"}},
		{"MATH", `{"problem":"q","solution":"r \\boxed{3}","answer":"3"}`, ExampleOptions{},
			Example{Prompt: "q", Response: `r \boxed{3}`}},
		{"GSM8K", `{"question":"q","answer":"r\n#### 3"}`, ExampleOptions{},
			Example{Prompt: "q", Response: "r\n#### 3"}},
		{"Alpaca", `{"instruction":"q","input":"","output":"r"}`, ExampleOptions{},
			Example{Prompt: "q", Response: "r"}},
		{"named", `{"a":{"b":"q"},"c":"r","response":"x"}`, ExampleOptions{PromptKey: "a.b", ResponseKey: "c"},
			Example{Prompt: "q", Response: "r"}},
		{"prompt named", `{"a":"q","output":"r","prompt":"x"}`, ExampleOptions{PromptKey: "a"},
			Example{Prompt: "q", Response: "r"}},
		{"chat named", `{"a":` + chat + `,"output":"x"}`, ExampleOptions{PromptKey: "a"},
			Example{Messages: user("q"), Response: "r"}},
		{"response named", `{"question":"q","c":"r","answer":"x"}`, ExampleOptions{ResponseKey: "c"},
			Example{Prompt: "q", Response: "r"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := ReadExamples([]string{write(t, "set.jsonl", row.text)}, row.opts)
			require.NoError(t, err)
			if row.want.ID == "" {
				row.want.ID = "set.jsonl:1"
			}
			if row.want.Source == "" {
				row.want.Source = "set"
			}
			require.Equal(t, [][]Example{{row.want}}, got)
		})
	}
	for _, row := range []struct{ name, text, want string }{
		{"no response", `{"prompt":"q","x":"r"}`, `:1: response: no known field (response, completion, output, ` +
			`solution, answer, or messages with a final assistant turn), found "prompt", "x"`},
		{"a number", `{"prompt":"q","response":5}`,
			`:1: response: key "response" is a number, expected a string or a list of messages`},
		{"two responses", `{"prompt":"q","response":"r","output":"s"}`, `:1: response: found "response" and "output"`},
		{"chat and text", `{"problem":"q","solution":"other","messages":` + chat + `}`,
			`:1: response: found "messages" and "solution"`},
		{"no prompt", `{"response":"r"}`, `:1: prompt: no known field`},
		{"no reply", `{"messages":` + chat + "}\n" + `{"messages":[{"role":"user","content":"q"}]}`,
			`:2: prompt: key "messages": 1 turns end with role "user"`},
		{"null", `{"prompt":"q","response":"r"}` + "\n" + `{"prompt":"q","response":null}`,
			`:2: response: key "response" is null, expected a string`},
	} {
		_, err := ReadExamples([]string{write(t, "set.jsonl", row.text)}, ExampleOptions{})
		require.ErrorContains(t, err, row.want, row.name)
	}
}

func TestEachTurn(t *testing.T) {
	t.Parallel()
	const text = `{"id":"c","messages":[{"role":"assistant","content":"hello"},{"role":"user","content":"a"},` +
		`{"role":"assistant","content":"b","reasoning_content":"t"},` +
		`{"role":"user","content":"c"},{"role":"assistant","content":"d"}]}` + "\n" +
		`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"r"}]}`
	lists, err := ReadExamples([]string{write(t, "set.jsonl", text)}, ExampleOptions{})
	require.NoError(t, err)
	rows := lists[0]
	require.Equal(t, 1, EarlierTurns(rows))
	hello := rollout.Message{Role: "assistant", Content: "hello"}
	extra := map[string]json.RawMessage{"reasoning_content": json.RawMessage(`"t"`)}
	require.Equal(t, []Example{
		{ID: "c:3", Source: "set", Messages: []rollout.Message{hello, {Role: "user", Content: "a"}}, Response: "b",
			Extra: extra},
		{ID: "c", Source: "set", Messages: []rollout.Message{hello, {Role: "user", Content: "a"},
			{Role: "assistant", Content: "b", Extra: extra}, {Role: "user", Content: "c"}}, Response: "d"},
		{ID: "set.jsonl:2", Source: "set", Messages: user("q"), Response: "r"},
	}, EachTurn(rows))
}

func TestParquet(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"verl", "verl-v2", "flat-zstd"} {
		path := filepath.Join("parquet", "testdata", name+".parquet")
		twin, err := os.ReadFile(strings.TrimSuffix(path, "parquet") + "jsonl")
		require.NoError(t, err)
		got, err := read(path, Options{})
		require.NoError(t, err)
		want, err := read(write(t, name+".parquet", string(twin)), Options{})
		require.NoError(t, err)
		require.Equal(t, want, got, name)
	}
	got, err := read("parquet/testdata/verl.parquet", Options{PromptKey: "prompt", AnswerKey: "extra_info.index"})
	require.NoError(t, err)
	require.Equal(t, "22", string(got[22].Answer))
	require.Equal(t, "verl.parquet:23", got[22].ID)
	require.Equal(t, "openai/gsm8k", got[22].Source)
	_, err = read("parquet/testdata/verl.parquet", Options{PromptKey: "question"})
	require.ErrorContains(t, err, `verl.parquet:1: prompt: no key "question", found "ability", "data_source", `+
		`"extra_info", "prompt", "reward_model"`)
	_, err = read("parquet/testdata/empty.parquet", Options{})
	require.ErrorContains(t, err, "no prompts")
	_, err = read(write(t, "bad.parquet", "PAR1 and no more"), Options{})
	require.ErrorContains(t, err, "bad.parquet: not a complete Parquet file")
	_, err = read("parquet/testdata/refused-brotli.parquet", Options{})
	require.ErrorContains(t, err, "BROTLI")
	examples, err := ReadExamples([]string{"parquet/testdata/flat-lz4.parquet"}, ExampleOptions{})
	require.NoError(t, err)
	require.Equal(t, "work 59\n#### 59", examples[0][59].Response)
}

// Real prompt files are recognized without settings.
func TestRealLayouts(t *testing.T) {
	t.Parallel()
	root := os.Getenv("EASYRL_TESTDATA")
	if root == "" {
		t.Skip("EASYRL_TESTDATA is not set")
	}
	counts := map[string]int{
		"gsm8k/train.jsonl": 7473, "gsm8k/test.jsonl": 1319, "math/train_math.json": 0, "math/test_math.json": 500,
		"word_problems/svamp_test.jsonl": 1000, "word_problems/mawps_*.jsonl": 0, "bbh/*.json": 0,
		"reasoning_gym_gallery.jsonl": 303, "digit_completion_*.jsonl": 0,
	}
	for pattern, count := range counts {
		got, err := read(filepath.Join(root, "prompts", pattern), Options{})
		require.NoError(t, err, pattern)
		require.NotEmpty(t, got)
		require.True(t, count == 0 || len(got) == count, "%s: %d", pattern, len(got))
		for _, p := range got {
			require.NotEmpty(t, p.Text, p.ID)
			// these have a few null or empty answers
			if p.Source != "reasoning_gym_gallery" && p.Source != "train_math" {
				require.NotEmpty(t, p.Answer, p.ID)
			}
		}
	}
	got, err := read(filepath.Join(root, "prompts/gsm8k/train.jsonl"), Options{})
	require.NoError(t, err)
	for i := range got {
		require.Regexp(t, `^-?[0-9][0-9,.]*$`, got[i].AnswerText())
	}
	require.Equal(t, "72", got[0].AnswerText())
	examples, err := ReadExamples([]string{filepath.Join(root, "prompts/gsm8k/*.jsonl")}, ExampleOptions{})
	require.NoError(t, err)
	require.Len(t, examples[0], 7473+1319)
}

// An object has no answer if its value is null or its key is missing, on any
// line. The layout follows the answers that are present.
func TestMissingAnswers(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, text string
		opts       Options
		want       []string
	}{
		{"in the middle",
			`{"prompt":"a","answer":1} {"prompt":"b"} {"prompt":"c","answer":null} {"prompt":"d","answer":2}`,
			Options{}, []string{"1", "", "", "2"}},
		{"first", `{"prompt":"a"} {"prompt":"b","answer":"7"}`, Options{}, []string{"", `"7"`}},
		{"first, GSM8K", `{"question":"a"} {"question":"b","answer":null} {"question":"c","answer":""} ` +
			`{"question":"d","answer":"x #### 7"}`, Options{}, []string{"", "", `""`, `"7"`}},
		{"GSM8K, empty", `{"question":"d","answer":"x #### 7"} {"question":"c","answer":""}`, Options{},
			[]string{`"7"`, `""`}},
		{"first, MATH", `{"problem":"a"} {"problem":"b","solution":"\\boxed{7}"}`, Options{}, []string{"", `"7"`}},
		{"first, verl", `{"prompt":"a"} {"prompt":"b","reward_model":{"ground_truth":"7"}}`, Options{},
			[]string{"", `"7"`}},
		{"verl", `{"prompt":"b","reward_model":{"ground_truth":"7"}} {"prompt":"a","reward_model":{}} ` +
			`{"prompt":"c","reward_model":null}`, Options{}, []string{`"7"`, "", ""}},
		{"named", `{"prompt":"a"} {"prompt":"b","gold":[7]}`, Options{AnswerKey: "gold"}, []string{"", `[7]`}},
		{"named null first", `{"prompt":"a","gold":null} {"prompt":"b"}`,
			Options{PromptKey: "prompt", AnswerKey: "gold"}, []string{"", ""}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := read(write(t, "set.jsonl", strings.ReplaceAll(row.text, "} {", "}\n{")), row.opts)
			require.NoError(t, err)
			require.Len(t, got, len(row.want))
			for i, want := range row.want {
				require.Equal(t, want, string(got[i].Answer), i)
			}
		})
	}
	_, err := read(write(t, "set.jsonl", `{"prompt":"a"}`+"\n"+`{"prompt":"b"}`), Options{AnswerKey: "gold"})
	require.ErrorContains(t, err, `set.jsonl:1: answer: no key "gold", found "prompt"`, "absent everywhere")
	_, err = read(write(t, "set.jsonl", `{"prompt":"a"}`+"\n"+`{"prompt":"b","answer":1,"target":2}`), Options{})
	require.ErrorContains(t, err, `set.jsonl:2: answer: found "answer" and "target"`)
}
